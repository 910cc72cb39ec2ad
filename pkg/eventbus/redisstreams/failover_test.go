package redisstreams_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// failoverTime is what the servers themselves take at most to agree on a new master,
// with the times that testenv sets, on a busy machine.
const failoverTime = 40 * time.Second

func sentinelLoad(t *testing.T, s *testenv.RedisSentinel) *load {
	cfg := quick("")
	cfg.Mode, cfg.Addresses, cfg.MasterName = "sentinel", s.Addrs(), s.Name
	l := newLoad(t, cfg, "failover-test")
	l.back = failoverTime + comeback
	return l
}

// absent returns which confirmed events the stream does not have, whether they were
// handled or not, and over how much time they were confirmed.
func (l *load) absent(c redis.Cmdable) (keys []string, span time.Duration) {
	l.t.Helper()
	there := map[string]bool{}
	for from := "-"; ; {
		page, err := c.XRangeN(context.Background(), "beex:failover-test:events", from, "+", 200).Result()
		if err != nil {
			l.t.Fatal(err)
		}
		for _, x := range page {
			key, _ := x.Values["key"].(string)
			there[key] = true
			from = "(" + x.ID
		}
		if len(page) == 0 {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var first, last time.Time
	for _, k := range l.sent {
		if there[k] {
			continue
		}
		keys = append(keys, k)
		if at := l.sentAt[k]; first.IsZero() {
			first, last = at, at
		} else {
			last = at
		}
	}
	return keys, last.Sub(first)
}

// lookThrough notes what the stream lacks in the end, on whoever is master then.
func (l *load) lookThrough(client redis.UniversalClient) (lost *int, span *time.Duration) {
	lost, span = new(int), new(time.Duration)
	l.look = func() {
		defer client.Close()
		keys, over := l.absent(client)
		*lost, *span = len(keys), over
	}
	return lost, span
}

func masterClient(s *testenv.RedisSentinel) redis.UniversalClient {
	return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Name, SentinelAddrs: s.Addrs()})
}

// Publish, consume, fail over, with a replica that keeps up: what is lost is what was
// on its way to the replica at that moment.
func TestSentinelFailover(t *testing.T) {
	testenv.SoakOnly(t, "it waits for failovers")
	s := testenv.PrivateRedisSentinel(t)
	l := sentinelLoad(t, s)
	lost, span := l.lookThrough(masterClient(s))
	unhandled := l.through(3000, func() { must(t, s.Servers[0].Kill()) })
	t.Logf("replica up to date: %d of 3000 confirmed events are not in the stream (confirmed within %s), %d of them had not been handled", *lost, *span, unhandled)
}

// A replica that is behind when its master dies costs all that it has not got: without
// a bound, or with min-replicas-to-write no more than min-replicas-max-lag and the
// seconds in which the master has not noticed yet. Publishing again repairs both.
func TestSentinelFailoverToAReplicaThatIsBehind(t *testing.T) {
	testenv.SoakOnly(t, "it waits for failovers")
	const behind = 8 * time.Second
	run := func(t *testing.T, args ...string) (span time.Duration, refused int) {
		s := testenv.PrivateRedisSentinel(t, args...)
		l := sentinelLoad(t, s)
		// More than the kernel's buffers hold, which reach the replica after all.
		l.body, l.pause = bytes.Repeat([]byte("x"), 20_000), 25*time.Millisecond
		const n = 6000
		lost, over := l.lookThrough(masterClient(s))
		unhandled := l.through(n, func() {
			must(t, s.Servers[1].Freeze())
			time.Sleep(behind)
			must(t, s.Servers[0].Kill())
			must(t, s.Servers[1].Thaw())
			testenv.Eventually(t, failoverTime, "the replica is master", func() bool { return s.Master(t) == s.Servers[1].Addr() })
			// With one replica and min-replicas-to-write nothing can be written until the
			// dead server is back as a replica; whoever wants more needs two replicas.
			must(t, s.Servers[0].Start(context.Background()))
		})
		t.Logf("replica %s behind: %d of %d confirmed events are not in the stream (confirmed within %s), %d of them had not been handled", behind, *lost, n, *over, unhandled)
		return *over, l.status(eventbus.Unavailable)
	}
	var open, guarded time.Duration
	t.Run("unguarded", func(t *testing.T) {
		open, _ = run(t)
		if open == 0 {
			t.Error("nothing was lost: the test does not make its replica fall behind")
		}
	})
	t.Run("min-replicas-to-write", func(t *testing.T) {
		var refused int
		guarded, refused = run(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
		if refused == 0 {
			t.Error("publishing was never refused while no replica kept up")
		}
		if guarded > 4*time.Second {
			t.Errorf("events of %s were lost, the setting allows for some 3 s", guarded)
		}
	})
	if guarded >= open {
		t.Errorf("the setting narrows nothing: %s with it, %s without", guarded, open)
	}
}

// The same in a Cluster: the master of the stream's slot dies, its replica takes over.
func TestClusterFailover(t *testing.T) {
	testenv.SoakOnly(t, "it waits for failovers")
	c := testenv.PrivateRedisCluster(t)
	cfg := quick("")
	cfg.Mode, cfg.Addresses = "cluster", c.Addrs()
	l := newLoad(t, cfg, "failover-test")
	l.back = failoverTime + comeback
	topics, err := l.bus.Inspector().Topics(t.Context())
	if err != nil || len(topics) != 1 || topics[0] != l.topic {
		t.Errorf("topics are %v, %v", topics, err)
	}
	lost, span := l.lookThrough(redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}))
	victim := c.MasterOf(t, "beex:failover-test:events")
	unhandled := l.through(3000, func() { must(t, victim.Kill()) })
	t.Logf("%d of 3000 confirmed events are not in the stream (confirmed within %s), %d of them had not been handled", *lost, *span, unhandled)
	if now := c.MasterOf(t, "beex:failover-test:events"); now == victim {
		t.Error("the dead node still serves the stream")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
