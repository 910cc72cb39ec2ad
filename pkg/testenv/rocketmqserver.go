package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

// RocketMQVersion4 is the line that production runs, RocketMQVersion5 the one
// after it.
const (
	RocketMQVersion4 = "4.9.7"
	RocketMQVersion5 = "5.5.0"
)

const (
	rocketmqReadyTimeout = 2 * time.Minute // two JVMs beside everything else that tests do
	// A broker that is warming up on a busy machine takes seconds to answer.
	rocketmqCallTimeout = 15 * time.Second
	// brokerDistance is from a fixed port of the name server to the broker's.
	brokerDistance = 10
	// brokerName is the name of the broker, and of a topic that every broker makes.
	brokerName = "broker-a"
)

// brokerBeside: a broker takes a port for clients that must not be delayed and one
// for its replicas.
var brokerBeside = []int{-2, 1}

// RocketMQCluster is a name server with one broker. Topics and groups are made by
// hand (auto-create is off), requests are signed.
type RocketMQCluster struct {
	NameServer, Broker *Server
	Version            string

	// Admin may do all. Publisher may write topics, Consumer may read them by
	// any group. Stranger has a key that is known and no permission.
	Admin, Publisher, Consumer, Stranger remoting.Account

	dir  string
	temp *tempDir // nil: the caller named dir
}

// StartRocketMQ starts a private name server and broker and waits until the broker
// is registered. The caller closes the cluster. Options.Port is the name server's,
// a fixed one has the broker ten above it; Options.Args are lines of broker.conf.
func StartRocketMQ(ctx context.Context, options Options) (*RocketMQCluster, error) {
	c := &RocketMQCluster{Version: options.Version, dir: options.Dir}
	c.useOwnAccounts()
	if c.Version == "" {
		c.Version = RocketMQVersion4
	}
	if _, _, err := c.java(); err != nil {
		return nil, err
	}
	var err error
	if c.dir == "" {
		if c.temp, err = newTempDir(); err != nil {
			return nil, fmt.Errorf("testenv: start RocketMQ: %w", err)
		}
		c.dir = c.temp.path
	}
	if err := c.start(ctx, options); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *RocketMQCluster) start(ctx context.Context, options Options) (err error) {
	one := Options{ReadyTimeout: options.ReadyTimeout, Durable: options.Durable, discard: c.temp != nil}
	if one.ReadyTimeout == 0 {
		one.ReadyTimeout = rocketmqReadyTimeout
	}
	nameServer, broker := one, one
	nameServer.Dir, broker.Dir = filepath.Join(c.dir, "namesrv"), filepath.Join(c.dir, "broker")
	if options.Port != 0 {
		nameServer.Port, broker.Port = options.Port, options.Port+brokerDistance
	}
	c.NameServer, err = start(ctx, engine{
		kind:     KindNameServer,
		prepare:  func(_ context.Context, s *Server) error { return c.writeNameServerConf(s) },
		command:  c.nameServerCommand,
		identify: c.identifyNameServer,
	}, nameServer)
	if err != nil {
		return err
	}
	c.Broker, err = start(ctx, engine{
		kind:     KindBroker,
		beside:   brokerBeside,
		prepare:  func(_ context.Context, s *Server) error { return c.writeBrokerConf(s, options.Args) },
		command:  c.brokerCommand,
		identify: c.identifyBroker,
	}, broker)
	return err
}

// Addr is host:port of the name server.
func (c *RocketMQCluster) Addr() string { return c.NameServer.Addr() }

// Close ends both servers and removes their folder unless the caller named it.
func (c *RocketMQCluster) Close() error {
	var errs []error
	for _, s := range []*Server{c.Broker, c.NameServer} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	if c.temp != nil {
		errs = append(errs, c.temp.remove())
		c.temp = nil
	}
	return errors.Join(errs...)
}

