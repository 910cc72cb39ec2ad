package redisstreams_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/redisstreams"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// comeback is when a consumer must be back after its server is, with the settings of
// quick: one read that ends, and the longest back-off. A busy machine gets some more.
const comeback = 500*time.Millisecond + time.Second + 2*time.Second + 4*time.Second

// load is an outbox and a consumer around one bus: what is not confirmed is sent
// again, as a relay does, and what is confirmed can be sent once more, as `requeue`
// does.
type load struct {
	t       *testing.T
	bus     *eventbus.Bus
	metrics *prometheus.Registry
	topic   string
	group   string
	logs    *lockedBuffer
	back    time.Duration // when the consumer must be back after a fault
	body    []byte
	pause   time.Duration // between batches of ten
	look    func()        // at Redis, when all is published and before anything is again

	mu       sync.Mutex
	sent     []string // confirmed, in order
	sentAt   map[string]time.Time
	handled  map[string]int
	last     time.Time // of a delivery
	statuses map[eventbus.Status]int
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type noLetters struct{ t *testing.T }

func (n noLetters) StoreDeadLetter(_ context.Context, dl event.DeadLetter) error {
	n.t.Errorf("%s became a dead letter: %s", dl.EventID, dl.Reason)
	return nil
}

// newLoad opens a bus; reach is how it gets to its Redis.
func newLoad(t *testing.T, cfg redisstreams.Config, env string) *load {
	t.Helper()
	l := &load{
		t: t, metrics: prometheus.NewRegistry(), topic: eventbus.Topic("id"), group: group, logs: &lockedBuffer{},
		back: comeback, body: bytes.Repeat([]byte("x"), 400), pause: 5 * time.Millisecond,
		handled: map[string]int{}, sentAt: map[string]time.Time{}, statuses: map[eventbus.Status]int{},
	}
	log := zerolog.New(l.logs).Level(zerolog.InfoLevel)
	d, err := redisstreams.New(cfg, redisstreams.Options{Env: env, Country: "id", Registerer: l.metrics, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	l.bus = eventbus.New(eventbus.Parts{Sender: d, Receiver: d, Inspector: d, Provisioner: d, Warnings: d.Warnings},
		eventbus.Config{Concurrency: 8, MinRetry: 50 * time.Millisecond, MaxRetry: time.Second, DrainTimeout: 2 * time.Second, WatchEvery: 200 * time.Millisecond},
		env, "id", eventbus.WithDeadLetters(noLetters{t}), eventbus.WithRegisterer(l.metrics))
	ctx, cancel := context.WithCancel(log.WithContext(context.Background()))
	done := make(chan error, 1)
	go func() {
		done <- l.bus.Subscribe(ctx, eventbus.Subscription{Topic: l.topic, Group: l.group}, eventbus.HandlerFunc(l.handle))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Subscribe returned %v", err)
		}
		_ = l.bus.Close(context.Background())
		if err := d.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			text := l.logs.String()
			t.Logf("log ends:\n%s", text[max(0, len(text)-3000):])
		}
	})
	testenv.Eventually(t, patience, "the subscription is served", func() bool { return l.bus.State(l.group).Connected })
	return l
}

func (l *load) handle(_ context.Context, d eventbus.Delivery) eventbus.Outcome {
	time.Sleep(time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = time.Now()
	if d.Attempt == 1 && d.Key[len(d.Key)-1] == '7' { // so that some are always parked
		return eventbus.Retry(errors.New("not this time"))
	}
	l.handled[d.Key]++
	return eventbus.Done()
}

// publish sends keys until all are confirmed, as the relay does.
func (l *load) publish(keys []string) {
	const batch = 10
	for deadline := time.Now().Add(2 * time.Minute); len(keys) > 0; {
		if time.Now().After(deadline) {
			l.t.Errorf("%d events are still not published", len(keys))
			return
		}
		n := min(batch, len(keys))
		msgs := make([]eventbus.Message, n)
		for i, k := range keys[:n] {
			msgs[i] = eventbus.Message{Topic: l.topic, Tag: "A", Key: k, Body: l.body}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		results := l.bus.Publisher().PublishBatch(ctx, msgs)
		cancel()
		var again []string
		l.mu.Lock()
		for i, r := range results {
			l.statuses[r.Status]++
			if r.Status == eventbus.Confirmed {
				l.sent = append(l.sent, keys[i])
				l.sentAt[keys[i]] = time.Now()
			} else {
				again = append(again, keys[i])
			}
		}
		l.mu.Unlock()
		keys = append(again, keys[n:]...)
		time.Sleep(l.pause)
	}
}

func (l *load) missing() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.sent {
		if l.handled[k] == 0 {
			out = append(out, k)
		}
	}
	return out
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.handled)
}

