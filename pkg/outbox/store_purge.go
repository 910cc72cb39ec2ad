package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/db"
)

// cursor is a place in the order of (created_at, id) within one status. createdAt is
// text as the database renders it, so that it compares exactly, whatever precision
// the column has and whatever the client would make of a time.
type cursor struct {
	createdAt string
	id        string
}

// start is before every row.
func (c cursor) orStart() cursor {
	if c.createdAt == "" {
		c.createdAt = "1000-01-01"
	}
	return c
}

// purgeable reads one page of rows to delete after the cursor.
func (s *Store) purgeable(ctx context.Context, age time.Duration, after cursor) ([]cursor, error) {
	after = after.orStart()
	rows, err := s.db.QueryContext(ctx, `SELECT CAST(created_at AS CHAR), id
		FROM outbox_event FORCE INDEX (idx_status_created)
		WHERE status = 'PUBLISHED' AND created_at < NOW(3) - INTERVAL ? MICROSECOND
			AND created_at >= ? AND (created_at > ? OR id > ?)
			AND COALESCE(published_at, created_at) < NOW(3) - INTERVAL ? MICROSECOND
		ORDER BY created_at, id LIMIT ?`,
		age.Microseconds(), after.createdAt, after.createdAt, after.id, age.Microseconds(), purgeBatch)
	if err != nil {
		return nil, fmt.Errorf("find rows to purge: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var page []cursor
	for rows.Next() {
		var c cursor
		if err := rows.Scan(&c.createdAt, &c.id); err != nil {
			return nil, fmt.Errorf("find rows to purge: %w", err)
		}
		page = append(page, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("find rows to purge: %w", err)
	}
	return page, nil
}

// purgePage deletes a page. The conditions are repeated: a row may have been requeued
// since, and published again.
func (s *Store) purgePage(ctx context.Context, age time.Duration, page []cursor) (int64, error) {
	ids := make([]string, len(page))
	for i, c := range page {
		ids[i] = c.id
	}
	in, args := inList(ids)
	args = append(args, age.Microseconds())
	wait := backoff.Policy{Base: 20 * time.Millisecond, Max: time.Second}
	for try := 1; ; try++ {
		res, err := s.db.ExecContext(ctx, `DELETE FROM outbox_event WHERE id IN (`+in+`)
			AND status = 'PUBLISHED' AND COALESCE(published_at, created_at) < NOW(3) - INTERVAL ? MICROSECOND`, args...)
		if err == nil {
			return res.RowsAffected()
		}
		// The statement is its own transaction, so it may be tried again by itself.
		if !db.IsRetryable(err) || try == purgeTries || !backoff.Sleep(ctx, wait.Delay(try)) {
			return 0, fmt.Errorf("purge %d rows: %w", len(page), err)
		}
	}
}
