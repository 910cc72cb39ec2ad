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
	// quiet: nobody wants the debug line of a finished event.
	quiet  bool
	hung   hung
	labels sync.Map // of *tagMetrics, by label
	failed lastFailures
}

func newGuard(ctx context.Context, b *Bus, sub Subscription, h Handler, st *state) *guard {
	g := &guard{bus: b, sub: sub, handler: b.tracing.handler(sub.Group, h), st: st, concurrency: sub.Concurrency, timeout: sub.HandlerTimeout}
	if g.concurrency == 0 {
		g.concurrency = b.cfg.Concurrency
	}
	if g.timeout == 0 {
		g.timeout = b.cfg.HandlerTimeout
	}
	g.quiet = zerolog.Ctx(ctx).GetLevel() > zerolog.DebugLevel
	g.hung.most = int64(3 * g.concurrency)
	return g
}

// handle is what a driver calls for each delivery.
func (g *guard) handle(ctx context.Context, d Delivery) Outcome {
	if callback, ok := ctx.(driver.Run); ok {
		return g.process(callback, d)
	}
	// This driver needs its goroutine back, whatever the handler does.
	c := waited{ctx, make(chan Outcome, 2)}
	go func() { c.out <- g.process(c, d) }() // ends with the handler, of which hung bounds the number
	return <-c.out
}

// waited is the context of a callback that its driver waits for.
type waited struct {
	context.Context
	out chan Outcome
}

// Abandon implements driver.Run.
func (c waited) Abandon(out Outcome) { c.out <- out }

// process returns the outcome, or abandons the callback with it: when the handler hangs,
// or ends its goroutine.
func (g *guard) process(callback driver.Run, d Delivery) Outcome {
	r := &run{d: d, callback: callback, started: time.Now()}
	r.log = event.WithLogFields(callback, event.LogFields{
		EventID: d.Key,
		Trace:   event.Trace{Traceparent: d.Headers[event.HeaderTraceparent], RequestID: d.Headers[event.HeaderRequestID]},
	})
	r.Init(r.log, r.started.Add(g.timeout))
	r.created, r.hasCreated = event.ParseTime(d.Headers[event.HeaderCreatedAt])
	if !r.hasCreated {
		r.created = r.started
	}
	g.st.take(r)
	if out, ended := g.unrun(r); ended {
		return g.finish(r, out)
	}
	if !g.hung.admit(r) {
		return g.finish(r, g.judge(r, Retry(errors.New("no handler was free: earlier ones ignore their deadline and still run"))))
	}
	r.phase.Store(running)
	returned := false
	defer func() {
		if returned {
			return
		}
		// The goroutine is ended under us.
		if out, mine := g.ended(r, Retry(errors.New("handler ended its goroutine instead of returning"))); mine {
			callback.Abandon(out)
		}
	}()
	out := g.call(r)
	returned = true
	out, mine := g.ended(r, out)
	if !mine {
		<-r.told // what is returned now counts only as long as the driver knows nothing else
	}
	return out
}

// ended is what a handler's outcome comes to; not mine when it was abandoned before.
func (g *guard) ended(r *run, out Outcome) (_ Outcome, mine bool) {
	if !r.phase.CompareAndSwap(running, over) {
		g.bus.metrics.abandonedNow.WithLabelValues(g.sub.Group).Dec()
		g.hung.now.Add(-1)
		return Outcome{}, false
	}
	return g.finish(r, g.judge(r, out)), true
}

// finish counts and logs what became of a delivery.
func (g *guard) finish(r *run, out Outcome) Outcome {
	now := time.Now()
	g.st.release(r, now, out.Verdict == driver.Done || out.Verdict == driver.Skip)
	r.End(nil)
	m := g.metricsOf(r.d.Tag)
	m.results[out.Verdict].Inc()
	if r.d.Attempt == 1 && !r.d.PublishedAt.IsZero() {
		m.deliverySeconds.Observe(max(0, r.started.Sub(r.d.PublishedAt)).Seconds())
	}
	m.processSeconds.Observe(now.Sub(r.started).Seconds())
	if out.Verdict == driver.Done && r.hasCreated {
		// Two machines' clocks meet here: a negative difference is only their skew.
		m.endToEnd.Observe(max(0, now.Sub(r.created)).Seconds())
	}
	if !g.quiet || out.Verdict != driver.Done {
		g.log(r, out)
	}
	return out
}

// metricsOf are the metrics of a tag, looked up once.
func (g *guard) metricsOf(tag string) *tagMetrics {
	label := g.tagLabel(tag)
	if m, ok := g.labels.Load(label); ok {
		return m.(*tagMetrics)
	}
	m, _ := g.labels.LoadOrStore(label, g.bus.metrics.ofTag(g.sub.Group, label))
	return m.(*tagMetrics)
}

// unrun is the outcome of a delivery for which no handler is run.
func (g *guard) unrun(r *run) (out Outcome, ended bool) {
	if why := g.foreign(r.d); why != "" {
		g.bus.metrics.foreign.WithLabelValues(g.sub.Group).Inc()
		return Halt(why, nil), true
	}
	if r.d.Attempt > g.bus.cfg.MaxAttempts {
		// The last permitted run ended without a word (its process died), or its
		// dead letter could not be stored.
		f := g.failed.of(r.d.Key, r.d.Attempt-1)
		return g.bury(r.log, r.d, f.attempts, f.reason, f.err), true
	}
	return Outcome{}, false
}

// judge decides what a handler's outcome means.
func (g *guard) judge(r *run, out Outcome) Outcome {
	most := g.bus.cfg.MaxAttempts
	switch {
	case out.Verdict == driver.Retry && r.log.Err() != nil:
		// Cut short by a stop, or another member has the event: not its last word.
		return out
	case out.Verdict == driver.Dead:
		return g.bury(r.log, r.d, r.d.Attempt, out.Reason, out.Err)
	case out.Verdict == driver.Retry && r.d.Attempt >= most:
		return g.bury(r.log, r.d, r.d.Attempt, fmt.Sprintf("all %d attempts failed", most), out.Err)
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

// call runs the handler and turns a panic into a retry. The error names the kind of
// panic only: its text may quote the payload.
func (g *guard) call(r *run) (out Outcome) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		if v == nil {
			return // the goroutine ends; process says so
		}
		err := panicError(v)
		g.bus.metrics.panics.WithLabelValues(g.sub.Group).Inc()
		zerolog.Ctx(r.log).Error().Err(err).Bytes("stack", debug.Stack()).Msg("handler panicked")
		out = Retry(err)
	}()
	out = g.handler.Handle(r, r.d)
	if out.Verdict < driver.Retry || out.Verdict > driver.Halt {
		out = Retry(fmt.Errorf("handler returned %s, which is no outcome", out.Verdict))
	}
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

func (g *guard) log(r *run, out Outcome) {
	l, d := zerolog.Ctx(r.log), r.d
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