func (l *load) status(s eventbus.Status) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.statuses[s]
}

// wasThrottled: memory was used up, the operator can see it, and no event paid for it.
func (l *load) wasThrottled() {
	l.t.Helper()
	if l.status(eventbus.Throttled) == 0 {
		l.t.Error("the relay was never told that memory is used up")
	}
	if metric(l.t, l.metrics, "seahub_publisher_messages_total", "throttled") == 0 {
		l.t.Error("no metric tells the operator that publishing is throttled")
	}
	if n := l.status(eventbus.Failed) + l.status(eventbus.Refused); n != 0 {
		l.t.Errorf("%d results would have spent attempts of events", n)
	}
}

func (l *load) noBacklog() {
	l.t.Helper()
	testenv.Eventually(l.t, 2*patience, "backlog is zero", func() bool {
		g, err := l.bus.Inspector().Group(l.t.Context(), l.topic, l.group)
		return err == nil && g.Backlog.Known && g.Backlog.N == 0 && g.Parked.N == 0
	})
}

func keys(from, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("load:%05d", from+i)
	}
	return out
}

// through runs load while fault happens, and returns how many confirmed events Redis
// lost. Afterwards all of them are published once more: everything has been handled.
func (l *load) through(n int, fault func()) (lost int) {
	l.t.Helper()
	published := make(chan struct{})
	go func() {
		defer close(published)
		l.publish(keys(0, n))
	}()
	testenv.Eventually(l.t, patience, "the load runs", func() bool { return l.count() > n/10 })
	fault()
	over := time.Now()
	testenv.Eventually(l.t, l.back, "the consumer is back within its bound", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.last.After(over)
	})
	l.t.Logf("first delivery %s after the fault", time.Since(over).Round(time.Millisecond))
	<-published
	l.noBacklog()
	if l.look != nil {
		l.look()
	}
	missing := l.missing()
	l.publish(missing)
	testenv.Eventually(l.t, patience, "what was lost is handled once it is published again", func() bool { return len(l.missing()) == 0 })
	l.noBacklog()
	if ok, why := l.bus.State(l.group).Ready(); !ok {
		l.t.Errorf("not ready afterwards: %s", why)
	}
	if lines := strings.Count(l.logs.String(), "\n") - strings.Count(l.logs.String(), "not this time"); lines > 60 {
		l.t.Errorf("%d log lines", lines)
	}
	return len(missing)
}