// java returns the Java binary and the class path of this version.
func (c *RocketMQCluster) java() (path, classes string, err error) {
	path, err = exec.LookPath("java")
	if err != nil {
		return "", "", missing("Java", "default-jre-headless", err)
	}
	cache, err := CacheDir()
	if err != nil {
		return "", "", err
	}
	lib := filepath.Join(cache, "rocketmq", c.Version, "lib")
	if !isDir(lib) {
		return "", "", fmt.Errorf("RocketMQ %s is not in %s: run `make deps`, or `dev/rocketmq-fetch.sh %s`: %w",
			c.Version, cache, c.Version, os.ErrNotExist)
	}
	return path, filepath.Join(lib, "*"), nil
}

// javaCommand is the command line of one of RocketMQ's programs. home is where it
// reads conf/ and writes all that it writes.
func (c *RocketMQCluster) javaCommand(home string, flags []string, main string, args ...string) (string, []string, error) {
	path, classes, err := c.java()
	if err != nil {
		return "", nil, err
	}
	argv := []string{
		path,
		"-Drocketmq.home.dir=" + home, "-Duser.home=" + home,
		"-Drocketmq.client.logUseSlf4j=false", "-Drocketmq.client.logRoot=" + filepath.Join(home, "logs"),
		"-Djava.net.preferIPv4Stack=true", "-Xshare:auto", "-XX:+UseSerialGC", "-Xss512k",
		// Without these version 4 can't unmap its files, its shutdown hook fails, and
		// the next start finds an unclean end.
		"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
		"--add-exports=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
	}
	argv = append(argv, flags...)
	return path, append(append(argv, "-cp", classes, main), args...), nil
}

func (c *RocketMQCluster) nameServerCommand(s *Server) (string, []string, error) {
	return c.javaCommand(s.dir, []string{"-Xms32m", "-Xmx128m", "-XX:TieredStopAtLevel=1"},
		"org.apache.rocketmq.namesrv.NamesrvStartup", "-c", confPath(s, "namesrv.conf"))
}

func (c *RocketMQCluster) brokerCommand(s *Server) (string, []string, error) {
	return c.javaCommand(s.dir, []string{
		"-Xms128m", "-Xmx384m", "-XX:MaxDirectMemorySize=256m",
		// The disk guard looks at the whole disk, which others fill: by default every
		// send fails above 90 %.
		"-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
		"-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
	}, "org.apache.rocketmq.broker.BrokerStartup", "-c", confPath(s, "broker.conf"))
}

// identifyNameServer: it answers when it can say that it does not know a topic.
func (c *RocketMQCluster) identifyNameServer(ctx context.Context, s *Server, pid int) error {
	if err := listens(pid, s.port.number); err != nil {
		return err
	}
	client, err := c.client(s.addr)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Route(ctx, "no-such-topic"); !errors.Is(err, remoting.ErrTopicMissing) {
		return fmt.Errorf("it does not answer yet: %w", err)
	}
	return nil
}

// identifyBroker: it is ready when it answers and, unless a test has ended the name
// server, when that one leads clients to it.
func (c *RocketMQCluster) identifyBroker(ctx context.Context, s *Server, pid int) error {
	for _, distance := range append(slices.Clone(brokerBeside), 0) {
		if err := listens(pid, s.port.number+distance); err != nil {
			return err
		}
	}
	client, err := c.client(c.Addr())
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.MinOffset(ctx, remoting.Queue{Topic: brokerName, Broker: brokerName, Addr: s.addr}); err != nil {
		return fmt.Errorf("it does not answer yet: %w", err)
	}
	if c.NameServer.Pid() == 0 {
		return nil
	}
	queues, err := client.Route(ctx, brokerName)
	if err != nil {
		return fmt.Errorf("it is not registered yet: %w", err)
	}
	if queues[0].Addr != s.addr {
		return fmt.Errorf("the name server knows it at %s, not yet at %s", queues[0].Addr, s.addr)
	}
	return nil
}

// client asks as the admin.
func (c *RocketMQCluster) client(nameServer string) (*remoting.Client, error) {
	return remoting.New(remoting.Config{NameServers: []string{nameServer}, Account: c.Admin, CallTimeout: rocketmqCallTimeout})
}

func confPath(s *Server, name string) string { return filepath.Join(s.dir, "conf", name) }

func portText(s *Server) string { return strconv.Itoa(s.port.number) }
