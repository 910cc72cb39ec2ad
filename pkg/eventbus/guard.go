package eventbus

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// guard stands between a driver and a handler: whatever the handler does, the driver
// gets an outcome in time.
type guard struct {
	bus         *Bus
	sub         Subscription
	handler     Handler
	st          *state
	concurrency int
	timeout     time.Duration
	// slots bounds handler goroutines, hung ones included: a handler that never
	// returns must end in a standstill that shows, not in a leak without end.
	slots  chan struct{}
	failed lastFailures
}

func newGuard(b *Bus, sub Subscription, h Handler, st *state) *guard {
	g := &guard{bus: b, sub: sub, handler: b.tracing.handler(sub.Group, h), st: st, concurrency: sub.Concurrency, timeout: sub.HandlerTimeout}
	if g.concurrency == 0 {
		g.concurrency = b.cfg.Concurrency
	}
	if g.timeout == 0 {
		g.timeout = b.cfg.HandlerTimeout
	}
	g.slots = make(chan struct{}, 4*g.concurrency)
	return g
}

// handle is what a driver calls for each delivery.
func (g *guard) handle(ctx context.Context, d Delivery) Outcome {
	// A finished event is a debug line; unless somebody wants it, no logger is made.
	quiet := zerolog.Ctx(ctx).GetLevel() > zerolog.DebugLevel
	ctx = event.WithLogFields(ctx, event.LogFields{
		EventID: d.Key,
		Trace:   event.Trace{Traceparent: d.Headers[event.HeaderTraceparent], RequestID: d.Headers[event.HeaderRequestID]},
	})
	start := time.Now()
	created, hasCreated := event.ParseTime(d.Headers[event.HeaderCreatedAt])
	ticketTime := created
	if !hasCreated {
		ticketTime = start
	}
	ticket := g.st.take(ticketTime)
	out := g.decide(ctx, d)
	g.st.release(ticket, out.Verdict == driver.Done || out.Verdict == driver.Skip)

	m, tag := g.bus.metrics, g.tagLabel(d.Tag)
	m.messages.WithLabelValues(g.sub.Group, tag, out.Verdict.String()).Inc()
	m.processSeconds.WithLabelValues(g.sub.Group, tag).Observe(time.Since(start).Seconds())
	if out.Verdict == driver.Done && hasCreated {
		// Two machines' clocks meet here: a negative difference is only their skew.
		m.endToEnd.WithLabelValues(g.sub.Group, tag).Observe(max(0, time.Since(created)).Seconds())
	}
	if !quiet || out.Verdict != driver.Done {
		g.log(ctx, d, out)
	}
	return out
}

func (g *guard) decide(ctx context.Context, d Delivery) Outcome {
	if why := g.foreign(d); why != "" {
		g.bus.metrics.foreign.WithLabelValues(g.sub.Group).Inc()
		return Halt(why, nil)
	}
	most := g.bus.cfg.MaxAttempts
	if d.Attempt > most {
		// The last permitted run ended without a word (its process died), or its
		// dead letter could not be stored.
		f := g.failed.of(d.Key, d.Attempt-1)
		return g.bury(ctx, d, f.attempts, f.reason, f.err)
	}
	out := g.run(ctx, d)
	switch {
	case out.Verdict == driver.Retry && ctx.Err() != nil:
		// Cut short by a stop, or another member has the event: not its last word.
		return out
	case out.Verdict == driver.Dead:
		return g.bury(ctx, d, d.Attempt, out.Reason, out.Err)
	case out.Verdict == driver.Retry && d.Attempt >= most:
		return g.bury(ctx, d, d.Attempt, fmt.Sprintf("all %d attempts failed", most), out.Err)
	}
	return out
}

// foreign returns why d belongs to another deployment, or "".
func (g *guard) foreign(d Delivery) string {
	for _, c := range [...]struct{ what, theirs, ours string }{
		{"country", d.Headers[event.HeaderCountry], g.bus.country},
		{"env", d.Headers[event.HeaderEnv], g.bus.env},
	} {
		if c.theirs != "" && c.theirs != c.ours {
			return fmt.Sprintf("event %q is of %s %q, this is %q: a producer or this consumer is deployed with the wrong broker address or country", d.Key, c.what, c.theirs, c.ours)
		}
	}
	return ""
}

