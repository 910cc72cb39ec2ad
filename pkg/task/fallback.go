package task

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
)

// calmLooks is how many looks in a row must find nothing before the fallback ends.
const calmLooks = 3

// watch decides about the fallback, one look per poll tick. It belongs to the poll
// loop; what all processes share is in the database.
type watch struct {
	task      *Task
	calm      int
	calmSince time.Time
}

// look returns whether the fallback holds. on says whether the event path is in use.
func (w *watch) look(ctx context.Context, on bool) (active bool, err error) {
	shared, err := w.task.store.fallback(ctx)
	if err != nil {
		return false, fmt.Errorf("look at the fallback: %w", err)
	}
	defer func() { w.show(active, shared.reason) }()
	if !on {
		w.task.sawOverdue(0) // nothing is the event path's
		if shared.active {
			return false, w.leave(ctx, "the flag is off")
		}
		return false, nil
	}
	reason, err := w.trouble(ctx)
	if err != nil {
		return shared.active, err // unknown is no reason to change anything
	}
	if reason != "" {
		w.calm = 0
		if shared.active {
			return true, nil
		}
		shared.reason = reason
		return true, w.trip(ctx, reason)
	}
	if !shared.active {
		return false, nil
	}
	return w.calmDown(ctx, shared)
}

// trouble returns why the event path needs help, or "".
func (w *watch) trouble(ctx context.Context) (string, error) {
	t := w.task
	overdue, err := t.spec.Poller.Overdue(ctx, t.spec.OverdueBy, t.eventOnly)
	if err != nil {
		return "", fmt.Errorf("look for overdue rows: %w", err)
	}
	t.sawOverdue(overdue.Rows)
	if overdue.Rows > 0 {
		return fmt.Sprintf("%d rows of the event path are overdue, the oldest has been due for %s (allowed: %s)",
			overdue.Rows, overdue.Oldest.Round(time.Second), t.spec.OverdueBy), nil
	}
	failures, err := t.store.failing(ctx, t.spec.Config.FailureLimit, t.spec.OverdueBy)
	if err != nil {
		return "", fmt.Errorf("look for failing instances: %w", err)
	}
	if failures > 0 {
		return fmt.Sprintf("an instance failed %d times in a row and no instance succeeded meanwhile", failures), nil
	}
	return "", nil
}

// calmDown ends the fallback once it has been quiet for long enough.
func (w *watch) calmDown(ctx context.Context, shared fallbackState) (bool, error) {
	if w.calm == 0 {
		w.calmSince = time.Now()
	}
	w.calm++
	quiet := time.Since(w.calmSince)
	switch {
	case w.calm >= calmLooks && shared.recovered:
		return false, w.leave(ctx, "the event path works again")
	case w.calm >= calmLooks && quiet >= 2*w.task.spec.OverdueBy:
		return false, w.leave(ctx, "nothing was overdue for "+quiet.Round(time.Second).String())
	}
	return true, nil
}

func (w *watch) trip(ctx context.Context, reason string) error {
	switch err := w.task.store.setFallback(ctx, true, reason); {
	case errors.Is(err, errOtherWasFirst):
		return nil
	case err != nil:
		return fmt.Errorf("start the fallback: %w", err)
	}
	w.task.metrics.activations.Inc()
	zerolog.Ctx(ctx).Error().Str("reason", reason).
		Msg("fallback: the poll works on overdue rows until the event path works again")
	return nil
}

func (w *watch) leave(ctx context.Context, why string) error {
	w.calm = 0
	switch err := w.task.store.setFallback(ctx, false, why); {
	case errors.Is(err, errOtherWasFirst):
		return nil
	case err != nil:
		return fmt.Errorf("end the fallback: %w", err)
	}
	zerolog.Ctx(ctx).Info().Str("reason", why).Msg("fallback ended")
	return nil
}

// sawOverdue tells Prometheus and the sweep of ops-consumer the same.
func (t *Task) sawOverdue(rows int64) {
	t.metrics.overdue.Set(float64(rows))
	t.health.sawOverdue(rows)
}

// show makes the state visible to metrics and readiness.
func (w *watch) show(active bool, reason string) {
	if !active {
		w.task.metrics.active.Set(0)
		w.task.fallback.Store(nil)
		return
	}
	w.task.metrics.active.Set(1)
	w.task.fallback.Store(&reason)
}
