package redisstreams_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/eventbus/eventbustest"
	"github.com/seahub/seahub-mq/pkg/eventbus/redisstreams"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

const (
	group    = "GID_id_test"
	patience = 15 * time.Second
)

func (r room) publish(t testing.TB, d *redisstreams.Driver, n int, tag string) {
	t.Helper()
	msgs := make([]driver.Message, n)
	for i := range msgs {
		msgs[i] = driver.Message{Topic: r.topic(), Tag: tag, Key: fmt.Sprintf("%s:%d", strings.ToLower(tag), i), Body: []byte(`{"n":1}`)}
	}
	for _, res := range d.Send(t.Context(), msgs) {
		if res.Status != driver.Confirmed {
			t.Fatalf("publish: %s: %v", res.Status, res.Err)
		}
	}
}

// start runs a member until the returned function, or the test, ends it.
func (r room) start(t testing.TB, d *redisstreams.Driver, sub driver.Subscription, h driver.Handle) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	sub.Topic = r.topic()
	if sub.Group == "" {
		sub.Group = group
	}
	if sub.Concurrency == 0 {
		sub.Concurrency = 4
	}
	sub.HandlerTimeout, sub.DrainTimeout = 10*time.Second, time.Second
	sub.MinRetry, sub.MaxRetry = 50*time.Millisecond, 200*time.Millisecond
	go func() { done <- d.Run(ctx, sub, h) }()
	ended := false
	stop = func() {
		cancel()
		if ended {
			return
		}
		ended = true
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, driver.ErrHalted) {
				t.Errorf("Run returned %v", err)
			}
		case <-time.After(patience):
			t.Error("Run did not return")
		}
	}
	t.Cleanup(stop)
	return stop
}

func ack(context.Context, driver.Delivery) driver.Outcome {
	return driver.Outcome{Verdict: driver.Done}
}

// metric is the sum over the series that have these label values.
func metric(t testing.TB, reg *prometheus.Registry, name string, values ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				left := len(values)
				for _, l := range m.GetLabel() {
					if slices.Contains(values, l.GetValue()) {
						left--
					}
				}
				if left == 0 {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

func (r room) state(t testing.TB, d *redisstreams.Driver) driver.GroupState {
	t.Helper()
	s, err := d.Group(t.Context(), r.topic(), group)
	if err != nil && !errors.Is(err, redisstreams.ErrNoGroup) { // its first member may be on the way
		t.Fatal(err)
	}
	return s
}

// An event whose handler kills its process is delivered a bounded number of times
// before the deaths count as attempts.
func TestDeathsBeyondTheSlackSpendAttempts(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	d := r.driver(t, quick(r.server.Addr))
	c := r.server.Client(t)
	if err := d.Ensure(t.Context(), r.topic(), []string{group}); err != nil {
		t.Fatal(err)
	}
	r.publish(t, d, 1, "A")
	// A member that died for the eighth time with it.
	read, err := c.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: group, Consumer: "ghost", Streams: []string{r.stream(), ">"}, Count: 1, Block: -1}).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Do(t.Context(), "XCLAIM", r.stream(), group, "ghost", 0, read[0].Messages[0].ID, "IDLE", 60_000, "RETRYCOUNT", 8, "JUSTID").Err(); err != nil {
		t.Fatal(err)
	}
	got := make(chan driver.Delivery, 1)
	r.start(t, d, driver.Subscription{}, func(_ context.Context, d driver.Delivery) driver.Outcome {
		got <- d
		return driver.Outcome{Verdict: driver.Done}
	})
	select {
	case d := <-got:
		// Nine deliveries, eight without a word, five forgiven.
		if d.Attempt != 4 {
			t.Errorf("it comes as attempt %d, want 4", d.Attempt)
		}
	case <-time.After(patience):
		t.Fatal("what a dead member held was not taken over")
	}
}

// A group that vanished is made again at the start of the stream, which is counted:
// somebody lost data.
func TestVanishedGroupIsMadeAgainAndCounted(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	reg := prometheus.NewRegistry()
	d := r.driver(t, quick(r.server.Addr), reg)
	var n atomic.Int64
	r.start(t, d, driver.Subscription{}, func(context.Context, driver.Delivery) driver.Outcome {
		n.Add(1)
		return driver.Outcome{Verdict: driver.Done}
	})
	r.publish(t, d, 5, "A")
	testenv.Eventually(t, patience, "five are handled", func() bool { return n.Load() == 5 })
	if v := metric(t, reg, "seahub_redis_group_recreated_total"); v != 0 {
		t.Errorf("the first making of the group counts as a loss: %v", v)
	}
	if err := r.server.Client(t).XGroupDestroy(t.Context(), r.stream(), group).Err(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, patience, "the new group gets everything that is still there", func() bool { return n.Load() == 10 })
	testenv.Eventually(t, patience, "the loss is counted", func() bool { return metric(t, reg, "seahub_redis_group_recreated_total") == 1 })
}

