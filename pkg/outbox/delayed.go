package outbox

import (
	"context"
	"fmt"
	"time"
)

// delayedBatch bounds one move of delayed events.
const delayedBatch = insertMaxRows

// moveDelayed moves delayed events into outbox_event when they are due.
func (r *Relay) moveDelayed(ctx context.Context) {
	every(ctx, r.cfg.DelayedEvery, func(ctx context.Context) bool {
		moveCtx, cancel := context.WithTimeout(ctx, r.cfg.PassTimeout)
		defer cancel()
		m, err := r.store.moveDue(moveCtx, delayedBatch)
		if err != nil {
			if ctx.Err() == nil {
				r.metrics.databaseErrors.Inc()
				r.logs.warn(ctx, "delayed", err, "delayed events cannot be moved, the relay tries again")
			}
			return false
		}
		r.metrics.delayedMoved.Add(float64(m.moved))
		r.metrics.delayedDropped.Add(float64(m.dropped))
		return m.moved+m.dropped == delayedBatch
	})
}

type moveResult struct {
	moved   int
	dropped int
}

// moveDue moves up to limit due events in one transaction: an event is in exactly one
// of the two tables at any time. One whose event_id is in outbox_event already is
// dropped: it was appended before.
func (s relayStore) moveDue(ctx context.Context, limit int) (moveResult, error) {
	var res moveResult
	due, err := s.dueWaiting(ctx)
	if err != nil || !due {
		return res, err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return res, fmt.Errorf("move delayed events: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	rows, err := claimDue(ctx, tx, limit)
	if err != nil || len(rows) == 0 {
		return res, err
	}
	existing := make(map[string]bool)
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.id
	}
	for chunk := range chunks(rows) {
		if err := insertRows(ctx, tx, intoOutbox(), chunk, existing); err != nil {
			return res, fmt.Errorf("move delayed events: %w", err)
		}
	}
	if err := deleteDelayed(ctx, tx, ids); err != nil {
		return res, err
	}
	if err := tx.Commit(); err != nil {
		return res, fmt.Errorf("move delayed events: commit: %w", err)
	}
	return moveResult{moved: len(rows) - len(existing), dropped: len(existing)}, nil
}

// sampleEvery is how often the gauges are refreshed.
const sampleEvery = 10 * time.Second

// sample refreshes the gauges that need the database.
func (r *Relay) sample(ctx context.Context) {
	store := Store{db: r.store.db}
	every(ctx, sampleEvery, func(ctx context.Context) bool {
		sampleCtx, cancel := context.WithTimeout(ctx, r.cfg.PassTimeout)
		defer cancel()
		q, err := store.queue(sampleCtx, gaugeCap)
		if err != nil {
			if ctx.Err() == nil {
				r.metrics.databaseErrors.Inc()
				r.logs.warn(ctx, "sample", err, "figures of the outbox cannot be read, the gauges are old")
			}
			return false
		}
		r.metrics.pending.Set(float64(q.Pending.N))
		r.metrics.oldestPending.Set(q.OldestPending.Seconds())
		r.metrics.failedRows.Set(float64(q.Failed.N))
		r.metrics.delayedRows.Set(float64(q.Delayed.N))
		return false
	})
}
