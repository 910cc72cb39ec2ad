package rocketmq_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// recovered is what everything must work again within after an outage.
const recovered = time.Minute

// place is a publisher and a member of a group behind a link of their own.
type place struct {
	room   *room
	link   *link
	driver *rocketmq.Driver
	group  string
	mu     sync.Mutex
	got    map[string]int
}

func newPlace(t *testing.T) *place {
	t.Helper()
	c := testenv.RocketMQ(t)
	p := &place{room: newRoom(t, c), link: newLink(t, c), got: map[string]int{}}
	p.group = eventbus.Group(p.room.country, "push_dispatch")
	p.room.group(t, p.group)
	p.driver = p.room.driver(t, p.room.quick(p.link.addr()))
	s := subscribe(t, p.driver, p.room.topic(), p.group, nil, func(_ context.Context, d driver.Delivery) driver.Outcome {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.got[d.Key]++
		return driver.Outcome{Verdict: driver.Done}
	})
	testenv.Eventually(t, time.Minute, "it is served", func() bool { ok, _ := s.state(); return ok })
	p.passes(t, "before")
	return p
}

// passes publishes one event, again and again until it is confirmed, and waits until
// it has been delivered.
func (p *place) passes(t *testing.T, key string) {
	t.Helper()
	began := time.Now()
	testenv.Eventually(t, 3*recovered, key+": it is confirmed", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		res := p.driver.Send(ctx, []driver.Message{{Topic: p.room.topic(), Tag: "KIT_A", Key: key, Body: []byte("{}")}})
		require.NotEqual(t, driver.Refused, res[0].Status, "%v", res[0].Err)
		return res[0].Status == driver.Confirmed
	})
	sent := time.Since(began)
	testenv.Eventually(t, 3*recovered, key+": it is delivered", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.got[key] > 0
	})
	t.Logf("%s: confirmed after %s, delivered after %s", key, sent.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

// With nothing else going on: an event that is published while name server or broker is
// away, in whatever way, goes out by itself, and a member that had nothing to do gets it.
func TestAnIdleSystemRecoversFromEachOutage(t *testing.T) {
	t.Parallel()
	away := 4 * time.Second
	if testenv.Soaking() {
		away = 2 * time.Minute
	}
	for name, fault := range map[string]func(l *link) (begin, end func()){
		"name server refuses": func(l *link) (func(), func()) { return l.names.Cut, l.names.Restore },
		"name server silent":  func(l *link) (func(), func()) { return l.names.Stall, l.names.Restore },
		"broker refuses":      func(l *link) (func(), func()) { return l.broker.Cut, l.broker.Restore },
		"broker silent":       func(l *link) (func(), func()) { return l.broker.Stall, l.broker.Restore },
		"all silent":          func(l *link) (func(), func()) { return l.Stall, l.Restore },
		"connections reset":   func(l *link) (func(), func()) { return l.Drop, func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			begin, end := fault(p.link)
			begin()
			time.Sleep(away) // the outage's length
			end()
			p.passes(t, "after")
		})
	}
}

// A broker that is started elsewhere, as a pod is, is found without a restart of ours.
func TestABrokerThatMovesIsFollowed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	old := p.link.broker
	p.link.move(t, brokerAddr(t, p.room.cluster))
	old.Cut()
	p.passes(t, "moved")
}

// Queues that a topic gets later, with a new broker or without, are written to and read.
func TestAddedQueuesAreServed(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.room.cluster.MakeTopic(t, p.room.topic(), 2*queues)
	ask := p.room.cluster.Client(t)
	n := 0
	testenv.Eventually(t, 3*recovered, "the group has finished messages on all queues", func() bool {
		var msgs []driver.Message
		for range 4 * queues {
			msgs = append(msgs, driver.Message{Topic: p.room.topic(), Tag: "KIT_A", Key: fmt.Sprint("k", n), Body: []byte("{}")})
			n++
		}
		p.driver.Send(t.Context(), msgs)
		time.Sleep(200 * time.Millisecond) // not more than it takes
		route, err := ask.Route(t.Context(), p.room.topic())
		require.NoError(t, err)
		for _, q := range route {
			if done, err := ask.GroupOffset(t.Context(), q, p.group); err != nil || done.N == 0 {
				return false
			}
		}
		return len(route) == 2*queues
	})
}

