package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/task"
)

const (
	// pagesAtMost bounds one pass; what is left over comes with the next.
	pagesAtMost = 50
	// overdueEnough rows are counted exactly, beyond that it is "at least".
	overdueEnough = 1000
)

// errLaneClosed: FCM asked for a pause; the rows stay due, the next pass tries again.
var errLaneClosed = errors.New("lane to FCM is closed")

// Poll implements task.Poller: the old poll. It selects what is due and sends each by
// the same function as the handler.
func (d *dispatcher) Poll(ctx context.Context, s task.Scope) (task.Result, error) {
	var done task.Result
	for _, kind := range []dueKind{duePending, dueOrphaned} {
		err := d.eachPage(ctx, kind, s.OverdueBy, func(rows []dueRow) (bool, error) {
			n, err := d.pollPage(ctx, s, rows)
			done.Rows += n
			return true, err
		})
		if errors.Is(err, errLaneClosed) {
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// eachPage walks through the due rows of a kind, until f says no or all were seen.
func (d *dispatcher) eachPage(ctx context.Context, kind dueKind, by time.Duration, f func([]dueRow) (bool, error)) error {
	after := beforeAll()
	for range pagesAtMost {
		rows, err := d.store.duePage(ctx, kind, by, after, d.cfg.PollBatch)
		if err != nil || len(rows) == 0 {
			return err
		}
		if more, err := f(rows); err != nil || !more {
			return err
		}
		if len(rows) < d.cfg.PollBatch {
			return nil
		}
		after = rows[len(rows)-1]
	}
	return nil
}

// pollPage works on the rows of a page that are in scope, a few at a time. A row that
// fails holds up no other; the database being away and a closed lane end the page: no
// other row is begun, and those that were go on.
func (d *dispatcher) pollPage(ctx context.Context, s task.Scope, rows []dueRow) (int, error) {
	running, end := d.drained(ctx)
	defer end()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		worked int
		failed error
	)
	slots := make(chan struct{}, d.cfg.PollConcurrency)
	for _, row := range rows {
		slots <- struct{}{}
		if ctx.Err() != nil || !s.Owns(row.ID, row.CreatedAt) {
			<-slots
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			err := d.pollRow(ctx, running, row.ID)
			if s.Beat != nil {
				s.Beat()
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				worked++
			case errors.Is(err, errLaneClosed), db.IsUnavailable(err):
				stop(err)
			default:
				failed = fmt.Errorf("push %s: %w", row.ID, err)
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return worked, err
	}
	return worked, failed
}

// drained is the context of pushes under way, which lasts for the drain time after the
// order to stop: FCM may have taken what is cut off in mid-request, and would get it
// again. end is to be called when they are done.
func (d *dispatcher) drained(ctx context.Context) (running context.Context, end func()) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { // ends with running at the latest
		backoff.Sleep(running, d.cfg.Base.DrainTimeout)
		cancel()
	})
	return running, func() { unhook(); cancel() }
}

// pollRow sends one push, unless ctx ends before its turn comes; once begun it goes by
// running. If the event path owns the row at this time, the poll may never look at it
// again, so every further attempt gets a delayed event.
func (d *dispatcher) pollRow(ctx, running context.Context, id string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panicked with a value of type %T", v)
		}
	}()
	if _, open := d.enterLane(ctx); !open {
		return errLaneClosed
	}
	r, err := d.dispatch(running, id, func(time.Duration) bool { return d.eventOwns(id) })
	if err != nil {
		return err
	}
	zerolog.Ctx(ctx).Debug().Str("push_id", id).Str("status", r.finished).Dur("wait", r.wait).Msg("polled")
	return nil
}

// Overdue implements task.Poller.
func (d *dispatcher) Overdue(ctx context.Context, by time.Duration, owned func(string, time.Time) bool) (task.Overdue, error) {
	var o task.Overdue
	for _, kind := range []dueKind{duePending, dueOrphaned} {
		err := d.eachPage(ctx, kind, by, func(rows []dueRow) (bool, error) {
			for _, row := range rows {
				if owned(row.ID, row.CreatedAt) {
					o.Rows++
					o.Oldest = max(o.Oldest, time.Duration(row.Late)*time.Microsecond)
				}
			}
			return o.Rows < overdueEnough, nil
		})
		if err != nil {
			return o, err
		}
	}
	return o, nil
}
