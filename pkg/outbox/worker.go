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
	window      window
	suspect     suspect
	size        sizer
	lastConfirm time.Time
	// unproven: the last marks were not committed. The next pass makes sure that the
	// server takes marks before it sends, or it would send the same batch for ever.
	unproven bool
	// outages and dbErrors count failed passes in a row. failing lasts until the head
	// of the queue is through again.
	outages  int
	failing  bool
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

// look is the result of looking at a part of the queue. If ok is false it met trouble,
// and wait is how long to back off.
type look struct {
	passResult
	wait time.Duration
	ok   bool
}

// step does what is due and returns how long to wait then.
func (w *worker) step(ctx context.Context) time.Duration {
	if !w.trust.ValidFor(w.cfg.PublishTimeout) {
		// The lease is being renewed, or ctx is about to end.
		return 10 * time.Millisecond
	}
	if w.failing {
		return w.examine(ctx).wait
	}
	if w.pace.sweepDue(time.Now()) {
		if got := w.sweep(ctx); !got.ok {
			return got.wait
		}
	}
	if w.window.open {
		if got := w.workWindow(ctx); !got.ok {
			return got.wait
		}
	}
	got := w.lookAtTail(ctx)
	if !got.ok {
		return got.wait
	}
	wait := w.pace.looked(time.Now(), got.claimed, got.more)
	if w.window.open {
		return 0
	}
	return wait
}

// lookAtTail looks at the tail, or at its end alone where the tail is slow to look at.
func (w *worker) lookAtTail(ctx context.Context) look {
	began := time.Now()
	if !w.pace.tailDue(began) {
		return w.probe(ctx, tip(), w.cfg.BatchRows)
	}
	got := w.probe(ctx, tail(), w.cfg.BatchRows)
	if got.ok && got.claimed == 0 {
		now := time.Now()
		w.pace.sawTail(now, now.Sub(began))
	}
	return got
}

// sweep looks at the whole queue.
func (w *worker) sweep(ctx context.Context) look {
	began := time.Now()
	look := w.probe
	if w.window.open {
		look = w.try // it will find something
	}
	got := look(ctx, everywhere(), w.cfg.BatchRows)
	if !got.ok {
		return got
	}
	w.suspectZone(ctx, got.passResult)
	w.window.swept(got.passResult, got.more)
	if now := time.Now(); w.window.open {
		w.pace.sweptBeside(now, now.Sub(began))
	} else {
		w.pace.swept(now, got.claimed, now.Sub(began))
	}
	if !got.more {
		w.sweptClean = began
	}
	return got
}

// probe works on a part of the queue if a look without a transaction finds anything.
func (w *worker) probe(ctx context.Context, where scope, limit int) look {
	probeCtx, cancel := context.WithTimeout(ctx, w.cfg.PassTimeout)
	waiting, err := w.store.waiting(probeCtx, where)
	cancel()
	switch {
	case err != nil:
		return w.databaseTrouble(ctx, err)
	case waiting:
		return w.try(ctx, where, limit)
	}
	w.dbErrors = 0
	w.state.passed()
	return look{ok: true}
}

// try runs a pass and keeps the books on what it met.
func (w *worker) try(ctx context.Context, where scope, limit int) look {
	res, err := w.pass(ctx, where, limit)
	return w.judged(ctx, where.name, res, err)
}

// judged keeps the books on a pass.
func (w *worker) judged(ctx context.Context, scope string, res passResult, err error) look {
	if err != nil {
		return w.databaseTrouble(ctx, err)
	}
	w.dbErrors = 0
	w.state.passed()
	w.metrics.passes.WithLabelValues(scope).Inc()
	if res.confirmed > 0 {
		w.state.confirmed()
	}
	if res.trouble != Confirmed {
		return w.brokerTrouble(ctx, res)
	}
	return look{passResult: res, ok: true}
}

// brokerTrouble records a pass that left rows untouched and returns the wait before
// the next one. A batch of which a part was confirmed starts the waits anew.
func (w *worker) brokerTrouble(ctx context.Context, res passResult) look {
	if res.confirmed > 0 {
		w.outages = 0
	}
	w.outages++
	w.failing = true
	w.state.failing(res.trouble, res.oldest)
	w.metrics.failing(res.trouble, res.oldest)
	w.logs.warn(ctx, "publish-failing", res.err,
		"publishing fails ("+res.trouble.String()+"): no event is touched, all of them will be sent when the broker is back")
	return look{passResult: res, wait: backoff.Policy{Base: outageBase, Max: w.cfg.OutageMax}.Delay(w.outages)}
}

// recovered ends the trouble, unless an event is under suspicion.
func (w *worker) recovered(ctx context.Context) {
	if !w.failing || w.suspect.on {
		return
	}
	w.failing, w.outages = false, 0
	w.state.failing(Confirmed, 0)
	w.metrics.failing(Confirmed, 0)
	w.logs.end(ctx, "publish-failing", "publishing works again")
}

// databaseTrouble records a failed statement and returns the wait before the next.
func (w *worker) databaseTrouble(ctx context.Context, err error) look {
	if errors.Is(err, errLate) {
		w.metrics.late.Inc()
		w.logs.warn(ctx, "late", err, "the process stood still in a pass")
		return look{}
	}
	if ctx.Err() != nil {
		return look{} // the stop, not the database
	}
	w.dbErrors++
	w.metrics.databaseErrors.Inc()
	w.state.databaseFailing(err)
	w.logs.warn(ctx, "database", err, "relay cannot work on outbox_event, it tries again")
	return look{wait: backoff.Policy{Base: outageBase, Max: w.cfg.OutageMax}.Delay(w.dbErrors)}
}
