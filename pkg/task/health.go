package task

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus"
)

// Health rows are written at most once per writeEvery, and at least once per
// signOfLife so that a row that is older belongs to a process that is gone.
const (
	writeEvery = time.Second
	signOfLife = 10 * time.Second
	// busEvery is how often a consumer's row is brought up to date without a reason of its
	// own: the backlog grows while nothing is handled.
	busEvery  = 3 * time.Second
	writeTime = 2 * time.Second
	keepRows  = 7 * 24 * time.Hour
)

// figures are what an instance tells of itself. Times are this process's own and
// carry the monotonic clock; the store turns them into ages for the database's clock.
type figures struct {
	failures    int64
	lastSuccess time.Time
	lastFailure time.Time
	lastPass    time.Time
	eventAge    time.Duration // -1: unknown
	overdue     int64         // -1: not watched here
	lastConfirm time.Time
	group       string // whose the following are; "" if no group's
	backlog     int64  // -1: unknown
	oldestAge   time.Duration
	inHandAge   time.Duration
	note        string
}

// noFigures are those of somebody who knows nothing yet.
func noFigures() figures {
	return figures{eventAge: -1, overdue: -1, backlog: -1, oldestAge: -1, inHandAge: -1}
}

// recorder collects figures; its zero value is ready.
type recorder struct {
	mu    sync.Mutex
	now   figures
	dirty bool
	begun bool
}

func (r *recorder) change(f func(*figures)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.begun {
		r.begun = true
		r.now = noFigures()
	}
	f(&r.now)
	r.dirty = true
}

func (r *recorder) succeeded(age time.Duration) {
	r.change(func(f *figures) { f.failures, f.lastSuccess, f.eventAge = 0, time.Now(), age })
}

func (r *recorder) failed() {
	r.change(func(f *figures) { f.failures++; f.lastFailure = time.Now() })
}

func (r *recorder) passed()            { r.change(func(f *figures) { f.lastPass = time.Now() }) }
func (r *recorder) sawOverdue(n int64) { r.change(func(f *figures) { f.overdue = n }) }

// take returns the figures if they changed since they were last taken.
func (r *recorder) take() (figures, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.dirty
	r.dirty = false
	return r.now, changed
}

// RunHealth writes this process's row of mq_task_health until ctx ends, and once more
// then.
func (t *Task) RunHealth(ctx context.Context) error {
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	var written time.Time
	var lastComplaint time.Time
	t.health.change(func(*figures) {})
	for {
		select {
		case <-ctx.Done():
			return t.lastWords(ctx)
		case <-tick.C:
		}
		f, changed := t.health.take()
		if !changed && time.Since(written) < t.writeAtLeastEvery() {
			continue
		}
		if err := t.writeHealth(ctx, f); err == nil {
			if written.IsZero() {
				t.forgetOld(ctx)
			}
			written = time.Now()
		} else if ctx.Err() == nil {
			t.health.change(func(*figures) {}) // try again at the next tick
			if time.Since(lastComplaint) > complainEvery {
				lastComplaint = time.Now()
				zerolog.Ctx(ctx).Warn().Err(err).Str("task", string(t.spec.Name)).Msg("health row cannot be written")
			}
		}
	}
}

func (t *Task) writeAtLeastEvery() time.Duration {
	if t.busState.Load() != nil {
		return busEvery
	}
	return signOfLife
}

// forgetOld removes rows of processes that are long gone, once per start: each start
// adds one.
func (t *Task) forgetOld(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if err := t.store.forget(ctx, keepRows); err != nil {
		zerolog.Ctx(ctx).Warn().Err(err).Str("task", string(t.spec.Name)).Msg("old health rows were not removed")
	}
}

// lastWords tells what happened since the last write; the process ends anyway.
func (t *Task) lastWords(ctx context.Context) error {
	f, changed := t.health.take()
	if !changed {
		return nil
	}
	if err := t.writeHealth(context.WithoutCancel(ctx), f); err != nil {
		zerolog.Ctx(ctx).Warn().Err(err).Str("task", string(t.spec.Name)).Msg("last health row was not written")
	}
	return nil
}

func (t *Task) writeHealth(ctx context.Context, f figures) error {
	if look := t.busState.Load(); look != nil {
		f.fromBus((*look)())
	}
	_, f.note = t.Ready()
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return t.store.write(ctx, f)
}

// fromBus adds what the subscription knows of its group.
func (f *figures) fromBus(s eventbus.State) {
	f.group, f.inHandAge = s.Group, s.OldestInHand
	f.backlog, f.oldestAge = -1, -1
	if s.Backlog.Known {
		f.backlog = s.Backlog.N
	}
	if s.OldestAge.Known {
		f.oldestAge = s.OldestAge.D
	}
}
