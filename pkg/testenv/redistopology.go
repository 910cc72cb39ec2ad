package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// KindSentinel is a watcher of Redis servers.
const KindSentinel Kind = "redis-sentinel"

// Times after which a topology takes a silent server for dead; a failover takes a few
// times as long.
const (
	sentinelDownAfter  = "1000"
	clusterNodeTimeout = "1000"
)

// RedisSentinel is a master, one replica, and three Sentinels that watch them under
// Name.
type RedisSentinel struct {
	Name      string
	Servers   []*Server // the master at first, then the replica
	Sentinels []*Server
}

// PrivateRedisSentinel starts the five servers for this test alone. args go to master
// and replica.
func PrivateRedisSentinel(t testing.TB, args ...string) *RedisSentinel {
	t.Helper()
	s := &RedisSentinel{Name: "seahub"}
	started := topology{t}
	master := started.redis(args)
	replica := started.redis(args, "--replicaof", "127.0.0.1", portOf(master))
	s.Servers = []*Server{master, replica}
	for range 3 {
		s.Sentinels = append(s.Sentinels, started.add(startSentinel(t.Context(), s.Name, portOf(master))))
	}
	awaitSync(t, replica)
	Eventually(t, time.Minute, "every sentinel knows the replica and the other sentinels", func() bool {
		for _, sentinel := range s.Sentinels {
			if !sentinelKnows(t, sentinel.Addr(), s.Name) {
				return false
			}
		}
		return true
	})
	return s
}

// Addrs are the Sentinels'.
func (s *RedisSentinel) Addrs() []string { return addrs(s.Sentinels) }

// Master is the address that the first Sentinel gives for the master now.
func (s *RedisSentinel) Master(t testing.TB) string {
	t.Helper()
	client := redis.NewSentinelClient(&redis.Options{Addr: s.Sentinels[0].Addr()})
	defer client.Close()
	at, err := client.GetMasterAddrByName(t.Context(), s.Name).Result()
	if err != nil || len(at) != 2 {
		t.Fatalf("testenv: ask a sentinel for the master: %v, %v", at, err)
	}
	return at[0] + ":" + at[1]
}

// RedisCluster is three masters with a third of the slots each, and one replica of
// each.
type RedisCluster struct {
	Servers []*Server // masters first, in the order of their slots
}

const (
	clusterMasterCount = 3
	clusterSlots       = 16384
)

// PrivateRedisCluster starts the nodes for this test alone and waits until they agree.
func PrivateRedisCluster(t testing.TB, args ...string) *RedisCluster {
	t.Helper()
	c := &RedisCluster{}
	started := topology{t}
	for range 2 * clusterMasterCount {
		c.Servers = append(c.Servers, started.add(startClusterNode(t.Context(), args)))
	}
	for i, s := range c.Servers {
		do := commands(t, s.Addr())
		if i < clusterMasterCount {
			do("CLUSTER", "ADDSLOTSRANGE", i*clusterSlots/clusterMasterCount, (i+1)*clusterSlots/clusterMasterCount-1)
		}
		for _, other := range c.Servers[:i] {
			do("CLUSTER", "MEET", "127.0.0.1", portOf(other), other.port.number+clusterBusDistance)
		}
	}
	eachSays := func(want string) func() bool {
		return func() bool {
			for _, s := range c.Servers {
				info, err := clusterInfo(t, s.Addr())
				if err != nil || !strings.Contains(info, want) {
					return false
				}
			}
			return true
		}
	}
	Eventually(t, time.Minute, "every node knows all", eachSays("cluster_known_nodes:"+strconv.Itoa(len(c.Servers))))
	for i, s := range c.Servers[clusterMasterCount:] {
		id, _ := commands(t, c.Servers[i].Addr())("CLUSTER", "MYID").(string)
		Eventually(t, time.Minute, "a node becomes a replica", func() bool {
			client := redis.NewClient(&redis.Options{Addr: s.Addr()})
			defer client.Close()
			return client.ClusterReplicate(t.Context(), id).Err() == nil
		})
	}
	Eventually(t, time.Minute, "the cluster is whole", eachSays("cluster_state:ok"))
	for _, s := range c.Servers[clusterMasterCount:] {
		awaitSync(t, s)
	}
	return c
}

// Addrs are all nodes'.
func (c *RedisCluster) Addrs() []string { return addrs(c.Servers) }

// MasterOf returns which node serves key now.
func (c *RedisCluster) MasterOf(t testing.TB, key string) *Server {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer client.Close()
	master, err := client.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatalf("testenv: ask the cluster who serves %s: %v", key, err)
	}
	for _, s := range c.Servers {
		if s.Addr() == master.Options().Addr {
			return s
		}
	}
	t.Fatalf("testenv: %s is served by %s, which is none of ours", key, master.Options().Addr)
	return nil
}

