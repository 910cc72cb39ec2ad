package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// fillStep is how many rows one INSERT makes.
const fillStep = 1000

// prepareFill makes the numbers that fill makes rows of.
func prepareFill(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, "CREATE TABLE bench_numbers (n INT NOT NULL PRIMARY KEY)"); err != nil {
		return fmt.Errorf("make the numbers: %w", err)
	}
	values := make([]byte, 0, 8*fillStep)
	for n := range fillStep {
		values = fmt.Appendf(values, "(%d),", n)
	}
	if _, err := db.ExecContext(ctx, "INSERT INTO bench_numbers VALUES "+string(values[:len(values)-1])); err != nil {
		return fmt.Errorf("make the numbers: %w", err)
	}
	return nil
}

// fill leaves outbox_event with n PENDING events and nothing else, numbered from 0,
// as an outage leaves them behind: written one after the other at the backlog's rate,
// the last one just now. The rows are as the relay finds them in production, trace and
// request id included.
func (b *bed) fill(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute+time.Duration(n)*time.Millisecond)
	defer cancel()
	if _, err := b.db.ExecContext(ctx, "TRUNCATE TABLE outbox_event"); err != nil {
		return fmt.Errorf("empty the outbox: %w", err)
	}
	step := int(time.Second/time.Microsecond) / b.BacklogRate
	var first string
	if err := b.db.QueryRowContext(ctx, "SELECT CAST(NOW(3) - INTERVAL ? MICROSECOND AS CHAR)", n*step).Scan(&first); err != nil {
		return fmt.Errorf("fill the outbox: %w", err)
	}
	for from := 0; from < n; from += fillStep {
		// The number is spelled out again and again: a derived table for it costs more.
		// SHA2 and not MD5, which MySQL 9 has no more.
		_, err := b.db.ExecContext(ctx, `INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id,
				payload_json, status, retry_count, created_at, traceparent, request_id)
			SELECT CONCAT('obe', LOWER(CONV(1700000000000 + ? + n, 10, 36)), SUBSTR(SHA2(? + n, 256), 1, 12)),
				CONCAT('push:', ? + n), 'PUSH_DISPATCH', 'push_task', ? + n,
				CONCAT(RPAD(CONCAT('{"pushId":"', ? + n, '","text":"'), ?, 'x'), '"}'), 'PENDING', 0,
				CAST(? AS DATETIME(3)) + INTERVAL (? + n) * ? MICROSECOND,
				CONCAT('00-', SUBSTR(SHA2(? + n, 256), 1, 32), '-', SUBSTR(SHA2(? + n, 256), 1, 16), '-01'), CONCAT('req-', ? + n)
			FROM bench_numbers WHERE n < ? ORDER BY n`,
			from, from, from, from, from, max(b.BodyBytes-2, 1), first, from, step, from, from, from, n-from)
		if err != nil {
			return fmt.Errorf("fill the outbox: %w", err)
		}
	}
	// A table in use has statistics.
	if _, err := b.db.ExecContext(ctx, "ANALYZE TABLE outbox_event"); err != nil {
		return fmt.Errorf("fill the outbox: %w", err)
	}
	return pause(ctx, 300*time.Millisecond)
}

// pending counts what is not published. It reads the whole status, so it is not for
// while something is measured.
func (b *bed) pending(ctx context.Context) (n int, err error) {
	err = b.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE status <> 'PUBLISHED'").Scan(&n)
	return n, err
}
