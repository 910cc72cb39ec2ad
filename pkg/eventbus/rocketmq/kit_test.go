package rocketmq_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/eventbustest"
	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq"
	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// TestMain lets more tests wait side by side than there are processors: waiting for
// retries and reconnects is what they do.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	if err := logs.take(); err != nil {
		panic(err)
	}
	testenv.Main(m, testenv.IgnoreLeaks(
		// A connection that the client dials after it was shut down ends with its own
		// read timeout, two minutes later.
		goleak.IgnoreAnyFunction("github.com/apache/rocketmq-client-go/v2/internal/remote.(*remotingClient).receiveResponse")))
}

// queues are enough for three members, and few to ask about.
const queues = 4

// room is a scenario's place on a cluster.
type room struct {
	cluster *testenv.RocketMQCluster
	country string
	groups  sync.Map
}

func newRoom(t testing.TB, c *testenv.RocketMQCluster) *room {
	t.Helper()
	r := &room{cluster: c, country: country(t)}
	c.MakeTopic(t, r.topic(), queues)
	return r
}

// country is a name that no other test has, short enough for a topic's.
func country(t testing.TB) string {
	t.Helper()
	dir := t.TempDir() // unique in the process; others are told apart by the pid
	parts := strings.Split(dir, string(os.PathSeparator))
	name := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(strings.Join(parts[len(parts)-2:], "")))
	return name[max(0, len(name)-40):]
}

func (r *room) topic() string { return eventbus.Topic(r.country) }

// quick makes everything fast that a test waits for.
func (r *room) quick(nameServer string) rocketmq.Config {
	return rocketmq.Config{
		NameServers: []string{nameServer}, AccessKey: r.cluster.Admin.AccessKey, SecretKey: r.cluster.Admin.SecretKey,
		SendTimeout: 8 * time.Second, CallTimeout: 4 * time.Second, WatchEvery: 500 * time.Millisecond, StuckAfter: 10 * time.Second,
	}
}

func (r *room) driver(t testing.TB, cfg rocketmq.Config, reg ...prometheus.Registerer) *rocketmq.Driver {
	t.Helper()
	o := rocketmq.Options{Country: r.country, Logger: zerolog.New(&logs)}
	if len(reg) > 0 {
		o.Registerer = reg[0]
	}
	d, err := rocketmq.New(cfg, o)
	if err != nil {
		t.Fatalf("make the driver: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = d.Close(ctx)
	})
	return d
}

// group makes a group once.
func (r *room) group(t testing.TB, name string) {
	t.Helper()
	if _, made := r.groups.LoadOrStore(name, true); !made {
		r.cluster.MakeGroup(t, name)
	}
}

// stored counts what the broker has on the room's topic, once that is at rest: it
// confirms a message before its queue shows it.
func (r *room) stored(t testing.TB) int {
	t.Helper()
	client := r.cluster.Client(t)
	last := int64(-1)
	for {
		route, err := client.Route(context.Background(), r.topic())
		if err != nil {
			t.Fatalf("find the topic: %v", err)
		}
		total := int64(0)
		for _, q := range route {
			n, err := client.MaxOffset(context.Background(), q)
			if err != nil {
				t.Fatalf("count the topic: %v", err)
			}
			total += n
		}
		if total == last {
			return int(total)
		}
		last = total
		time.Sleep(100 * time.Millisecond)
	}
}

func TestConformance(t *testing.T) {
	for _, version := range testenv.RocketMQVersions() {
		t.Run(version, func(t *testing.T) {
			for n := range testenv.Scale(1, 5) {
				// Of its own: parallel scenarios begin when the test around them returns.
				t.Run(fmt.Sprint("round ", n+1), func(t *testing.T) { conformance(t, version) })
			}
		})
	}
}

const forgotten = "topics are made by a person: a deleted one is an outage until it is made again (TestATopicThatIsMadeAgainIsServed)"

