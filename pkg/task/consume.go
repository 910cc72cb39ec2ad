package task

import (
	"context"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
)

// unsureRetry is how soon an event comes back whose owner could not be determined.
const unsureRetry = 5 * time.Second

// Handler is the consume side: it decides by the flag, row by row, and keeps count of
// how the work goes.
func (t *Task) Handler() eventbus.Handler { return eventbus.HandlerFunc(t.handle) }

func (t *Task) handle(ctx context.Context, d eventbus.Delivery) (out eventbus.Outcome) {
	ctx = event.WithLogFields(ctx, event.LogFields{Task: string(t.spec.Name)})
	finished := false
	// Also when the work panics: what catches the panic is further out.
	defer func() {
		if !finished {
			t.health.failed()
		}
	}()
	out = t.decide(ctx, d)
	finished = true
	t.record(out, d)
	return out
}

func (t *Task) decide(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
	id, err := t.spec.Work.RowID(d)
	if err != nil {
		return eventbus.Dead("payload is not usable", err)
	}
	if owns, err := t.handlerOwns(ctx, id); err != nil {
		return eventbus.RetryAfter(unsureRetry, err)
	} else if !owns {
		t.metrics.events.WithLabelValues("skipped").Inc()
		return eventbus.Skip("flag off")
	}
	t.metrics.events.WithLabelValues("owned").Inc()
	return t.spec.Work.Handle(ctx, id, d)
}

// handlerOwns refuses to call a row the poll's on old knowledge: acknowledging an
// event cannot be taken back.
func (t *Task) handlerOwns(ctx context.Context, id string) (bool, error) {
	state := t.spec.Flags.Get(t.spec.Name)
	if state.EventOwns(id) {
		return true, nil
	}
	state, err := t.spec.Flags.FreshEnough(ctx, t.spec.Name)
	if err != nil {
		return false, fmt.Errorf("decide whether the flag gives the row to events: %w", err)
	}
	return state.EventOwns(id), nil
}

// record turns an outcome into health: done is a success, an error of our own or a
// dead event a failure, and the rest (skipped, waiting for a lease, a system outside
// being down) says nothing about the event path.
func (t *Task) record(out eventbus.Outcome, d eventbus.Delivery) {
	switch {
	case out.Verdict == eventbus.VerdictDone:
		t.health.succeeded(eventAge(d))
	case out.Verdict == eventbus.VerdictDead, out.Verdict == eventbus.VerdictRetry && out.Err != nil && !out.Outside:
		t.health.failed()
	}
}

// eventAge is how long ago the event was written, -1 if it does not tell.
func eventAge(d eventbus.Delivery) time.Duration {
	since := d.PublishedAt
	if created, ok := event.ParseTime(d.Headers[event.HeaderCreatedAt]); ok {
		since = created
	}
	if since.IsZero() {
		return -1
	}
	return max(0, time.Since(since)) // two machines' clocks meet here
}