// run calls the handler on a goroutine of its own, so that one that ignores its
// deadline cannot hold the driver's.
func (g *guard) run(ctx context.Context, d Delivery) Outcome {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	select {
	case g.slots <- struct{}{}:
	case <-ctx.Done():
		return Retry(errors.New("no handler was free: earlier ones ignore their deadline and still run"))
	}
	result := make(chan Outcome, 1)
	go func() { // ends when the handler does; slots bounds how many do not
		defer func() { <-g.slots }()
		out := Retry(errors.New("handler ended its goroutine instead of returning"))
		defer func() { result <- out }() // also when the goroutine is ended under us
		out = g.call(ctx, d)
	}()
	select {
	case out := <-result:
		return out
	case <-ctx.Done():
	}
	grace := time.NewTimer(g.bus.cfg.HandlerGrace)
	defer grace.Stop()
	select {
	case out := <-result:
		return out
	case <-grace.C:
	}
	g.abandon(result)
	return Retry(fmt.Errorf("handler ignored the end of its context for %s and was abandoned: %w", g.bus.cfg.HandlerGrace, context.Cause(ctx)))
}

// abandon counts a hung handler for as long as it hangs.
func (g *guard) abandon(result <-chan Outcome) {
	m := g.bus.metrics
	m.abandonedEvents.WithLabelValues(g.sub.Group).Inc()
	hung := m.abandonedNow.WithLabelValues(g.sub.Group)
	hung.Inc()
	go func() { // ends with the handler
		<-result
		hung.Dec()
	}()
}

// call runs the handler and turns a panic into a retry. The error names the kind of
// panic only: its text may quote the payload.
func (g *guard) call(ctx context.Context, d Delivery) (out Outcome) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		if v == nil {
			return // the goroutine ends; run says so
		}
		err := panicError(v)
		g.bus.metrics.panics.WithLabelValues(g.sub.Group).Inc()
		zerolog.Ctx(ctx).Error().Err(err).Bytes("stack", debug.Stack()).Msg("handler panicked")
		out = Retry(err)
	}()
	out = g.handler.Handle(ctx, d)
	returned = true
	return out
}

func panicError(v any) error {
	if e, ok := v.(runtime.Error); ok {
		return fmt.Errorf("handler panicked: %T: %w", v, e) // the runtime's texts name no data
	}
	return fmt.Errorf("handler panicked with a value of type %T", v)
}

// bury stores the dead letter, and only then lets the driver acknowledge the event.
func (g *guard) bury(ctx context.Context, d Delivery, attempts int, reason string, cause error) Outcome {
	letter := event.DeadLetter{
		Group: g.sub.Group, Topic: d.Topic, Tag: d.Tag, EventID: d.Key,
		Body: d.Body, Headers: d.Headers, Attempts: attempts, Reason: reason,
	}
	if cause != nil {
		letter.LastError = cause.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := g.bus.deadLetters.StoreDeadLetter(ctx, letter); err != nil {
		g.bus.metrics.storeFailures.WithLabelValues(g.sub.Group).Inc()
		g.failed.remember(d.Key, failure{attempts, reason, cause})
		return Retry(fmt.Errorf("store dead letter (%s): %w", reason, err))
	}
	g.failed.forget(d.Key)
	g.bus.metrics.deadLetters.WithLabelValues(g.sub.Group, g.tagLabel(d.Tag)).Inc()
	return Dead(reason, cause)
}

// tagLabel keeps a foreign producer's tags from growing the metrics without bound.
func (g *guard) tagLabel(tag string) string {
	switch event.Type(tag) {
	case event.PushDispatch, event.CouponExpire, event.CampaignProductSync, event.OpsCounter, event.AppVersionSync:
		return tag
	}
	if slices.Contains(g.sub.Tags, tag) {
		return tag
	}
	return "other"
}

func (g *guard) log(ctx context.Context, d Delivery, out Outcome) {
	l := zerolog.Ctx(ctx)
	e := l.Debug()
	switch out.Verdict {
	case driver.Retry:
		e = l.Warn().Dur("after", out.After)
	case driver.Dead, driver.Halt:
		e = l.Error()
	}
	if e == nil {
		return
	}
	e.Str("tag", d.Tag).Str("result", out.Verdict.String()).Str("reason", out.Reason).
		Int("attempt", d.Attempt).Str("broker_id", d.BrokerID).Err(out.Err).Msg("event handled")
}

// failure is what a dead letter that could not be stored would have said.
type failure struct {
	attempts int
	reason   string
	err      error
}

// lastFailures remembers failures until their dead letters are stored, so that the
// letter tells the true last error even if the store was down for a while. It is a
// convenience: another member does not have it, and it is bounded.
type lastFailures struct {
	mu sync.Mutex
	m  map[string]failure
}

const maxRemembered = 4096

func (l *lastFailures) remember(key string, f failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[string]failure{}
	}
	if _, known := l.m[key]; known || len(l.m) < maxRemembered {
		l.m[key] = f
	}
}

func (l *lastFailures) of(key string, attempts int) failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f, ok := l.m[key]; ok {
		return f
	}
	return failure{attempts: attempts, reason: "all attempts were used up",
		err: errors.New("the last attempt's own error is unknown here: its process died, or its dead letter could not be stored; see that member's log")}
}

func (l *lastFailures) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.m, key)
}
