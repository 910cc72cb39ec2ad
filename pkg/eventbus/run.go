package eventbus

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// The phases of a run. Who moves it from running to over has the say on its outcome.
const (
	waiting = iota
	running
	over
)

// run is one delivery in a handler's hands. It is the handler's context: the driver's,
// with the ids for the log and a deadline.
type run struct {
	driver.Lazy
	callback driver.Run      // the driver's
	log      context.Context // the driver's with the ids, without the deadline
	d        Delivery

	started    time.Time
	created    time.Time // the event, or started when it does not tell
	hasCreated bool
	phase      atomic.Int32
	// told is closed when the driver has heard that the run was abandoned. It is there
	// for a run that lost its say, not before.
	told chan struct{}

	// outlived is when the watch noticed that the context has ended; its alone.
	outlived   time.Time
	prev, next *run // guarded by state.mu
}

// hung counts handlers that were abandoned and still run. Their number is bounded: a
// handler that never returns must end in a standstill that shows, not in a leak without
// end.
type hung struct {
	now  atomic.Int64
	most int64
}

// admit waits until few enough hang; false when the run's context ended before.
func (h *hung) admit(r *run) bool {
	for h.now.Load() >= h.most {
		if !backoff.Sleep(r, 20*time.Millisecond) {
			return false
		}
	}
	return true
}

// watchEvery is the longest time between two looks at what runs.
const watchEvery = time.Second

// watch abandons handlers that do not heed the end of their context, until the returned
// function is called. It looks instead of being told: a timer for each run costs more
// than most runs do.
func (g *guard) watch() (stop func()) {
	grace := g.bus.cfg.HandlerGrace
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for backoff.Sleep(ctx, min(max(grace/5, 5*time.Millisecond), watchEvery)) {
			now := time.Now()
			for _, r := range g.st.atWork() {
				if r.phase.Load() != running || r.outlivedFor(now) < grace {
					continue
				}
				r.told = make(chan struct{})
				if r.phase.CompareAndSwap(running, over) {
					g.abandon(r)
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// outlivedFor is how long ago the run's context ended.
func (r *run) outlivedFor(now time.Time) time.Duration {
	if r.outlived.IsZero() {
		if r.Err() == nil {
			return 0
		}
		r.outlived = now
		if at, _ := r.Deadline(); at.Before(now) {
			r.outlived = at
		}
	}
	return now.Sub(r.outlived)
}

// abandon takes the event away from a handler, which is counted for as long as it hangs.
func (g *guard) abandon(r *run) {
	m := g.bus.metrics
	m.abandonedEvents.WithLabelValues(g.sub.Group).Inc()
	m.abandonedNow.WithLabelValues(g.sub.Group).Inc()
	g.hung.now.Add(1)
	out := Retry(fmt.Errorf("handler ignored the end of its context for %s and was abandoned: %w", g.bus.cfg.HandlerGrace, context.Cause(r)))
	go func() { // its dead letter may take storeTimeout
		defer close(r.told)
		r.callback.Abandon(g.finish(r, g.judge(r, out)))
	}()
}
