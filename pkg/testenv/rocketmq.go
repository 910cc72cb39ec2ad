package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

// provisionTimeout bounds the making of a topic or group: some 20 ms, more while a
// broker warms up.
const provisionTimeout = 30 * time.Second

// RocketMQVersions are those that a test should pass on: the one that production
// runs, with the next one when SEAHUB_SOAK is set.
func RocketMQVersions() []string {
	if Soaking() {
		return []string{RocketMQVersion4, RocketMQVersion5}
	}
	return []string{RocketMQVersion4}
}

// RocketMQ gives the test the cluster of this test process. Other tests use it
// too: topics and groups are made by Topic and Group and belong to one test.
func RocketMQ(t testing.TB) *RocketMQCluster {
	t.Helper()
	return RocketMQOf(t, RocketMQVersion4)
}

// RocketMQ5 is RocketMQ on the version after production's.
func RocketMQ5(t testing.TB) *RocketMQCluster {
	t.Helper()
	return RocketMQOf(t, RocketMQVersion5)
}

// RocketMQOf is RocketMQ on one of RocketMQVersions.
func RocketMQOf(t testing.TB, version string) *RocketMQCluster {
	t.Helper()
	// Not the test's context: the cluster outlives the test that needs it first.
	cluster, err := shared.get("rocketmq-"+version, func() (sharable, error) {
		if version == RocketMQVersion4 {
			if c, err := existingRocketMQ(); c != nil || err != nil {
				return c, err
			}
		}
		c, err := StartRocketMQ(context.Background(), Options{Version: version})
		if err != nil {
			return nil, err
		}
		c.NameServer.refusal, c.Broker.refusal = ErrShared, ErrShared
		return c, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return cluster.(*RocketMQCluster)
}

// PrivateRocketMQ starts a cluster for this test alone, to be faulted by
// RocketMQCluster.NameServer and RocketMQCluster.Broker. A broker that starts
// while the name server is frozen is not seen to be ready.
func PrivateRocketMQ(t testing.TB, options ...Options) *RocketMQCluster {
	t.Helper()
	var o Options
	if len(options) > 0 {
		o = options[0]
	}
	c, err := StartRocketMQ(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the name server's log ends:\n%s\nthe broker's log ends:\n%s", c.NameServer.Log(), c.Broker.Log())
		}
		if err := c.Close(); err != nil {
			t.Errorf("testenv: close RocketMQ: %v", err)
		}
	})
	return c
}

// Client opens a client of the admin for the test's own looks.
func (c *RocketMQCluster) Client(t testing.TB) *remoting.Client {
	t.Helper()
	client, err := c.client(c.Addr())
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

// Topic makes a topic that no other test has and returns its name. On a cluster
// that is not ours it stays.
func (c *RocketMQCluster) Topic(t testing.TB, queues int) string {
	t.Helper()
	name := uniqueName(t.Name())
	c.MakeTopic(t, name, queues)
	return name
}

// Group makes a consumer group that no other test has and returns its name.
func (c *RocketMQCluster) Group(t testing.TB) string {
	t.Helper()
	name := "GID_" + uniqueName(t.Name())
	c.MakeGroup(t, name)
	return name
}

// MakeTopic makes a topic of a given name, for a private cluster.
func (c *RocketMQCluster) MakeTopic(t testing.TB, name string, queues int) {
	t.Helper()
	c.provision(t, func(ctx context.Context, client *remoting.Client) error {
		return client.CreateTopic(ctx, name, queues)
	})
}

// MakeGroup makes a consumer group of a given name, for a private cluster.
func (c *RocketMQCluster) MakeGroup(t testing.TB, name string) {
	t.Helper()
	c.provision(t, func(ctx context.Context, client *remoting.Client) error {
		return client.CreateGroup(ctx, name)
	})
}

func (c *RocketMQCluster) provision(t testing.TB, do func(context.Context, *remoting.Client) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), provisionTimeout)
	defer cancel()
	if err := do(ctx, c.Client(t)); err != nil {
		t.Fatalf("testenv: %v", err)
	}
}

// AdminTool runs RocketMQ's own mqadmin as the admin and returns what it prints.
// It takes some seconds.
func (c *RocketMQCluster) AdminTool(t testing.TB, args ...string) string {
	t.Helper()
	home := t.TempDir()
	err := writeConf(home, map[string]string{
		"logback_tools.xml": strings.Replace(logback, `level="WARN"`, `level="OFF"`, 1),
		"tools.yml":         fmt.Sprintf("accessKey: %s\nsecretKey: %s\n", c.Admin.AccessKey, c.Admin.SecretKey),
	})
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	path, argv, err := c.javaCommand(home, []string{"-Xmx128m", "-XX:TieredStopAtLevel=1", "-Drocketmq.namesrv.addr=" + c.Addr()},
		"org.apache.rocketmq.tools.command.MQAdminStartup", args...)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), path, argv[1:]...)
	cmd.Dir, cmd.WaitDelay = home, toolWaitDelay
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("testenv: mqadmin %s: %v: %s", strings.Join(args, " "), err, complaints.String())
	}
	return withoutLogback(string(out))
}

// withoutLogback drops what version 5's logging says of itself while it starts.
func withoutLogback(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, " |-INFO in ") && !strings.Contains(line, " |-WARN in ") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// existingRocketMQ is the cluster that the environment names, or nil.
func existingRocketMQ() (*RocketMQCluster, error) {
	addr := os.Getenv("SEAHUB_TEST_ROCKETMQ_ADDR")
	if addr == "" {
		return nil, nil
	}
	c := &RocketMQCluster{Version: RocketMQVersion4}
	c.useOwnAccounts()
	if admin := os.Getenv("SEAHUB_TEST_ROCKETMQ_ADMIN"); admin != "" {
		key, secret, ok := strings.Cut(admin, ":")
		if !ok {
			return nil, errors.New("SEAHUB_TEST_ROCKETMQ_ADMIN: want accesskey:secretkey")
		}
		c.Admin = remoting.Account{AccessKey: key, SecretKey: secret}
		c.Publisher, c.Consumer = c.Admin, c.Admin
	}
	c.NameServer = externalServer(KindNameServer, addr)
	c.Broker = externalServer(KindBroker, "")
	client, err := c.client(addr)
	if err != nil {
		return nil, fmt.Errorf("SEAHUB_TEST_ROCKETMQ_ADDR: %w", err)
	}
	client.Close()
	return c, nil
}