func addrs(servers []*Server) (out []string) {
	for _, s := range servers {
		out = append(out, s.Addr())
	}
	return out
}

func portOf(s *Server) string { return strconv.Itoa(s.port.number) }

// syncAtOnce lets a master send its data to the first replica that asks, and not wait
// for more.
var syncAtOnce = []string{"--repl-diskless-sync-delay", "0"}

// topology closes what it started, also when a later part fails.
type topology struct{ t testing.TB }

func (p topology) redis(args []string, more ...string) *Server {
	p.t.Helper()
	return p.add(StartRedis(p.t.Context(), Options{Args: slices.Concat(more, syncAtOnce, args)}))
}

func (p topology) add(s *Server, err error) *Server {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.t.Logf("%s at %s: its log ends:\n%s", s.Kind(), s.Addr(), s.Log())
		}
		if err := s.Close(); err != nil {
			p.t.Errorf("testenv: close %s: %v", s.Kind(), err)
		}
	})
	return s
}

// awaitSync waits until a replica has its master's data; before, it would not take over.
func awaitSync(t testing.TB, replica *Server) {
	t.Helper()
	Eventually(t, time.Minute, "the replica at "+replica.Addr()+" is in sync", func() bool {
		info, err := redisInfo(t.Context(), replica.Addr(), "replication")
		return err == nil && info["role"] == "slave" && info["master_link_status"] == "up"
	})
}

func commands(t testing.TB, addr string) func(args ...any) any {
	return func(args ...any) any {
		t.Helper()
		client := redis.NewClient(&redis.Options{Addr: addr})
		defer client.Close()
		v, err := client.Do(t.Context(), args...).Result()
		if err != nil {
			t.Fatalf("testenv: %v at %s: %v", args, addr, err)
		}
		return v
	}
}

func clusterInfo(t testing.TB, addr string) (string, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	return client.ClusterInfo(t.Context()).Result()
}

// clusterBusDistance is where a node's other port is, beside its own: Redis would take
// one 10,000 higher, among those that the kernel gives to anybody.
const clusterBusDistance = 1

func startClusterNode(ctx context.Context, args []string) (*Server, error) {
	return start(ctx, engine{
		kind:    KindRedis,
		beside:  []int{clusterBusDistance},
		prepare: func(context.Context, *Server) error { return nil },
		command: func(s *Server) (string, []string, error) {
			path, argv, err := redisCommand(s)
			return path, append(argv, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
				"--cluster-node-timeout", clusterNodeTimeout, "--cluster-port", strconv.Itoa(s.port.number+clusterBusDistance)), err
		},
		identify: identifyRedis,
	}, Options{Args: slices.Concat(syncAtOnce, args)})
}

func startSentinel(ctx context.Context, name, masterPort string) (*Server, error) {
	return start(ctx, engine{
		kind: KindSentinel,
		// It rewrites its configuration, so the file is written once.
		prepare: func(_ context.Context, s *Server) error {
			path := filepath.Join(s.dir, "sentinel.conf")
			if _, err := os.Stat(path); err == nil {
				return nil
			}
			return os.WriteFile(path, []byte(fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\n"+
				"sentinel monitor %[3]s 127.0.0.1 %s 2\nsentinel down-after-milliseconds %[3]s %[5]s\n"+
				"sentinel failover-timeout %[3]s 3000\nsentinel parallel-syncs %[3]s 1\n",
				s.port.number, s.dir, name, masterPort, sentinelDownAfter)), 0o600)
		},
		command: func(s *Server) (string, []string, error) {
			path, err := findRedis()
			return path, []string{"redis-sentinel", filepath.Join(s.dir, "sentinel.conf"), "--sentinel"}, err
		},
		identify: identifySentinel,
	}, Options{})
}

func identifySentinel(ctx context.Context, s *Server, pid int) error {
	info, err := redisInfo(ctx, s.addr, "server")
	if err != nil {
		return err
	}
	if got := info["process_id"]; got != strconv.Itoa(pid) {
		return fmt.Errorf("%w: its pid is %q, ours is %d", ErrForeign, got, pid)
	}
	if info["redis_mode"] != "sentinel" {
		return errors.New("it is no sentinel yet")
	}
	return nil
}

// sentinelKnows tells that a Sentinel has heard of the replica and both colleagues.
func sentinelKnows(t testing.TB, addr, name string) bool {
	client := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer client.Close()
	master, err := client.Master(t.Context(), name).Result()
	return err == nil && master["num-slaves"] == "1" && master["num-other-sentinels"] == "2" && master["flags"] == "master"
}
