package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
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
	open bool
	// lo and id are the place behind which it begins.
	lo    time.Time
	id    string
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
		*w = window{open: true, lo: res.last, id: res.lastID, width: windowMin}
	}
}

const backlogName = "backlog"

func (w *window) scope() scope {
	return scope{
		name: backlogName, where: `
		AND created_at >= ? AND created_at < ? AND (created_at > ? OR id > ?)`,
		args: []any{w.lo, w.lo.Add(w.width), w.lo, w.id},
	}
}

// passed follows a claim in the window that found rows. A full one stays, from its last
// row on: there are more, perhaps of the same instant. The width then fits what a batch
// spans, and grows where rows are few.
func (w *window) passed(res passResult) {
	if res.more {
		w.lo, w.id = res.last, res.lastID
		w.width = min(windowMax, max(windowMin, 2*res.last.Sub(res.first)))
		return
	}
	w.skip()
}

// back returns to where a batch began.
func (w *window) back(res passResult) { w.lo, w.id = res.first, "" }

// skip goes on behind the window, with a wider one.
func (w *window) skip() {
	w.lo, w.id = w.lo.Add(w.width), ""
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

// burst is how long the backlog is worked on before the tail gets its turn.
const burst = 150 * time.Millisecond

// workWindow works on the window for a while, or moves it to where the next row is.
// While the broker is being waited for, the next rows are claimed on another connection,
// and while the server commits a batch the next one is sent: at any time one batch at most
// is sent and not marked, and the one before it is marked and being committed. The window
// moves behind each claim, so that within a burst no row is claimed twice, with row locks
// or without.
func (w *worker) workWindow(ctx context.Context) look {
	until := time.Now().Add(burst)
	b, err := w.claim(ctx, w.window.scope(), w.size.limit(w.cfg.BatchRows))
	if err != nil {
		return w.databaseTrouble(ctx, err)
	}
	if b == nil {
		return w.moveWindow(ctx)
	}
	var before *commit
	for {
		w.window.passed(b.span())
		var next *batch
		var nextErr error
		var claiming sync.WaitGroup
		if b.more && time.Now().Before(until) {
			where, limit := w.window.scope(), w.size.limit(w.cfg.BatchRows)
			claiming.Go(func() { next, nextErr = w.claim(ctx, where, limit) })
		}
		outs, err := w.send(b)
		got := w.awaitCommit(ctx, before)
		var m marked
		if err == nil {
			m, err = w.mark(b, outs)
		}
		claiming.Wait()
		if got.ok && err == nil && m.res.trouble == Confirmed && next != nil &&
			ctx.Err() == nil && time.Until(next.deadline) >= w.cfg.PublishTimeout {
			before = commitMeanwhile(m)
			b = next
			w.beat()
			continue
		}
		if next != nil {
			next.release()
		}
		if err == nil {
			err = w.committed(m, m.commit())
		}
		last := w.judged(ctx, backlogName, m.res, err)
		switch {
		case !got.ok:
			return got
		case !last.ok:
			w.window.back(b.span()) // what is left of it waits there
			return last
		case nextErr != nil:
			return w.databaseTrouble(ctx, nextErr)
		}
		return last
	}
}

// commit is one that is under way.
type commit struct {
	m    marked
	done chan error
}

func commitMeanwhile(m marked) *commit {
	c := &commit{m: m, done: make(chan error, 1)}
	go func() { c.done <- m.commit() }() // ends by the pass's deadline, and is waited for
	return c
}

// awaitCommit waits for the commit of the batch before, if there is one.
func (w *worker) awaitCommit(ctx context.Context, c *commit) look {
	if c == nil {
		return look{ok: true}
	}
	got := w.judged(ctx, backlogName, c.m.res, w.committed(c.m, <-c.done))
	if !got.ok {
		w.window.back(c.m.res) // its rows wait there, and those of the batch behind it
	}
	return got
}

// moveWindow moves an empty window to the next row, or closes it.
func (w *worker) moveWindow(ctx context.Context) look {
	w.dbErrors = 0
	w.state.passed()
	w.window.skip()
	queryCtx, cancel := context.WithTimeout(ctx, w.cfg.PassTimeout)
	defer cancel()
	at, inTail, ok, err := w.store.nextFrom(queryCtx, w.window.lo)
	switch {
	case err != nil:
		return w.databaseTrouble(ctx, err)
	case !ok || inTail:
		w.window.open = false
	case at.After(w.window.lo):
		w.window = window{open: true, lo: at, width: windowMin}
	}
	return look{passResult: passResult{trouble: Confirmed}, ok: true}
}
