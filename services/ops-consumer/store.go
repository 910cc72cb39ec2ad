package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/task"
)

// store is all SQL of the service, in the files store*.go. The app's tables are read
// under the names and columns of tables; mq_… are ours. Times are the database's.
type store struct {
	// db is for the counters; sweep is the figures' own pool, so that a slow statement
	// keeps no event waiting.
	db      *gorm.DB
	sweep   *gorm.DB
	pool    *sql.DB // under sweep
	country string
}

// tables are those that the service reads or writes.
func tables() []task.Table {
	return []task.Table{
		{Name: "push_messages", Columns: []string{"status", "due_at", "updated_at"}},
		{Name: "wa_inbound_messages", Columns: []string{"status", "created_at"}},
		{Name: "wa_outbound_messages", Columns: []string{"status", "created_at", "updated_at"}},
		{Name: "payment_webhook_events", Columns: []string{"status", "created_at", "updated_at"}},
		{Name: "commission_records", Columns: []string{"status", "available_at", "created_at"}},
		{Name: "affiliate_orders", Columns: []string{"created_at"}},
		{Name: "risk_events", Columns: []string{"created_at"}},
		{Name: "outbox_event", Columns: []string{"event_id", "available_at", "requeued_at", "traceparent", "request_id"}},
		{Name: "mq_dead_letter", Columns: []string{"status", "headers_json"}},
		{Name: "mq_lease", Columns: []string{"name", "fence"}},
		{Name: "mq_budget", Columns: []string{"name", "rate"}},
		{Name: "mq_task_health", Columns: []string{"consumer_group", "in_hand_age_ms", "note"}},
		{Name: "mq_ops_counted", Columns: []string{"event_id", "counted_at"}},
		{Name: "mq_ops_bucket", Columns: []string{"metric", "country", "minute", "n", "apart"}},
		{Name: "mq_ops_agreement", Columns: []string{"metric", "country", "counting_from", "agreements"}},
		{Name: "mq_ops_figure", Columns: []string{"name", "country", "subject", "value"}},
		{Name: "mq_alert", Columns: []string{"fingerprint", "state"}},
		{Name: "mq_alert_message", Columns: []string{"route", "status", "message_json"}},
	}
}

// reader is a connection on which every statement has a time limit that the server keeps.
type reader struct{ conn *sql.Conn }

// reader takes a connection of the sweep's pool and sets the limit. Give it back.
func (s store) reader(ctx context.Context, limit time.Duration) (reader, error) {
	conn, err := s.pool.Conn(ctx)
	if err != nil {
		return reader{}, fmt.Errorf("take a connection for the figures: %w", err)
	}
	// MySQL knows the first variable (milliseconds), MariaDB the second (seconds).
	_, err = conn.ExecContext(ctx, fmt.Sprintf("SET SESSION max_execution_time = %d", limit.Milliseconds()))
	if err != nil {
		_, err = conn.ExecContext(ctx, fmt.Sprintf("SET SESSION max_statement_time = %.3f", limit.Seconds()))
	}
	if err != nil {
		return reader{}, errors.Join(fmt.Errorf("limit the time of statements: %w", err), conn.Close())
	}
	return reader{conn}, nil
}

func (r reader) close() error { return r.conn.Close() }

// number runs a statement that selects one number; NULL is an error, never 0.
func (r reader) number(ctx context.Context, query string, args ...any) (float64, error) {
	var v sql.NullFloat64
	if err := r.conn.QueryRowContext(ctx, query, args...).Scan(&v); err != nil {
		return 0, err
	}
	if !v.Valid {
		return 0, errors.New("the statement gave NULL")
	}
	return v.Float64, nil
}

// each runs a statement and calls scan for each of its rows.
func (r reader) each(ctx context.Context, query string, scan func(row *sql.Rows) error, args ...any) (err error) {
	rows, err := r.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := rows.Close(); closeErr != nil && err == nil {
			err = closeErr
		}
	}()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// now is the database's time.
func (r reader) now(ctx context.Context) (time.Time, error) {
	var t time.Time
	if err := r.conn.QueryRowContext(ctx, "SELECT NOW(3)").Scan(&t); err != nil {
		return t, fmt.Errorf("read the database's time: %w", err)
	}
	return t, nil
}

// sinceSweep is how long ago the last sweep wrote its figures; ok is false if none did.
func (r reader) sinceSweep(ctx context.Context, country string) (d time.Duration, ok bool, err error) {
	var us sql.NullInt64
	err = r.conn.QueryRowContext(ctx, `SELECT TIMESTAMPDIFF(MICROSECOND, MAX(measured_at), NOW(3)) FROM mq_ops_figure WHERE country = ?`,
		country).Scan(&us)
	if err != nil {
		return 0, false, fmt.Errorf("read when the last sweep was: %w", err)
	}
	return time.Duration(us.Int64) * time.Microsecond, us.Valid, nil
}

// ping asks for a sign of life.
func (s store) ping(ctx context.Context) error {
	var one int
	return s.pool.QueryRowContext(ctx, "SELECT 1").Scan(&one)
}

// purge removes one batch each of what is no longer needed, and says whether more is
// left. Messages that still wait to be sent stay.
func (s store) purge(ctx context.Context, keepIDs, keepAlerts time.Duration) (more bool, err error) {
	const batch = 2000
	const keepBuckets = 8 * 24 * time.Hour
	for _, p := range []struct {
		what, statement string
		args            []any
	}{
		{"counted ids", `DELETE FROM mq_ops_counted WHERE counted_at < NOW(3) - INTERVAL ? MICROSECOND ORDER BY counted_at LIMIT ?`,
			[]any{keepIDs.Microseconds(), batch}},
		{"buckets", `DELETE FROM mq_ops_bucket WHERE minute < NOW(3) - INTERVAL ? MICROSECOND ORDER BY minute LIMIT ?`,
			[]any{keepBuckets.Microseconds(), batch}},
		{"messages", `DELETE FROM mq_alert_message WHERE created_at < NOW(3) - INTERVAL ? MICROSECOND AND status <> 'QUEUED' ORDER BY created_at LIMIT ?`,
			[]any{keepAlerts.Microseconds(), batch}},
		{"alerts", `DELETE FROM mq_alert WHERE state = 'RESOLVED' AND updated_at < NOW(3) - INTERVAL ? MICROSECOND ORDER BY updated_at LIMIT ?`,
			[]any{keepAlerts.Microseconds(), batch}},
	} {
		res := s.sweep.WithContext(ctx).Exec(p.statement, p.args...)
		if res.Error != nil {
			return false, fmt.Errorf("remove old %s: %w", p.what, res.Error)
		}
		more = more || res.RowsAffected == batch
	}
	return more, nil
}
