package books

import (
	"context"
	"database/sql"
	"fmt"
)

// Read takes the tables in one snapshot.
func Read(ctx context.Context, db *sql.DB) (Tables, error) {
	t, err := read(ctx, db)
	if err != nil {
		return Tables{}, fmt.Errorf("read the books: %w", err)
	}
	return t, nil
}

func read(ctx context.Context, db *sql.DB) (t Tables, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return t, err
	}
	defer func() { _ = tx.Rollback() }()
	if t.Pushes, err = collect(ctx, tx, "SELECT id, user_id, status FROM push_messages",
		func(p *PushRow) []any { return []any{&p.ID, &p.UserID, &p.Status} }); err != nil {
		return t, err
	}
	if t.Devices, err = collect(ctx, tx, "SELECT id, user_id, push_token, active FROM user_devices",
		func(d *DeviceRow) []any { return []any{&d.ID, &d.UserID, &d.Token, &d.Active} }); err != nil {
		return t, err
	}
	if t.Events, err = collect(ctx, tx, "SELECT event_id, aggregate_id, status FROM outbox_event",
		func(e *EventRow) []any { return []any{&e.EventID, &e.AggregateID, &e.Status} }); err != nil {
		return t, err
	}
	id := func(id *string) []any { return []any{id} }
	if t.Delayed, err = collect(ctx, tx, "SELECT event_id FROM mq_delayed_event", id); err != nil {
		return t, err
	}
	if t.DeadLetters, err = collect(ctx, tx, "SELECT event_id FROM mq_dead_letter", id); err != nil {
		return t, err
	}
	t.Fallbacks, err = collect(ctx, tx, "SELECT task, instance, fallback_runs, fallback FROM mq_task_health",
		func(f *Fallback) []any { return []any{&f.Task, &f.Instance, &f.Runs, &f.Now} })
	return t, err
}

func collect[T any](ctx context.Context, tx *sql.Tx, query string, fields func(*T) []any) ([]T, error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	defer func() { _ = rows.Close() }()
	var all []T
	for rows.Next() {
		var row T
		if err := rows.Scan(fields(&row)...); err != nil {
			return nil, fmt.Errorf("%s: %w", query, err)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	return all, nil
}
