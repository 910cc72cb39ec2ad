package rocketmq_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// shareWithin is how soon after a member has left its share is another's.
const shareWithin = 2 * time.Second

// load keeps a little work in every queue of a topic, and remembers who did it.
type load struct {
	mu sync.Mutex
	// begun and finished count each queue's messages.
	begun, finished [queues]int
	runs            map[string]int // by key
	last            [queues]map[string]time.Time
	failures        []string
}

// ahead is how many messages of a queue may be unfinished.
const ahead = 20

// start sends until the returned function is called.
func (l *load) start(t *testing.T, r *room) (stop func()) {
	t.Helper()
	p, err := client.NewProducer(
		producer.WithNameServer([]string{r.cluster.Addr()}), producer.WithInstanceName("load-"+r.country), producer.WithRetry(0),
		producer.WithCredentials(primitive.Credentials{AccessKey: r.cluster.Admin.AccessKey, SecretKey: r.cluster.Admin.SecretKey}),
		producer.WithQueueSelector(producer.NewManualQueueSelector()))
	require.NoError(t, err)
	require.NoError(t, p.Start())
	ctx, cancel := context.WithCancel(context.Background())
	var senders sync.WaitGroup
	for q := range queues {
		senders.Go(func() {
			for ctx.Err() == nil {
				if n, ok := l.next(q); ok {
					m := primitive.NewMessage(r.topic(), []byte("{}")).WithTag("KIT_A").WithKeys([]string{fmt.Sprintf("%d-%d", q, n)})
					m.Queue = &primitive.MessageQueue{Topic: r.topic(), BrokerName: brokerTopic, QueueId: q}
					if _, err := p.SendSync(context.Background(), m); err != nil {
						t.Errorf("send to queue %d: %v", q, err)
						return
					}
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		senders.Wait()
		_ = p.Shutdown()
	})
	t.Cleanup(stop)
	return stop
}

func (l *load) next(queue int) (n int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun[queue]-l.finished[queue] >= ahead {
		return 0, false
	}
	l.begun[queue]++
	return l.begun[queue], true
}

// handler is a member's, which takes a moment for each message.
func (l *load) handler(member string) driver.Handle {
	return func(_ context.Context, d driver.Delivery) driver.Outcome {
		time.Sleep(10 * time.Millisecond)
		var queue, n int
		_, err := fmt.Sscanf(d.Key, "%d-%d", &queue, &n)
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil || d.Attempt != 1 {
			l.failures = append(l.failures, fmt.Sprintf("%q came as attempt %d to %s", d.Key, d.Attempt, member))
		}
		if l.runs[d.Key]++; l.runs[d.Key] == 1 {
			l.finished[queue]++
		}
		l.last[queue][member] = time.Now()
		return driver.Outcome{Verdict: driver.Done}
	}
}

func newLoad() *load {
	l := &load{runs: map[string]int{}}
	for q := range l.last {
		l.last[q] = map[string]time.Time{}
	}
	return l
}

// owners tells who worked on each queue since a time; false if that is nobody on one of
// them, or more than one.
func (l *load) owners(since time.Time) (owners [queues]string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for q, last := range l.last {
		for member, at := range last {
			if at.Before(since) {
				continue
			}
			if owners[q] != "" {
				return owners, false
			}
			owners[q] = member
		}
		if owners[q] == "" {
			return owners, false
		}
	}
	return owners, true
}

// served tells who worked on each queue since a time, and whether each was worked on.
func (l *load) served(since time.Time) (members [queues][]string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok = true
	for q, last := range l.last {
		for member, at := range last {
			if at.After(since) {
				members[q] = append(members[q], member)
			}
		}
		ok = ok && len(members[q]) > 0
	}
	return members, ok
}

// settled waits until the queues are shared by that many members.
func (l *load) settled(t *testing.T, members int) (owners [queues]string) {
	t.Helper()
	testenv.Eventually(t, recovered, "the queues are shared", func() bool {
		since := time.Now()
		time.Sleep(time.Second) // a rebalance under way would show
		var ok bool
		owners, ok = l.owners(since)
		distinct := map[string]bool{}
		for _, m := range owners {
			distinct[m] = true
		}
		return ok && len(distinct) == members
	})
	return owners
}

// repeats counts runs beyond the first.
func (l *load) repeats() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, runs := range l.runs {
		n += runs - 1
	}
	return n
}

func (l *load) failed() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failures)
}

func (l *load) unfinished() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for q := range queues {
		n += l.begun[q] - l.finished[q]
	}
	return n
}

