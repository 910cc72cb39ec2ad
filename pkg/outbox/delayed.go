package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/db"
)

const (
	// delayedBatch bounds one move of delayed events.
	delayedBatch = insertMaxRows
	// delayedAside is how long an event that cannot be moved is put aside.
	delayedAside = time.Hour
)

// moveDelayed moves delayed events into outbox_event when they are due.
func (r *Relay) moveDelayed(ctx context.Context) {
	m := mover{store: r.store}
	every(ctx, r.cfg.DelayedEvery, func(ctx context.Context) bool {
		moveCtx, cancel := context.WithTimeout(ctx, r.cfg.PassTimeout)
		defer cancel()
		res, again, err := m.move(moveCtx)
		r.metrics.delayedMoved.Add(float64(res.moved))
		r.metrics.delayedDropped.Add(float64(res.dropped))
		if err != nil && ctx.Err() == nil {
			r.metrics.databaseErrors.Inc()
			r.logs.warn(ctx, "delayed", err, "delayed events cannot be moved, the relay tries again")
		}
		return again
	})
}

// mover moves due events in batches. When the database refuses a batch for what is in
// it, one event at a time is moved for a while, and the one that is refused is put
// aside: it keeps nobody waiting, and shows in the log until a person mends it.
type mover struct {
	store  relayStore
	single int
}

func (m *mover) move(ctx context.Context) (res moveResult, again bool, err error) {
	limit := delayedBatch
	if m.single > 0 {
		limit = 1
		m.single--
	}
	res, err = m.store.moveDue(ctx, limit)
	switch {
	case err == nil:
		return res, len(res.ids) == limit, nil
	case db.IsRetryable(err) || db.IsUnavailable(err) || db.IsMissing(err) || ctx.Err() != nil:
		return res, false, err
	case len(res.ids) > 1:
		m.single = delayedBatch
		return res, true, nil
	case len(res.ids) == 1:
		aside := m.store.putAside(ctx, res.ids[0])
		return res, aside == nil, errors.Join(fmt.Errorf("delayed event in row %s is put aside for %s: %w", res.ids[0], delayedAside, err), aside)
	}
	return res, false, err
}

type moveResult struct {
	ids     []string
	moved   int
	dropped int
}

// moveDue moves up to limit due events in one transaction: an event is in exactly one
// of the two tables at any time. One whose event_id is in outbox_event already is
// dropped: it was appended before. With an error, ids are the rows of the batch.
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
	for _, r := range rows {
		res.ids = append(res.ids, r.id)
	}
	existing := make(map[string]bool)
	for chunk := range chunks(rows) {
		if err := insertRows(ctx, tx, intoOutbox(), chunk, existing); err != nil {
			return res, fmt.Errorf("move delayed events: %w", err)
		}
	}
	if err := deleteDelayed(ctx, tx, res.ids); err != nil {
		return res, err
	}
	if err := tx.Commit(); err != nil {
		return res, fmt.Errorf("move delayed events: commit: %w", err)
	}
	res.moved, res.dropped = len(rows)-len(existing), len(existing)
	return res, nil
}