// The schedule of parked messages may be lost; the messages are not.
func TestParkedMessagesSurviveTheLossOfTheirSchedule(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	d := r.driver(t, quick(r.server.Addr))
	stop := r.start(t, d, driver.Subscription{}, func(context.Context, driver.Delivery) driver.Outcome {
		return driver.Outcome{Verdict: driver.Retry, After: time.Hour}
	})
	r.publish(t, d, 3, "A")
	testenv.Eventually(t, patience, "three are parked", func() bool { s := r.state(t, d); return s.Parked.N == 3 && s.InFlight.N == 0 })
	stop()
	if n, err := r.server.Client(t).Del(t.Context(), "{"+r.stream()+"}:due:"+group).Result(); err != nil || n != 1 {
		t.Fatalf("the schedule is not where it is documented: %d, %v", n, err)
	}
	var got atomic.Int64
	r.start(t, d, driver.Subscription{}, func(_ context.Context, d driver.Delivery) driver.Outcome {
		if d.Attempt == 2 {
			got.Add(1)
		}
		return driver.Outcome{Verdict: driver.Done}
	})
	testenv.Eventually(t, patience, "they are delivered as second attempts", func() bool { return got.Load() == 3 })
}

// Names of dead members go away, but never with a message on them.
func TestDeadNamesGoAwayAndTakeNothingWithThem(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	d := r.driver(t, quick(r.server.Addr))
	c := r.server.Client(t)
	if err := d.Ensure(t.Context(), r.topic(), []string{group}); err != nil {
		t.Fatal(err)
	}
	r.publish(t, d, 1, "A")
	if err := c.XGroupCreateConsumer(t.Context(), r.stream(), group, "empty-ghost").Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: group, Consumer: "full-ghost", Streams: []string{r.stream(), ">"}, Count: 1, Block: -1}).Err(); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	stop := r.start(t, d, driver.Subscription{}, func(_ context.Context, d driver.Delivery) driver.Outcome {
		got <- d.Key
		return driver.Outcome{Verdict: driver.Done}
	})
	select {
	case <-got:
	case <-time.After(patience):
		t.Fatal("the message of the dead member was lost")
	}
	names := func() (out []string) {
		consumers, err := c.XInfoConsumers(t.Context(), r.stream(), group).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range consumers {
			out = append(out, x.Name)
		}
		return out
	}
	testenv.Eventually(t, patience, "only the live member is left", func() bool { return len(names()) == 1 })
	stop()
	if left := names(); len(left) != 0 {
		t.Errorf("a polite leave leaves %v", left)
	}
}

