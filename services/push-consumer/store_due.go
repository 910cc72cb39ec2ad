package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/task"
)

// dueRow is a push that could be leased.
type dueRow struct {
	ID        string
	CreatedAt time.Time
	Since     time.Time // when it became due, or its lease ran out
	Late      int64     // the same as microseconds before the database's now
}

// dueKind says which of the two reasons to be due a page is about; each has its index.
type dueKind int

const (
	duePending dueKind = iota
	dueOrphaned
)

// beforeAll stands before the first due row.
func beforeAll() dueRow { return dueRow{Since: time.Date(1901, 1, 1, 0, 0, 0, 0, time.UTC)} }

// sqlDuePending reads a page of the range that begins behind a key, and nothing before
// it: a campaign makes many pushes due at one instant, and the pages within them must not
// grow. So the two parts of the key bound the range together; and the status is compared
// by >= and <=, since for an = MariaDB prefers to look the status up and to read from its
// first row on, for each page. A test measures both.
const sqlDuePending = `SELECT id, created_at, due_at AS since, TIMESTAMPDIFF(MICROSECOND, due_at, NOW(3)) AS late
	FROM push_messages
	WHERE status >= 'PENDING' AND status <= 'PENDING' AND due_at <= NOW(3) - INTERVAL ? MICROSECOND
	  AND (due_at > ? OR (due_at = ? AND id > ?))
	ORDER BY status, due_at, id LIMIT ?`

// sqlDueOrphaned sorts by an expression: few rows are SENDING at a time.
const sqlDueOrphaned = `SELECT id, created_at, since, TIMESTAMPDIFF(MICROSECOND, since, NOW(3)) AS late
	FROM (SELECT id, created_at, COALESCE(lease_until, updated_at) AS since
	      FROM push_messages WHERE status = 'SENDING') AS sending
	WHERE since <= NOW(3) - INTERVAL ? MICROSECOND AND (since > ? OR (since = ? AND id > ?))
	ORDER BY since, id LIMIT ?`

// duePage reads the pushes that have been due for longer than by, the oldest first,
// from just behind the row given.
func (s store) duePage(ctx context.Context, kind dueKind, by time.Duration, after dueRow, limit int) ([]dueRow, error) {
	statement := sqlDuePending
	if kind == dueOrphaned {
		statement = sqlDueOrphaned
	}
	var rows []dueRow
	if err := s.db.WithContext(ctx).Raw(statement, duePageArgs(by, after, limit)...).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read due pushes: %w", err)
	}
	return rows, nil
}

func duePageArgs(by time.Duration, after dueRow, limit int) []any {
	return []any{by.Microseconds(), after.Since, after.Since, after.ID, limit}
}

// tables are those that the service reads or writes.
func tables() []task.Table {
	return []task.Table{
		{Name: "push_messages", Columns: []string{"id", "user_id", "title", "body", "data_json", "status", "due_at", "expires_at",
			"attempt", "lease_owner", "lease_until", "last_error", "sent_at", "created_at", "updated_at"}},
		{Name: "user_devices", Columns: []string{"id", "user_id", "push_token", "active", "deactivated_at", "updated_at"}},
		{Name: "mq_push_attempts", Columns: []string{"push_id", "device_id", "attempt", "owner", "state", "provider_id", "error_code",
			"started_at", "finished_at"}},
		{Name: "mq_delayed_event", Columns: []string{"event_id", "due_at"}},
	}
}
