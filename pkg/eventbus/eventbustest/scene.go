package eventbustest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus"
)

// scene is one scenario under way.
type scene struct {
	testing.TB
	room  *Room
	h     Harness
	topic string
	logs  *logBuffer
}

const (
	tagA = "KIT_A"
	tagB = "KIT_B"
	tagC = "KIT_C"
)

func newScene(t *testing.T, h Harness, ownBroker bool) *scene {
	room := h.Room(t, ownBroker)
	s := &scene{TB: t, room: room, h: h, topic: eventbus.Topic(room.Country), logs: &logBuffer{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the bus:\n%s", s.logs)
		}
	})
	return s
}

func (s *scene) group(task string) string {
	s.Helper()
	name := eventbus.Group(s.room.Country, task)
	if s.room.Group != nil {
		s.room.Group(s, name)
	}
	return name
}

// process is a bus as one process has it.
type process struct {
	*eventbus.Bus
	s       *scene
	link    Link
	letters *letters
	metrics *prometheus.Registry
}

// kitConfig makes everything quick that the contract leaves open.
func kitConfig() eventbus.Config {
	return eventbus.Config{
		Concurrency: 4, HandlerTimeout: 10 * time.Second, HandlerGrace: 200 * time.Millisecond,
		DrainTimeout: 5 * time.Second, MaxAttempts: 4,
		MinRetry: 100 * time.Millisecond, MaxRetry: 800 * time.Millisecond, WatchEvery: 100 * time.Millisecond,
	}
}

// process opens a bus; change adjusts its configuration.
func (s *scene) process(change ...func(*eventbus.Config)) *process {
	s.Helper()
	cfg := kitConfig()
	if s.h.Tune != nil {
		s.h.Tune(&cfg)
	}
	for _, c := range change {
		c(&cfg)
	}
	parts, link := s.room.Open(s)
	p := &process{s: s, link: link, letters: &letters{}, metrics: prometheus.NewRegistry()}
	p.Bus = eventbus.New(parts, cfg, s.room.Env, s.room.Country,
		eventbus.WithDeadLetters(p.letters), eventbus.WithRegisterer(p.metrics))
	s.Cleanup(func() {
		link.Restore()
		ctx, cancel := context.WithTimeout(context.Background(), s.h.Patience)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			s.Errorf("close the bus: %v", err)
		}
	})
	return p
}

// subscription is a Subscribe under way.
type subscription struct {
	p     *process
	group string
	stop  context.CancelFunc
	done  chan struct{}
	err   error // valid once done is closed
	beats atomic.Int64
}

func (p *process) subscribe(sub eventbus.Subscription, h eventbus.HandlerFunc) *subscription {
	p.s.Helper()
	if sub.Topic == "" {
		sub.Topic = p.s.topic
	}
	ctx, cancel := context.WithCancel(zerolog.New(p.s.logs).Level(zerolog.InfoLevel).WithContext(context.Background()))
	r := &subscription{p: p, group: sub.Group, stop: cancel, done: make(chan struct{})}
	sub.Beat = func() { r.beats.Add(1) }
	go func() {
		defer close(r.done)
		r.err = p.Subscribe(ctx, sub, h)
	}()
	p.s.Cleanup(func() { r.end() })
	return r
}

// end stops the subscription and waits for it.
func (r *subscription) end() {
	r.p.s.Helper()
	r.stop()
	select {
	case <-r.done:
	case <-time.After(r.p.s.h.Patience):
		r.p.s.Fatalf("Subscribe of %s did not return within %s of its context's end", r.group, r.p.s.h.Patience)
	}
}

// connected waits until the broker serves the subscription.
func (r *subscription) connected() *subscription {
	r.p.s.Helper()
	r.p.s.eventually("subscription of "+r.group+" is served", func() bool { return r.p.State(r.group).Connected })
	return r
}

// messages makes n messages with a tag; their keys are numbered from 0.
func (s *scene) messages(n int, tag string) []eventbus.Message {
	msgs := make([]eventbus.Message, n)
	for i := range msgs {
		key := fmt.Sprintf("%s:%04d", strings.ToLower(tag), i)
		msgs[i] = eventbus.Message{Topic: s.topic, Tag: tag, Key: key, Body: []byte(`{"n":"` + key + `"}`)}
	}
	return msgs
}

