package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// dueWaiting looks for a due event without a transaction.
func (s relayStore) dueWaiting(ctx context.Context) (bool, error) {
	var one int
	err := s.db.QueryRowContext(ctx,
		"SELECT 1 FROM mq_delayed_event WHERE due_at <= NOW(3) LIMIT 1").Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for due events: %w", err)
	}
	return true, nil
}

// claimDue locks due events, the longest due first. Others' locked ones are skipped, so
// that several relays may do this at a time.
func claimDue(ctx context.Context, tx *sql.Tx, limit int) ([]row, error) {
	rows, err := tx.QueryContext(ctx, `SELECT id, event_id, event_type, aggregate_type, aggregate_id, payload_json,
			COALESCE(traceparent, ''), COALESCE(request_id, '')
		FROM mq_delayed_event FORCE INDEX (idx_due)
		WHERE due_at <= NOW(3) ORDER BY due_at, id LIMIT ? FOR UPDATE SKIP LOCKED`, limit)
	if err != nil {
		return nil, fmt.Errorf("claim due events: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []row
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.id, &r.EventID, &r.Type, &r.AggregateType, &r.AggregateID, &r.Payload,
			&r.trace.Traceparent, &r.trace.RequestID); err != nil {
			return nil, fmt.Errorf("claim due events: read a row: %w", err)
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("claim due events: read rows: %w", err)
	}
	return out, nil
}

func deleteDelayed(ctx context.Context, tx *sql.Tx, ids []string) error {
	in, args := inList(ids)
	res, err := tx.ExecContext(ctx, "DELETE FROM mq_delayed_event WHERE id IN ("+in+")", args...)
	if err != nil {
		return fmt.Errorf("delete moved events: %w", err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("delete moved events: count them: %w", err)
	}
	if n != int64(len(ids)) {
		return fmt.Errorf("delete moved events: %d of %d were there: %w", n, len(ids), ErrRaced)
	}
	return nil
}

// putAside makes a row due later.
func (s relayStore) putAside(ctx context.Context, id string) error {
	_, err := s.db.ExecContext(ctx,
		"UPDATE mq_delayed_event SET due_at = NOW(3) + INTERVAL ? MICROSECOND WHERE id = ?", delayedAside.Microseconds(), id)
	if err != nil {
		return fmt.Errorf("put delayed event aside: %w", err)
	}
	return nil
}