// A member that wants other tags, here another program, did not look before it came:
// that shows. The broker keeps one subscription of the group, the latest one; the member
// whose subscription it is not tells.
func TestMembersThatWantOtherTagsAreTold(t *testing.T) {
	t.Parallel()
	c := testenv.RocketMQ(t)
	r := newRoom(t, c)
	group := eventbus.Group(r.country, "push_dispatch")
	r.group(t, group)
	reg := prometheus.NewRegistry()
	s := subscribe(t, r.driver(t, r.quick(c.Addr()), reg), r.topic(), group, []string{"KIT_A"}, done)
	testenv.Eventually(t, time.Minute, "it is served", func() bool { ok, _ := s.state(); return ok })
	mixed := func(want int) func() bool {
		text := fmt.Sprintf(`
# HELP seahub_rocketmq_group_mixed_tags 1 while members of the group subscribe to different tags: the broker then filters events away from members that want them.
# TYPE seahub_rocketmq_group_mixed_tags gauge
seahub_rocketmq_group_mixed_tags{consumer_group="%s"} %d
`, group, want)
		return func() bool {
			return testutil.GatherAndCompare(reg, strings.NewReader(text), "seahub_rocketmq_group_mixed_tags") == nil
		}
	}
	testenv.Eventually(t, time.Minute, "all want the same", mixed(0))
	other, err := client.NewPushConsumer(
		consumer.WithNameServer([]string{c.Addr()}), consumer.WithGroupName(group), consumer.WithInstance("other-"+r.country),
		consumer.WithCredentials(primitive.Credentials{AccessKey: c.Admin.AccessKey, SecretKey: c.Admin.SecretKey}))
	require.NoError(t, err)
	want := func() {
		require.NoError(t, other.Subscribe(r.topic(), consumer.MessageSelector{Type: consumer.TAG, Expression: "KIT_B"},
			func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
				return consumer.ConsumeRetryLater, nil
			}))
	}
	want()
	require.NoError(t, other.Start())
	t.Cleanup(func() { _ = other.Shutdown() })
	testenv.Eventually(t, time.Minute, "the other is a member", func() bool {
		members, err := c.Client(t).Members(t.Context(), r.topic(), group)
		return err == nil && len(members) == 2
	})
	time.Sleep(time.Second) // members that share anew make their subscription the latest
	want()
	testenv.Eventually(t, 2*time.Minute, "the difference shows", mixed(1)) // told by a heartbeat, one in 30 s
}

// Handlers that fail by the hundred, on all queues at once, while the client logs each:
// it stays in one piece, and all of it ends when they succeed.
func TestAStormOfFailuresEndsWithThem(t *testing.T) {
	r := newFakeRig(t)
	const n = 200
	results, _ := r.send(t, n, 30*time.Second)
	all(t, results, driver.Confirmed)
	var failing atomic.Bool
	var failures, successes atomic.Int32
	failing.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- r.driver.Run(ctx, driver.Subscription{Topic: fakeTopic, Group: "GID_id_push_dispatch", Concurrency: 16, DrainTimeout: time.Second},
			func(context.Context, driver.Delivery) driver.Outcome {
				if failing.Load() {
					failures.Add(1)
					return driver.Outcome{Verdict: driver.Retry}
				}
				successes.Add(1)
				return driver.Outcome{Verdict: driver.Done}
			})
	}()
	testenv.Eventually(t, time.Minute, "each has failed several times", func() bool { return failures.Load() > 10*n })
	failing.Store(false)
	testenv.Eventually(t, time.Minute, "all succeed", func() bool { return successes.Load() >= n })
	cancel()
	require.NoError(t, <-ended)
}

// A polite stop tells the broker of everything that is done, so that the next member
// repeats none of it. What the client's own Shutdown tells is lost with its connection.
func TestAStopTellsHowFarItWas(t *testing.T) {
	t.Parallel()
	c := testenv.RocketMQ(t)
	r := newRoom(t, c)
	group := eventbus.Group(r.country, "push_dispatch")
	r.group(t, group)
	d := r.driver(t, r.quick(c.Addr()))
	ask := c.Client(t)
	for round := range 5 {
		const n = 500
		msgs := make([]driver.Message, n)
		for i := range msgs {
			msgs[i] = driver.Message{Topic: r.topic(), Tag: "KIT_A", Key: fmt.Sprintf("k%d-%d", round, i), Body: []byte("{}")}
		}
		for _, res := range d.Send(t.Context(), msgs) {
			require.Equal(t, driver.Confirmed, res.Status, "%v", res.Err)
		}
		var handled atomic.Int32
		all := make(chan struct{})
		s := subscribe(t, d, r.topic(), group, nil, func(context.Context, driver.Delivery) driver.Outcome {
			if handled.Add(1) == n {
				close(all)
			}
			return driver.Outcome{Verdict: driver.Done}
		})
		select {
		case <-all:
		case <-time.After(recovered):
			t.Fatalf("round %d: %d of %d were delivered", round, handled.Load(), n)
		}
		s.end(t)
		backlog, err := ask.Backlog(t.Context(), r.topic(), group)
		require.NoError(t, err)
		require.EqualValues(t, 0, backlog.Waiting.N, "round %d", round)
		require.EqualValues(t, n, handled.Load(), "round %d: none is repeated", round)
	}
}