// publish sends msgs and fails the scenario unless all are confirmed.
func (p *process) publish(msgs ...eventbus.Message) {
	p.s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), p.s.h.Patience)
	defer cancel()
	for i, r := range p.Publisher().PublishBatch(ctx, msgs) {
		if r.Status != eventbus.Confirmed {
			p.s.Fatalf("message %d was not confirmed: %s: %v", i, r.Status, r.Err)
		}
	}
}

// publishAll publishes msgs one batch after the other and repeats what is not
// confirmed, as the relay does, until all are or ctx ends.
func (p *process) publishAll(ctx context.Context, msgs []eventbus.Message, batch int, pause time.Duration) error {
	for len(msgs) > 0 {
		n := min(batch, len(msgs))
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		results := p.Publisher().PublishBatch(call, msgs[:n])
		cancel()
		var again []eventbus.Message
		for i, r := range results {
			switch r.Status {
			case eventbus.Confirmed:
			case eventbus.Refused:
				return fmt.Errorf("message %s was refused: %w", msgs[i].Key, r.Err)
			default:
				again = append(again, msgs[i])
			}
		}
		msgs = append(again, msgs[n:]...)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d messages are not published: %w", len(msgs), ctx.Err())
		case <-time.After(pause):
		}
	}
	return nil
}

// eventually waits for a condition.
func (s *scene) eventually(what string, ok func() bool) {
	s.Helper()
	deadline := time.Now().Add(s.h.Patience)
	for !ok() {
		if time.Now().After(deadline) && !ok() {
			s.Fatalf("not within %s: %s", s.h.Patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// receives waits on a channel.
func receives[T any](s *scene, what string, ch <-chan T) T {
	s.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(s.h.Patience):
		s.Fatalf("not within %s: %s", s.h.Patience, what)
		panic("unreachable")
	}
}

// once checks that n messages were delivered once each, as far as the broker's traits
// promise it when members come and go; that all of them came is checked elsewhere.
func (s *scene) once(what string, deliveries, n int) {
	s.Helper()
	switch {
	case deliveries == n:
	case s.h.Traits.RepeatsOnRebalance && deliveries > n:
		s.Logf("%s: %d deliveries of %d messages: members came or went", what, deliveries, n)
	default:
		s.Errorf("%s: %d deliveries of %d messages, though nothing failed", what, deliveries, n)
	}
}

// calm waits long enough for a wrong extra delivery to show itself: beyond the lease
// and the longest retry.
func (s *scene) calm() { time.Sleep(2*s.h.Lease + kitConfig().MaxRetry) }

// seen records deliveries.
type seen struct {
	mu  sync.Mutex
	all []arrival
}

type arrival struct {
	eventbus.Delivery
	at time.Time
}

func (r *seen) add(d eventbus.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, arrival{d, time.Now()})
}

// done is a handler that records and is done.
func (r *seen) done(_ context.Context, d eventbus.Delivery) eventbus.Outcome {
	r.add(d)
	return eventbus.Done()
}

func (r *seen) list() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]arrival(nil), r.all...)
}

// keys counts deliveries by key.
func (r *seen) keys() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	for _, a := range r.all {
		out[a.Key]++
	}
	return out
}

func (r *seen) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// hasAll tells whether every message was delivered at least once.
func (r *seen) hasAll(msgs []eventbus.Message) bool {
	keys := r.keys()
	for _, m := range msgs {
		if keys[m.Key] == 0 {
			return false
		}
	}
	return true
}

// letters is a store of dead letters that can be made to fail.
type letters struct {
	mu     sync.Mutex
	broken bool
	tries  int
	all    []eventbus.DeadLetter
}

var errStoreDown = errors.New("dead letter store is down")

// StoreDeadLetter implements eventbus.DeadLetters.
func (l *letters) StoreDeadLetter(_ context.Context, dl eventbus.DeadLetter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tries++
	if l.broken {
		return errStoreDown
	}
	l.all = append(l.all, dl)
	return nil
}

func (l *letters) setBroken(b bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = b
}

func (l *letters) tried() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tries
}

func (l *letters) list() []eventbus.DeadLetter {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]eventbus.DeadLetter(nil), l.all...)
}

// logBuffer keeps the last lines for a failed scenario.
type logBuffer struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, string(p))
	return len(p), nil
}

func (b *logBuffer) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.lines)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines[max(0, len(b.lines)-60):], "")
}
