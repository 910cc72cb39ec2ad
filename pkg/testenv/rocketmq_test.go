package testenv_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// reregistered is more than the 10 s in which a broker tells a new name server of
// itself.
const reregistered = 35 * time.Second

func TestRocketMQLeavesNothingBehind(t *testing.T) {
	for _, version := range testenv.RocketMQVersions() {
		t.Run(version, func(t *testing.T) {
			c, err := testenv.StartRocketMQ(t.Context(), testenv.Options{Version: version})
			require.NoError(t, err)
			servers := []*testenv.Server{c.NameServer, c.Broker}
			pids := []int{c.NameServer.Pid(), c.Broker.Pid()}
			require.Contains(t, c.AdminTool(t, "clusterList"), c.Broker.Addr())

			require.NoError(t, c.Close())
			for i, server := range servers {
				require.False(t, running(pids[i]))
				require.NoDirExists(t, server.Dir())
				_, err = net.DialTimeout("tcp", server.Addr(), quickly)
				require.Error(t, err)
				require.Error(t, server.Start(t.Context()), "starting after Close")
			}
			require.NoError(t, c.Close(), "closing twice")
		})
	}
}

// One cluster, since each costs seconds: ends, restarts and freezes of one server
// leave the other, and the data.
func TestRocketMQIsFaultedServerByServer(t *testing.T) {
	c := testenv.PrivateRocketMQ(t)
	topic := c.Topic(t, 3)
	client := c.Client(t)
	route := func() error {
		queues, err := client.Route(t.Context(), topic)
		if err == nil {
			require.Len(t, queues, 3)
			require.Equal(t, []string{c.Broker.Addr()}, remoting.Brokers(queues))
		}
		return err
	}
	require.NoError(t, route())
	nameServer, broker := c.NameServer.Pid(), c.Broker.Pid()

	require.NoError(t, c.Broker.Kill())
	testenv.Eventually(t, bound, "the name server forgets a dead broker", func() bool { return route() != nil })
	require.NoError(t, c.Broker.Start(t.Context()))
	require.NoError(t, route(), "ready means registered, and the topic is kept")
	require.NotEqual(t, broker, c.Broker.Pid())
	require.Equal(t, nameServer, c.NameServer.Pid())

	require.NoError(t, c.NameServer.Kill())
	require.ErrorIs(t, route(), remoting.ErrUnreachable)
	require.NoError(t, c.NameServer.Start(t.Context()))
	testenv.Eventually(t, reregistered, "the broker finds the new name server", func() bool { return route() == nil })

	queues, err := client.Route(t.Context(), topic)
	require.NoError(t, err)
	require.NoError(t, c.Broker.Freeze())
	short, cancel := context.WithTimeout(t.Context(), quickly)
	defer cancel()
	_, err = client.MaxOffset(short, queues[0])
	require.ErrorIs(t, err, remoting.ErrSilent)
	require.NoError(t, route(), "the name server goes on")
	require.NoError(t, c.Broker.Thaw())
	_, err = client.MaxOffset(t.Context(), queues[0])
	require.NoError(t, err)
}

// Somebody else's broker took the address, or one of the ports beside it.
func TestAnotherServerAtTheAddressOfRocketMQIsRefused(t *testing.T) {
	c := testenv.PrivateRocketMQ(t)
	redis := testenv.Redis(t).Addr
	require.NoError(t, c.Broker.Kill())
	require.NoError(t, c.NameServer.Kill())
	stop := forward(t, c.NameServer.Addr(), redis)
	require.ErrorIs(t, c.NameServer.Start(t.Context()), testenv.ErrForeign)
	stop()
	require.NoError(t, c.NameServer.Start(t.Context()))

	host, port, err := net.SplitHostPort(c.Broker.Addr())
	require.NoError(t, err)
	var number int
	_, err = fmt.Sscan(port, &number)
	require.NoError(t, err)
	stop = forward(t, net.JoinHostPort(host, fmt.Sprint(number-2)), redis)
	require.ErrorIs(t, c.Broker.Start(t.Context()), testenv.ErrForeign)
	stop()
	require.NoError(t, c.Broker.Start(t.Context()))
}

func TestASharedRocketMQCanNotBeFaulted(t *testing.T) {
	c := testenv.RocketMQ(t)
	require.ErrorIs(t, c.Broker.Kill(), testenv.ErrShared)
	require.ErrorIs(t, c.NameServer.Restart(t.Context()), testenv.ErrShared)
	require.Equal(t, c.Addr(), testenv.RocketMQ(t).Addr())
}