func conformance(t *testing.T, version string) {
	eventbustest.Run(t, eventbustest.Harness{
		Lease: time.Second,
		// A broker takes seconds to start, and many on a busy machine.
		Patience: 3 * time.Minute,
		Traits: eventbustest.Traits{
			OnlyBacklog: true, RepeatsOnRebalance: true, KeepsShareUntilDrained: true,
			GoroutinesPerStart: 25,
		},
		// On a busy machine a look at the group, some twenty questions, takes seconds, and
		// handlers must not be over before it.
		Tune: func(c *eventbus.Config) { c.WatchEvery, c.HandlerTimeout = 3*time.Second, time.Minute },
		Cannot: map[string]string{
			"TopicForgotten":     forgotten,
			"ForgottenInMidLoad": forgotten,
		},
		Room: func(t testing.TB, ownBroker bool) *eventbustest.Room {
			out := &eventbustest.Room{Env: "id-test"}
			var r *room
			if ownBroker {
				r = newRoom(t, testenv.PrivateRocketMQ(t, testenv.Options{Version: version}))
				out.Broker = broker{r.cluster.Broker}
			} else {
				r = newRoom(t, testenv.RocketMQOf(t, version))
			}
			out.Country = r.country
			out.Group = r.group
			out.Open = func(t testing.TB) (eventbus.Parts, eventbustest.Link) {
				link := newLink(t, r.cluster)
				d := r.driver(t, r.quick(link.addr()))
				return eventbus.Parts{Sender: d, Receiver: d, Inspector: d, Provisioner: d}, link
			}
			out.Stored = r.stored
			return out
		},
	})
}

// broker treats the scenario's own broker badly; the name server stays.
type broker struct{ server *testenv.Server }

func (b broker) must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b broker) Stop(t testing.TB)   { b.must(t, b.server.Stop(context.Background())) }
func (b broker) Kill(t testing.TB)   { b.must(t, b.server.Kill()) }
func (b broker) Start(t testing.TB)  { b.must(t, b.server.Start(context.Background())) }
func (b broker) Freeze(t testing.TB) { b.must(t, b.server.Freeze()) }
func (b broker) Thaw(t testing.TB)   { b.must(t, b.server.Thaw()) }

// link is the way to a name server and to the broker that it names: clients dial that
// one directly, so the answer that names it is rewritten on the way.
type link struct {
	names, broker *eventbustest.Proxy
	// at is where the name server says that the broker is.
	at *atomic.Pointer[string]
}

func newLink(t testing.TB, c *testenv.RocketMQCluster) *link {
	t.Helper()
	brokerAddr := brokerAddr(t, c)
	l := &link{at: &atomic.Pointer[string]{}}
	l.move(t, brokerAddr)
	l.names = eventbustest.NewProxy(t, rewriter(t, c.Addr(), brokerAddr, l.at))
	return l
}

func brokerAddr(t testing.TB, c *testenv.RocketMQCluster) string {
	t.Helper()
	if addr := c.Broker.Addr(); addr != "" {
		return addr
	}
	// A cluster that another process started.
	route, err := c.Client(t).Route(context.Background(), brokerTopic)
	if err != nil {
		t.Fatalf("find the broker: %v", err)
	}
	return route[0].Addr
}

// brokerTopic is a topic that every broker of testenv has.
const brokerTopic = "broker-a"

func (l *link) addr() string { return l.names.Addr() }

// move gives the broker a new address.
func (l *link) move(t testing.TB, brokerAddr string) {
	l.broker = eventbustest.NewProxy(t, brokerAddr)
	at := l.broker.Addr()
	l.at.Store(&at)
}

func (l *link) Drop()    { l.names.Drop(); l.broker.Drop() }
func (l *link) Cut()     { l.names.Cut(); l.broker.Cut() }
func (l *link) Stall()   { l.names.Stall(); l.broker.Stall() }
func (l *link) Restore() { l.names.Restore(); l.broker.Restore() }

// rewriter forwards to a name server and puts another address in the place of the
// broker's; it returns its own.
func rewriter(t testing.TB, nameServer, from string, to *atomic.Pointer[string]) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the rewriter: %v", err)
	}
	var loops sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	closed := false
	hold := func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		open[c] = true
		return !closed
	}
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		closed = true
		for c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		loops.Wait()
	})
	serve := func(client net.Conn) {
		defer client.Close()
		server, err := net.Dial("tcp", nameServer)
		if err != nil {
			return
		}
		defer server.Close()
		if !hold(client) || !hold(server) {
			return
		}
		questions, answers := bufio.NewReader(client), bufio.NewReader(server)
		for {
			q, err := remoting.ReadCommand(questions)
			if err != nil || remoting.WriteCommand(server, q) != nil {
				return
			}
			a, err := remoting.ReadCommand(answers)
			if err != nil {
				return
			}
			a.Body = bytes.ReplaceAll(a.Body, []byte(from), []byte(*to.Load()))
			if remoting.WriteCommand(client, a) != nil {
				return
			}
		}
	}
	loops.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			loops.Go(func() { serve(c) })
		}
	})
	return listener.Addr().String()
}