// Of three members under load one leaves: its queues are its siblings' soon after, all of
// them, and no event has spent an attempt. Then one more leaves.
func TestASiblingHasTheShareSoonAfterAStop(t *testing.T) {
	t.Parallel()
	c := testenv.RocketMQ(t)
	r := newRoom(t, c)
	group := eventbus.Group(r.country, "push_dispatch")
	r.group(t, group)
	l := newLoad()
	stopLoad := l.start(t, r)
	members := map[string]*subscriber{}
	for _, name := range []string{"a", "b", "c"} {
		members[name] = subscribe(t, r.driver(t, r.quick(c.Addr())), r.topic(), group, nil, l.handler(name))
	}
	for len(members) > 1 {
		owners := l.settled(t, len(members))
		leaver, before := owners[0], l.repeats()
		called := time.Now()
		members[leaver].end(t)
		gone := time.Now()
		delete(members, leaver)
		now, ok := l.served(gone)
		for !ok && time.Since(gone) < 3*shareWithin { // three times what is promised
			time.Sleep(5 * time.Millisecond)
			now, ok = l.served(gone)
		}
		took := time.Since(gone)
		t.Logf("%s of %v has left after %s; %s later its siblings have worked on %v; %d events ran again",
			leaver, owners, gone.Sub(called).Round(time.Millisecond), took.Round(time.Millisecond), now, l.repeats()-before)
		require.True(t, ok, "each queue is a sibling's")
		for _, members := range now {
			require.NotContains(t, members, leaver, "a callback ran after the member had gone")
		}
	}
	stopLoad()
	require.Empty(t, l.failed(), "a stop spends no attempt")
	testenv.Eventually(t, recovered, "all is done", func() bool { return l.unfinished() == 0 })
	require.Empty(t, l.failed(), "a stop spends no attempt")
}

// A callback under way when the member stops goes on for all of the drain time, and is
// told when that is over; the event comes to a sibling as if it had not been tried.
func TestACallbackIsCutAtTheDrainTimeAndNotBefore(t *testing.T) {
	t.Parallel()
	const drain = 3 * time.Second
	c := testenv.RocketMQ(t)
	r := newRoom(t, c)
	group := eventbus.Group(r.country, "push_dispatch")
	r.group(t, group)
	d := r.driver(t, r.quick(c.Addr()))
	const n = 4
	var msgs []driver.Message
	for i := range n {
		msgs = append(msgs, driver.Message{Topic: r.topic(), Tag: "KIT_A", Key: fmt.Sprint("k", i), Body: []byte("{}")})
	}
	for _, res := range d.Send(t.Context(), msgs) {
		require.Equal(t, driver.Confirmed, res.Status, "%v", res.Err)
	}
	running, cut := make(chan struct{}, n), make(chan time.Time, n)
	s := subscribe(t, d, r.topic(), group, nil, func(ctx context.Context, _ driver.Delivery) driver.Outcome {
		running <- struct{}{}
		<-ctx.Done()
		cut <- time.Now()
		return driver.Outcome{Verdict: driver.Retry, Err: ctx.Err()}
	}, func(sub *driver.Subscription) { sub.DrainTimeout, sub.HandlerTimeout = drain, 10*time.Minute })
	for range n {
		select {
		case <-running:
		case <-time.After(recovered):
			t.Fatal("a callback does not run")
		}
	}
	stopped := time.Now()
	s.end(t)
	for range n {
		at := (<-cut).Sub(stopped)
		t.Logf("cut %s after the stop", at.Round(time.Millisecond))
		require.GreaterOrEqual(t, at, drain)
	}
	attempts := make(chan int, n)
	subscribe(t, d, r.topic(), group, nil, func(_ context.Context, d driver.Delivery) driver.Outcome {
		attempts <- d.Attempt
		return driver.Outcome{Verdict: driver.Done}
	})
	for range n {
		select {
		case a := <-attempts:
			require.Equal(t, 1, a)
		case <-time.After(recovered):
			t.Fatal("an event does not come again")
		}
	}
}

// A callback that goes on after the end of its context, as one does that stores a dead
// letter, is waited for as long as a callback may take: its outcome counts.
func TestACallbackThatIsLateIsWaitedFor(t *testing.T) {
	t.Parallel()
	const late = 11 * time.Second
	c := testenv.RocketMQ(t)
	r := newRoom(t, c)
	group := eventbus.Group(r.country, "push_dispatch")
	r.group(t, group)
	d := r.driver(t, r.quick(c.Addr()))
	publish(t, d, r.topic(), "KIT_A", 1)
	var runs atomic.Int32
	running := make(chan struct{}, 1)
	s := subscribe(t, d, r.topic(), group, nil, func(ctx context.Context, _ driver.Delivery) driver.Outcome {
		runs.Add(1)
		running <- struct{}{}
		<-ctx.Done()
		time.Sleep(late)
		return driver.Outcome{Verdict: driver.Dead}
	}, func(sub *driver.Subscription) { sub.DrainTimeout, sub.HandlerTimeout = 100*time.Millisecond, 5*late })
	select {
	case <-running:
	case <-time.After(recovered):
		t.Fatal("the callback does not run")
	}
	s.end(t)
	g, err := d.Group(t.Context(), r.topic(), group)
	require.NoError(t, err)
	require.Equal(t, driver.KnownCount(0), g.Backlog)
	require.EqualValues(t, 1, runs.Load())
}