func TestRocketMQAccountsMayDoWhatTheirNamesSay(t *testing.T) {
	for _, version := range testenv.RocketMQVersions() {
		t.Run(version, func(t *testing.T) {
			c := testenv.RocketMQOf(t, version)
			topic, group := c.Topic(t, 1), c.Group(t)
			queues, err := c.Client(t).Route(t.Context(), topic)
			require.NoError(t, err)
			read := func(account remoting.Account) error {
				client, err := remoting.New(remoting.Config{NameServers: []string{c.Addr()}, Account: account})
				require.NoError(t, err)
				defer client.Close()
				_, _, err = client.MessageTimes(t.Context(), queues[0], group, 0)
				if account != c.Admin {
					require.ErrorIs(t, client.CreateGroup(t.Context(), group), remoting.ErrDenied)
				}
				return err
			}
			require.NoError(t, read(c.Admin))
			require.NoError(t, read(c.Consumer))
			require.ErrorIs(t, read(c.Publisher), remoting.ErrDenied)
			require.ErrorIs(t, read(c.Stranger), remoting.ErrDenied)
			require.ErrorIs(t, read(remoting.Account{AccessKey: c.Admin.AccessKey, SecretKey: "of another"}), remoting.ErrDenied)
		})
	}
}

func TestRoleExternalRocketMQ(t *testing.T) {
	if !playing("external-rocketmq") {
		return
	}
	c := testenv.RocketMQ(t)
	require.Equal(t, os.Getenv("SEAHUB_TEST_ROCKETMQ_ADDR"), c.Addr())
	require.ErrorIs(t, c.Broker.Kill(), testenv.ErrExternal)
	require.ErrorIs(t, c.NameServer.Freeze(), testenv.ErrExternal)
	fmt.Println("made", c.Topic(t, 1))
}

func TestARocketMQOfTheEnvironmentIsUsed(t *testing.T) {
	c := testenv.RocketMQ(t)
	for _, admin := range []string{"", c.Admin.AccessKey + ":" + c.Admin.SecretKey} {
		out, err := rerun(t, "external-rocketmq", "TestRoleExternalRocketMQ",
			"SEAHUB_TEST_ROCKETMQ_ADDR="+c.Addr(), "SEAHUB_TEST_ROCKETMQ_ADMIN="+admin)
		require.NoError(t, err, out)
		_, made, ok := strings.Cut(out, "made ")
		require.True(t, ok, out)
		_, err = c.Client(t).Route(t.Context(), strings.Fields(made)[0])
		require.NoError(t, err)
	}
	for variable, value := range map[string]string{
		"SEAHUB_TEST_ROCKETMQ_ADDR": "nowhere", "SEAHUB_TEST_ROCKETMQ_ADMIN": "no secret",
	} {
		out, err := rerun(t, "external-rocketmq", "TestRoleExternalRocketMQ",
			"SEAHUB_TEST_ROCKETMQ_ADDR="+c.Addr(), variable+"="+value)
		require.Error(t, err, out)
		require.Contains(t, out, variable)
	}
}

func TestAMissingRocketMQIsNamedWithTheWayOut(t *testing.T) {
	t.Setenv("SEAHUB_TEST_CACHE_DIR", t.TempDir())
	_, err := testenv.StartRocketMQ(t.Context(), testenv.Options{})
	require.ErrorContains(t, err, "run `make deps`, or `dev/rocketmq-fetch.sh 4.9.7`")
	t.Setenv("PATH", "")
	_, err = testenv.StartRocketMQ(t.Context(), testenv.Options{})
	require.ErrorContains(t, err, "Java is not on this machine (package default-jre-headless)")
}

func TestARocketMQThatFailsShowsItsLog(t *testing.T) {
	_, err := testenv.StartRocketMQ(t.Context(), testenv.Options{Args: []string{"brokerRole=SLAVE"}})
	require.ErrorContains(t, err, "rocketmq-broker")
	require.ErrorContains(t, err, "ended while starting")
	require.ErrorContains(t, err, "brokerId must be > 0")
}

func TestAFolderOfTheCallersKeepsItsRocketMQ(t *testing.T) {
	options := testenv.Options{Dir: t.TempDir(), Durable: true}
	c, err := testenv.StartRocketMQ(t.Context(), options)
	require.NoError(t, err)
	topic := c.Topic(t, 1)
	conf, err := os.ReadFile(filepath.Join(c.Broker.Dir(), "conf", "broker.conf"))
	require.NoError(t, err)
	require.Contains(t, string(conf), "flushDiskType=SYNC_FLUSH")
	require.NoError(t, c.Close())

	again, err := testenv.StartRocketMQ(t.Context(), options)
	require.NoError(t, err)
	_, err = again.Client(t).Route(t.Context(), topic)
	require.NoError(t, err)
	require.NoError(t, again.Broker.Kill(), "its polite end takes seconds, and was tried above")
	require.NoError(t, again.Close())
}