// What the server says decides the status of a publish.
func TestPublishTellsWhatTheServerSays(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.PrivateRedis(t))
	d := r.driver(t, quick(r.server.Addr))
	c := r.server.Client(t)
	send := func() driver.Result {
		return d.Send(t.Context(), []driver.Message{{Topic: r.topic(), Tag: "A", Key: "k", Body: []byte("{}")}})[0]
	}
	check := func(when string, want driver.Status) {
		t.Helper()
		if res := send(); res.Status != want {
			t.Errorf("%s: %s, %v; want %s", when, res.Status, res.Err, want)
		}
	}
	set := func(name, value string) {
		t.Helper()
		if err := c.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	check("a healthy server", driver.Confirmed)
	set("maxmemory", "1")
	check("memory used up", driver.Throttled)
	set("maxmemory", "0")
	set("min-replicas-to-write", "1")
	check("too few replicas", driver.Unavailable)
	set("min-replicas-to-write", "0")
	check("healthy again", driver.Confirmed)
	if err := c.Del(t.Context(), r.stream()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Set(t.Context(), r.stream(), "not a stream", 0).Err(); err != nil {
		t.Fatal(err)
	}
	check("another type of key", driver.Unavailable)
	if err := c.Del(t.Context(), r.stream()).Err(); err != nil {
		t.Fatal(err)
	}
	// The password, given and missing.
	set("requirepass", "s3cret-of-the-test")
	cfg := quick(r.server.Addr)
	cfg.Password = "s3cret-of-the-test"
	d = r.driver(t, cfg)
	check("the right password", driver.Confirmed)
	cfg.Password = "wrong"
	d = r.driver(t, cfg)
	check("the wrong password", driver.Unavailable)
	if res := send(); strings.Contains(res.Err.Error(), "s3cret") || strings.Contains(res.Err.Error(), "wrong\"") {
		t.Errorf("the error tells a password: %v", res.Err)
	}
}

// A member that was cut off for longer than its lease stops working on what others
// have now, and acknowledges none of it.
func TestLostLeaseEndsTheHandlerAndAcksNothing(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	proxy := eventbustest.NewProxy(t, r.server.Addr)
	reg := prometheus.NewRegistry()
	cutOff, sibling := r.driver(t, quick(proxy.Addr()), reg), r.driver(t, quick(r.server.Addr))
	started, cause := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	r.start(t, cutOff, driver.Subscription{}, func(ctx context.Context, _ driver.Delivery) driver.Outcome {
		once.Do(func() { close(started) }) // on a slow machine it may get the message again
		<-ctx.Done()
		select {
		case cause <- context.Cause(ctx):
		default:
		}
		return driver.Outcome{Verdict: driver.Done}
	})
	r.publish(t, sibling, 1, "A")
	<-started
	proxy.Stall()
	taken, finish := make(chan int, 10), make(chan struct{})
	r.start(t, sibling, driver.Subscription{}, func(_ context.Context, d driver.Delivery) driver.Outcome {
		taken <- d.Attempt
		<-finish
		return driver.Outcome{Verdict: driver.Retry}
	})
	select {
	case <-taken:
	case <-time.After(patience):
		t.Fatal("nobody took over")
	}
	proxy.Restore()
	select {
	case err := <-cause:
		if err == nil || !strings.Contains(err.Error(), "another member") {
			t.Errorf("the handler's context ended because of %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the handler of the lost message runs on")
	}
	testenv.Eventually(t, patience, "the loss is counted", func() bool { return metric(t, reg, "seahub_redis_leases_lost_total") == 1 })
	time.Sleep(200 * time.Millisecond)
	if s := r.state(t, sibling); s.Backlog.N != 1 {
		t.Errorf("backlog is %+v: the old owner acknowledged what its sibling has", s.Backlog)
	}
	close(finish) // the sibling fails; the retry must still be there
	select {
	case a := <-taken:
		if a != 2 {
			t.Errorf("the retry is attempt %d", a)
		}
	case <-time.After(patience):
		t.Fatal("the retry was lost")
	}
}

// The result of a handler that ended after the message went to another member is not
// told to the server: XACK would acknowledge for the other one.
func TestLateDoneIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	proxy := eventbustest.NewProxy(t, r.server.Addr)
	cfg := quick(proxy.Addr())
	cfg.Lease = 3 * time.Second // so that the late result comes before the renewal
	cutOff, sibling := r.driver(t, cfg), r.driver(t, quick(r.server.Addr))
	const n = 4
	started, end := make(chan struct{}, n), make(chan struct{})
	r.start(t, cutOff, driver.Subscription{}, func(context.Context, driver.Delivery) driver.Outcome {
		started <- struct{}{}
		<-end
		return driver.Outcome{Verdict: driver.Done}
	})
	r.publish(t, sibling, n, "A")
	for range n {
		<-started
	}
	proxy.Cut()
	close(end)
	taken, finish := make(chan struct{}, n), make(chan struct{})
	r.start(t, sibling, driver.Subscription{}, func(context.Context, driver.Delivery) driver.Outcome {
		taken <- struct{}{}
		<-finish
		return driver.Outcome{Verdict: driver.Done}
	})
	for range n {
		select {
		case <-taken:
		case <-time.After(patience):
			t.Fatal("nobody took over")
		}
	}
	time.Sleep(2 * time.Second) // now the first owner's leases are old by its own clock, too
	proxy.Restore()
	time.Sleep(1500 * time.Millisecond)
	if s := r.state(t, sibling); s.Backlog.N != n {
		t.Errorf("backlog is %+v: the old owner acknowledged what its sibling has", s.Backlog)
	}
	close(finish)
	testenv.Eventually(t, patience, "the sibling finishes", func() bool { s := r.state(t, sibling); return s.Backlog.Known && s.Backlog.N == 0 })
}
