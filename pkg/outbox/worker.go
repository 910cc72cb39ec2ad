package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// worker publishes while its relay holds a slot. One goroutine uses it.
type worker struct {
	cfg       Config
	store     relayStore
	publisher Publisher
	trust     trust
	metrics   *metrics
	state     *state
	logs      *limitedLog
	beat      func()

	pace        pace
	size        sizer
	lastConfirm time.Time
	// unproven: the last marks were not committed. The next pass makes sure that the
	// server takes writes before it sends.
	unproven bool
	// outages and dbErrors count failed passes in a row.
	outages  int
	dbErrors int
	// sweptClean is when a sweep last left nothing behind.
	sweptClean time.Time
}

// run works until ctx ends.
func (w *worker) run(ctx context.Context) {
	for {
		w.beat()
		wait := w.step(ctx)
		if !backoff.Sleep(ctx, wait) {
			return
		}
	}
}

// step does what is due and returns how long to wait then.
func (w *worker) step(ctx context.Context) time.Duration {
	if !w.trust.ValidFor(w.cfg.PublishTimeout) {
		// The lease is being renewed, or ctx is about to end.
		return 10 * time.Millisecond
	}
	if w.outages > 0 {
		// One pass from the head tries whether the broker is back.
		w.pace.backlog = true
		if wait, ok := w.sweep(ctx, outageRows); !ok {
			return wait
		}
	} else if w.pace.sweepDue(time.Now()) {
		if wait, ok := w.sweep(ctx, w.cfg.BatchRows); !ok {
			return wait
		}
	}
	found, full, wait, ok := w.look(ctx, tail, w.cfg.BatchRows)
	if !ok {
		return wait
	}
	wait = w.pace.looked(time.Now(), found, full)
	if w.pace.backlog {
		return 0
	}
	return wait
}

// sweep looks at the whole queue. ok is false when it met trouble; then wait is how
// long to back off.
func (w *worker) sweep(ctx context.Context, limit int) (wait time.Duration, ok bool) {
	began := time.Now()
	found, full, wait, ok := w.look(ctx, everywhere, limit)
	if !ok {
		return wait, false
	}
	w.pace.swept(time.Now(), found, full, time.Since(began))
	if !full {
		w.sweptClean = began
	}
	return 0, true
}

// look probes a part of the queue and works on it if anything is there.
func (w *worker) look(ctx context.Context, where scope, limit int) (found int, full bool, wait time.Duration, ok bool) {
	probeCtx, cancel := context.WithTimeout(ctx, w.cfg.PassTimeout)
	waiting, err := w.store.waiting(probeCtx, where)
	cancel()
	if err != nil {
		return 0, false, w.databaseTrouble(ctx, err), false
	}
	w.state.passed()
	if !waiting {
		w.dbErrors = 0
		if where == everywhere {
			w.recovered(ctx) // nothing is waiting: nothing can be failing
		}
		return 0, false, 0, true
	}
	res, err := w.pass(ctx, where, limit)
	if err != nil {
		return 0, false, w.databaseTrouble(ctx, err), false
	}
	w.dbErrors = 0
	w.metrics.passes.WithLabelValues(where.name).Inc()
	if res.confirmed > 0 {
		w.state.confirmed()
	}
	if where == everywhere {
		w.suspectZone(ctx, res)
	}
	if res.trouble != Confirmed {
		return res.claimed, res.more, w.brokerTrouble(ctx, res), false
	}
	if res.claimed > 0 {
		w.recovered(ctx)
	}
	return res.claimed, res.more, 0, true
}

// brokerTrouble records a pass that left rows untouched and returns the wait before
// the next one. A batch of which a part was confirmed starts the waits anew.
func (w *worker) brokerTrouble(ctx context.Context, res passResult) time.Duration {
	if res.confirmed > 0 {
		w.outages = 0
	}
	w.outages++
	w.state.failing(res.trouble, res.oldest)
	w.metrics.failing(res.trouble, res.oldest)
	w.logs.warn(ctx, "publish-failing", res.err,
		"publishing fails ("+res.trouble.String()+"): no event is touched, all of them will be sent when the broker is back")
	return backoff.Policy{Base: outageBase, Max: w.cfg.OutageMax}.Delay(w.outages)
}

func (w *worker) recovered(ctx context.Context) {
	if w.outages == 0 {
		return
	}
	w.outages = 0
	w.state.failing(Confirmed, 0)
	w.metrics.failing(Confirmed, 0)
	w.logs.end(ctx, "publish-failing", "publishing works again")
}

// databaseTrouble records a failed statement and returns the wait before the next.
func (w *worker) databaseTrouble(ctx context.Context, err error) time.Duration {
	if errors.Is(err, errLate) {
		w.metrics.late.Inc()
		w.logs.warn(ctx, "late", err, "the process stood still in a pass")
		return 0
	}
	if ctx.Err() != nil {
		return 0 // the stop, not the database
	}
	w.dbErrors++
	w.metrics.databaseErrors.Inc()
	w.state.databaseFailing(err)
	w.logs.warn(ctx, "database", err, "relay cannot work on outbox_event, it tries again")
	return backoff.Policy{Base: outageBase, Max: w.cfg.OutageMax}.Delay(w.dbErrors)
}