// Each fault strikes while events are published and handled. Nothing is lost that was
// not confirmed before; what was confirmed and is gone comes back by publishing it
// again; the consumer is back by itself, and the operator is told.
func TestFaultsInMidLoad(t *testing.T) {
	const n = 1500
	do := func(t *testing.T, c *redis.Client, args ...any) {
		t.Helper()
		if err := c.Do(context.Background(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	told := func(t *testing.T, l *load, metricName, logged string) {
		t.Helper()
		if metric(t, l.metrics, metricName) == 0 {
			t.Errorf("%s is 0", metricName)
		}
		if !strings.Contains(l.logs.String(), logged) {
			t.Errorf("the log does not say %q", logged)
		}
	}
	for _, f := range []struct {
		name  string
		loses bool
		fault func(t *testing.T, r room, c *redis.Client, l *load)
		told  func(t *testing.T, l *load)
	}{
		{"flushall", true, func(t *testing.T, _ room, c *redis.Client, _ *load) { do(t, c, "FLUSHALL") },
			func(t *testing.T, l *load) { told(t, l, "seahub_redis_group_recreated_total", "Redis lost data") }},
		{"stream deleted", true, func(t *testing.T, r room, c *redis.Client, _ *load) { do(t, c, "DEL", r.stream()) },
			func(t *testing.T, l *load) { told(t, l, "seahub_redis_group_recreated_total", "Redis lost data") }},
		{"stream renamed", true, func(t *testing.T, r room, c *redis.Client, _ *load) { do(t, c, "RENAME", r.stream(), "aside") },
			func(t *testing.T, l *load) { told(t, l, "seahub_redis_group_recreated_total", "Redis lost data") }},
		{"restart without data", true, func(t *testing.T, r room, c *redis.Client, _ *load) {
			do(t, c, "CONFIG", "SET", "appendonly", "no")
			do(t, c, "CONFIG", "SET", "save", "")
			if err := r.server.Server.Kill(); err != nil {
				t.Fatal(err)
			}
			forgetData(t, r.server.Server.Dir())
			if err := r.server.Server.Start(context.Background()); err != nil {
				t.Fatal(err)
			}
		}, func(t *testing.T, l *load) { told(t, l, "seahub_redis_group_recreated_total", "Redis lost data") }},
		{"clients killed", false, func(t *testing.T, _ room, c *redis.Client, _ *load) {
			for range 8 {
				do(t, c, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				time.Sleep(60 * time.Millisecond)
			}
		}, func(t *testing.T, l *load) { told(t, l, "seahub_redis_errors_total", "subscription is not served") }},
		{"memory used up", false, func(t *testing.T, _ room, c *redis.Client, l *load) {
			do(t, c, "CONFIG", "SET", "maxmemory", "1")
			testenv.Eventually(t, patience, "publishing is throttled", func() bool { return l.status(eventbus.Throttled) > 0 })
			time.Sleep(3 * time.Second)
			if ok, why := l.bus.State(l.group).Ready(); !ok {
				t.Errorf("consuming stopped while there was no memory: %s", why)
			}
			do(t, c, "CONFIG", "SET", "maxmemory", "0")
		}, func(_ *testing.T, l *load) { l.wasThrottled() }},
		{"ten seconds of silence", false, func(t *testing.T, r room, _ *redis.Client, l *load) {
			if err := r.server.Server.Freeze(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			if ok, why := l.bus.State(l.group).Ready(); ok || !strings.Contains(why, "unreachable") {
				t.Errorf("ready is %v %q while Redis is silent", ok, why)
			}
			if err := r.server.Server.Thaw(); err != nil {
				t.Fatal(err)
			}
		}, func(t *testing.T, l *load) {
			told(t, l, "seahub_redis_errors_total", "subscription is not served")
			if l.status(eventbus.Unavailable) == 0 {
				t.Error("publishing into silence was never Unavailable")
			}
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(t, testenv.PrivateRedis(t))
			l := newLoad(t, quick(r.server.Addr), r.env)
			lost := l.through(n, func() { f.fault(t, r, r.server.Client(t), l) })
			t.Logf("%d of %d confirmed events were gone", lost, n)
			if lost > 0 && !f.loses {
				t.Errorf("%d confirmed events were lost", lost)
			}
			f.told(t, l)
		})
	}
}

// A Redis whose memory is used up refuses events and loses none. Its consumers go on,
// one that starts then works as well, and what they finish is trimmed, which frees the
// memory: no person is needed.
func TestMemoryThatIsUsedUpComesBackByConsuming(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.PrivateRedis(t))
	c := r.server.Client(t)
	cfg := quick(r.server.Addr)
	cfg.Retention, cfg.TrimEvery = time.Millisecond, time.Second
	fill := r.driver(t, cfg)
	if err := fill.Ensure(t.Context(), r.topic(), []string{group}); err != nil {
		t.Fatal(err)
	}
	// Large ones: what clients' buffers take of the server's memory must not matter.
	for range 10 {
		msgs := make([]eventbus.Message, 300)
		for i := range msgs {
			msgs[i] = eventbus.Message{Topic: r.topic(), Tag: "FILL", Key: fmt.Sprint("fill:", i), Body: bytes.Repeat([]byte("x"), 10_000)}
		}
		for _, res := range fill.Send(t.Context(), msgs) {
			if res.Status != eventbus.Confirmed {
				t.Fatalf("fill the memory: %s: %v", res.Status, res.Err)
			}
		}
	}
	info, err := c.Info(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	var used int64
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "used_memory:"); ok {
			_, _ = fmt.Sscan(v, &used)
		}
	}
	// Below what is in use, and well above what is left when the stream is empty.
	if err := c.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(used*3/4)).Err(); err != nil {
		t.Fatal(err)
	}
	one := eventbus.Message{Topic: r.topic(), Tag: "A", Key: "refused", Body: []byte("{}")}
	if res := fill.Send(t.Context(), []eventbus.Message{one})[0]; res.Status != eventbus.Throttled {
		t.Fatalf("memory is used up, and the result is %s, %v", res.Status, res.Err)
	}
	l := newLoad(t, cfg, r.env) // starts while there is no memory
	published := make(chan struct{})
	go func() {
		defer close(published)
		l.publish(keys(0, 200))
	}()
	<-published
	testenv.Eventually(t, patience, "everything published is handled", func() bool { return len(l.missing()) == 0 && l.count() > 200 })
	l.noBacklog()
	l.wasThrottled()
}
