package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
)

// claimed is a row as every relay needs it: all that is published.
type claimed struct {
	id, eventID, eventType, aggregateType, aggregateID string
	payload                                            []byte
	retries                                            int
	created                                            time.Time
	traceparent, requestID                             string
}

const claimSQL = `SELECT id, event_id, event_type, aggregate_type, aggregate_id, payload_json,
		retry_count, created_at, COALESCE(traceparent, ''), COALESCE(request_id, '')
	FROM outbox_event FORCE INDEX (idx_status_created)
	WHERE status = 'PENDING' AND (available_at IS NULL OR available_at <= NOW(3))`

const claimEnd = ` ORDER BY created_at, id LIMIT ? FOR UPDATE SKIP LOCKED`

func claim(ctx context.Context, tx *sql.Tx, where string, args ...any) ([]claimed, error) {
	rows, err := tx.QueryContext(ctx, claimSQL+where+claimEnd, args...)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []claimed
	for rows.Next() {
		var c claimed
		if err := rows.Scan(&c.id, &c.eventID, &c.eventType, &c.aggregateType, &c.aggregateID, &c.payload,
			&c.retries, &c.created, &c.traceparent, &c.requestID); err != nil {
			return nil, fmt.Errorf("claim: %w", err)
		}
		out = append(out, c)
	}
	return out, rows.Err()
}

func mark(ctx context.Context, tx *sql.Tx, rows []claimed) error {
	args := make([]any, len(rows))
	for i := range rows {
		args[i] = rows[i].id
	}
	_, err := tx.ExecContext(ctx, `UPDATE outbox_event SET status = 'PUBLISHED', published_at = NOW(3)
		WHERE id IN (?`+strings.Repeat(", ?", len(args)-1)+`) AND status = 'PENDING'`, args...)
	if err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	return nil
}

// split is what the floor's statements took, summed.
type split struct{ claim, mark, commit time.Duration }

// drainFloor is the least that any relay on this table does to the database: claim
// batches through a window that moves over created_at, mark them, commit. It publishes
// nothing. It knows what no relay knows: that there are n events in all, and that no
// row appears behind the window.
func (b *bed) drainFloor(ctx context.Context, n int, done *atomic.Int64) error {
	var lo time.Time
	if err := b.db.QueryRowContext(ctx, "SELECT MIN(created_at) FROM outbox_event").Scan(&lo); err != nil {
		return fmt.Errorf("find the window's start: %w", err)
	}
	width := 100 * time.Millisecond
	for int(done.Load()) < n {
		rows, err := b.claimAndMark(ctx, lo, lo.Add(width))
		if err != nil {
			return err
		}
		done.Add(int64(len(rows)))
		if len(rows) < b.Batch {
			lo, width = lo.Add(width), 2*width
			continue
		}
		lo = rows[len(rows)-1].created
		// Wide enough for the next batch, and so narrow that the servers read the range
		// and not all of the status.
		width = max(time.Millisecond, lo.Sub(rows[0].created)*3/2)
	}
	return nil
}

func (b *bed) claimAndMark(ctx context.Context, from, to time.Time) ([]claimed, error) {
	began := time.Now()
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	rows, err := claim(ctx, tx, " AND created_at >= ? AND created_at < ?", from, to, b.Batch)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	claimed := time.Now()
	if err := mark(ctx, tx, rows); err != nil {
		return nil, err
	}
	marked := time.Now()
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	b.floor.claim += claimed.Sub(began)
	b.floor.mark += marked.Sub(claimed)
	b.floor.commit += time.Since(marked)
	return rows, nil
}

// drainNaive is the relay that one writes first: take a batch from the head of the
// queue, then send and mark its rows one by one. It is the better one of its kind: it
// commits once for a batch, not for each row, and locks what it sends.
func (b *bed) drainNaive(ctx context.Context, n int, done *atomic.Int64) error {
	bus, err := provider.Open(b.topic.config(), env, country, zerolog.Nop())
	if err != nil {
		return err
	}
	defer func() { _ = bus.Close(context.WithoutCancel(ctx)) }()
	for int(done.Load()) < n {
		if err := b.naiveBatch(ctx, bus.Publisher(), done); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) naiveBatch(ctx context.Context, p *eventbus.Publisher, done *atomic.Int64) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	rows, err := claim(ctx, tx, "", b.Batch)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := p.Publish(ctx, eventbus.Topic(country), r.eventType, r.eventID, r.payload); err != nil {
			return err
		}
		if err := mark(ctx, tx, []claimed{r}); err != nil {
			return err
		}
		done.Add(1)
	}
	return tx.Commit()
}
