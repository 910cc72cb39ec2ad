package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// window works a backlog off: a part of created_at with both bounds that moves over it,
// from the oldest row to the tail, so that a claim does not walk over the marked rows
// that the ones before it have left. It is about speed alone: what falls behind it (an
// event that was backed off, or locked by another relay, or committed late) is found
// by the sweep.
//
// It opens when a sweep comes back full, at the place that the sweep has reached, and
// closes when it meets the tail or when a sweep comes back with less than a batch.
type window struct {
	open  bool
	lo    time.Time
	width time.Duration
}

const (
	// A narrow window makes MariaDB read the range and not the whole status; a wide
	// one crosses a stretch with few events in one step.
	windowMin = 100 * time.Millisecond
	windowMax = time.Hour
)

// swept follows a sweep. One that was full while the window is open moves it back only
// if all of its rows lay below: then there is more than a batch down there.
func (w *window) swept(res passResult, full bool) {
	switch {
	case !full:
		w.open = false
	case !w.open || res.last.Before(w.lo):
		*w = window{open: true, lo: res.last, width: windowMin}
	}
}

func (w *window) scope() scope {
	return scope{
		name: "backlog", where: `
		AND created_at >= ? AND created_at < ?`,
		args: []any{w.lo, w.lo.Add(w.width)},
	}
}

// passed follows a pass over the window that found rows. A full one stays, from its last
// row on: there are more, perhaps of the same instant. The width then fits what a batch
// spans, and grows where rows are few.
func (w *window) passed(res passResult) {
	if res.more {
		w.lo = res.last
		w.width = min(windowMax, max(windowMin, 2*res.last.Sub(res.first)))
		return
	}
	w.skip()
}

// skip goes on behind the window, with a wider one.
func (w *window) skip() {
	w.lo = w.lo.Add(w.width)
	w.width = min(windowMax, 2*w.width)
}

// nextFrom finds the next waiting row at or after a time. inTail says that the tail has
// it in sight.
func (s relayStore) nextFrom(ctx context.Context, from time.Time) (at time.Time, inTail, ok bool, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT created_at, created_at >= NOW(3) - INTERVAL 3 SECOND`+pending+`
		AND created_at >= ? ORDER BY created_at LIMIT 1`, from).Scan(&at, &inTail)
	if errors.Is(err, sql.ErrNoRows) {
		return at, false, false, nil
	}
	if err != nil {
		return at, false, false, fmt.Errorf("look for the next waiting event: %w", err)
	}
	return at, inTail, true, nil
}

// workWindow does one pass over the window, or moves it to where the next row is.
func (w *worker) workWindow(ctx context.Context) look {
	res := w.try(ctx, w.window.scope(), w.cfg.BatchRows)
	if !res.ok {
		return res
	}
	if res.claimed > 0 {
		w.window.passed(res.passResult)
		return res
	}
	w.window.skip()
	ctx, cancel := context.WithTimeout(ctx, w.cfg.PassTimeout)
	defer cancel()
	at, inTail, ok, err := w.store.nextFrom(ctx, w.window.lo)
	switch {
	case err != nil:
		return w.databaseTrouble(ctx, err)
	case !ok || inTail:
		w.window.open = false
	case at.After(w.window.lo):
		w.window = window{open: true, lo: at, width: windowMin}
	}
	return res
}
