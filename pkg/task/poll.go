package task

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/event"
)

// complainEvery bounds how often a poll that cannot work says so.
const complainEvery = time.Minute

// RunPoll is the poll side; it returns nil when ctx ends. It runs in every mode: as
// the old poll while the flag is off, on what is left to it during a hand-over and a
// rollout, and as the safety net while the flag is on.
func (t *Task) RunPoll(ctx context.Context) error {
	ctx = event.WithLogFields(ctx, event.LogFields{Task: string(t.spec.Name)})
	watch := &watch{task: t}
	var lastComplaint time.Time
	for {
		t.spec.Beat()
		switch err := t.tick(ctx, watch); {
		case err == nil:
			t.metrics.passes.WithLabelValues("ok").Inc()
			t.health.passed()
		case ctx.Err() == nil:
			t.metrics.passes.WithLabelValues("failed").Inc()
			if time.Since(lastComplaint) > complainEvery {
				lastComplaint = time.Now()
				zerolog.Ctx(ctx).Error().Err(err).Msg("poll pass failed, the next one comes at the usual time")
			}
		}
		if !backoff.Sleep(ctx, t.spec.PollEvery) {
			return nil
		}
	}
}

// tick is one look and one pass. A panic of the poller costs this pass only.
func (t *Task) tick(ctx context.Context, w *watch) (err error) {
	defer func() {
		if v := recover(); v != nil {
			zerolog.Ctx(ctx).Error().Bytes("stack", debug.Stack()).Msg("poll panicked")
			err = fmt.Errorf("poll panicked with a value of type %T", v) // the value may quote a row
		}
	}()
	state, err := t.spec.Flags.FreshEnough(ctx, t.spec.Name)
	if err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	t.complainOfMissingBus(ctx, state.Enabled)
	active, watchErr := w.look(ctx, state.Enabled && t.spec.BusConfigured)
	// A watch that failed must not keep the old poll from its rows.
	err = t.pass(ctx, Scope{Owns: t.pollOwns, Beat: t.spec.Beat}, "poll")
	if active {
		err = errors.Join(err, t.pass(ctx, Scope{
			Owns: t.eventOnly, OverdueBy: t.spec.OverdueBy, Fallback: true, Beat: t.spec.Beat,
		}, "fallback"))
	}
	return errors.Join(watchErr, err)
}

func (t *Task) pass(ctx context.Context, s Scope, kind string) error {
	result, err := t.spec.Poller.Poll(ctx, s)
	t.metrics.rows.WithLabelValues(kind).Add(float64(result.Rows))
	if err != nil {
		return fmt.Errorf("%s pass: %w", kind, err)
	}
	return nil
}

// complainOfMissingBus says once per time that the flag is on without a bus.
func (t *Task) complainOfMissingBus(ctx context.Context, on bool) {
	missing := on && !t.spec.BusConfigured
	t.metrics.noBus.Set(0)
	if missing {
		t.metrics.noBus.Set(1)
	}
	if t.toldNoBus.Swap(missing) != missing && missing {
		zerolog.Ctx(ctx).Error().Str("flag", string(t.spec.Name)).
			Msg("flag is on but no event bus is configured: the poll runs as if it were off; set SEAHUB_MQ_PROVIDER or turn the flag off")
	}
}
