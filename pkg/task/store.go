package task

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// errOtherWasFirst: another process made the same change of the fallback's state.
var errOtherWasFirst = errors.New("another process was first")

// successTolerance: health rows lag by up to a second, so a success this long before
// a failure still counts as "meanwhile".
const successTolerance = 10 * time.Second

// RoleFallback is the role of the row in mq_task_health that holds a task's fallback
// state for all its processes; its instance is "fallback:<country>".
const RoleFallback = "fallback"

// RoleRelay is the role of a relay's row; RoleWatch that of what a relay, which has a
// connection to the broker, tells of a consumer group, its members or none.
const (
	RoleRelay = "relay"
	RoleWatch = "watch"
)

// healthStore is the SQL of mq_task_health.
type healthStore struct {
	db       *sql.DB
	task     string
	country  string
	instance string
	role     string
}

func (s *healthStore) sharedInstance() string { return "fallback:" + s.country }

// write replaces what this instance said before. The counters of the fallback are
// not its business and stay.
func (s *healthStore) write(ctx context.Context, f figures) error {
	_, err := s.db.ExecContext(ctx, `INSERT INTO mq_task_health
		(task, instance, country, role, failures_since_success, last_success_at, last_failure_at, last_pass_at,
		 event_age_ms, overdue, last_confirm_at, consumer_group, backlog, oldest_age_ms,
		 in_hand_age_ms, note, updated_at)
		VALUES (?, ?, ?, ?, ?, NOW(3) - INTERVAL ? MICROSECOND, NOW(3) - INTERVAL ? MICROSECOND,
		 NOW(3) - INTERVAL ? MICROSECOND, ?, ?, NOW(3) - INTERVAL ? MICROSECOND, NULLIF(?, ''), ?, ?, ?, NULLIF(?, ''), NOW(3))
		ON DUPLICATE KEY UPDATE country = VALUES(country), role = VALUES(role),
		 failures_since_success = VALUES(failures_since_success),
		 last_success_at = COALESCE(VALUES(last_success_at), last_success_at),
		 last_failure_at = COALESCE(VALUES(last_failure_at), last_failure_at),
		 last_pass_at = COALESCE(VALUES(last_pass_at), last_pass_at),
		 event_age_ms = COALESCE(VALUES(event_age_ms), event_age_ms), overdue = VALUES(overdue),
		 last_confirm_at = COALESCE(VALUES(last_confirm_at), last_confirm_at),
		 consumer_group = VALUES(consumer_group), backlog = VALUES(backlog), oldest_age_ms = VALUES(oldest_age_ms),
		 in_hand_age_ms = VALUES(in_hand_age_ms), note = VALUES(note), updated_at = VALUES(updated_at)`,
		s.task, s.instance, s.country, s.role, f.failures,
		ago(f.lastSuccess), ago(f.lastFailure), ago(f.lastPass),
		unlessNegative(millis(f.eventAge)), unlessNegative(f.overdue),
		ago(f.lastConfirm), f.group, unlessNegative(f.backlog), unlessNegative(millis(f.oldestAge)),
		unlessNegative(millis(f.inHandAge)), cut(f.note, maxNote))
	if err != nil {
		return fmt.Errorf("write health of task %s: %w", s.task, err)
	}
	return nil
}

// forget removes rows of processes that gave no sign of life for age.
func (s *healthStore) forget(ctx context.Context, age time.Duration) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM mq_task_health
		WHERE task = ? AND country = ? AND role <> ? AND updated_at < NOW(3) - INTERVAL ? MICROSECOND LIMIT 1000`,
		s.task, s.country, RoleFallback, age.Microseconds())
	if err != nil {
		return fmt.Errorf("remove old health rows of task %s: %w", s.task, err)
	}
	return nil
}

// ago is an instant as microseconds before now, NULL for the zero time: NOW(3) minus
// NULL is NULL.
func ago(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return time.Since(t).Microseconds()
}

// maxNote is the width of the column.
const maxNote = 255

// millis keeps "unknown", which any negative duration means.
func millis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

// cut shortens text to n bytes, at a character's end.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

func unlessNegative(n int64) any {
	if n < 0 {
		return nil
	}
	return n
}

type fallbackState struct {
	active bool
	reason string
	// recovered: some instance succeeded since the fallback began.
	recovered bool
}

// fallback reads the shared state; without a row there never was one.
func (s *healthStore) fallback(ctx context.Context) (fallbackState, error) {
	var st fallbackState
	err := s.db.QueryRowContext(ctx, `SELECT f.fallback, COALESCE(f.fallback_reason, ''),
		EXISTS (SELECT 1 FROM mq_task_health h
		        WHERE h.task = f.task AND h.country = f.country AND h.last_success_at > f.fallback_since)
		FROM mq_task_health f WHERE f.task = ? AND f.instance = ?`,
		s.task, s.sharedInstance()).Scan(&st.active, &st.reason, &st.recovered)
	if errors.Is(err, sql.ErrNoRows) {
		return fallbackState{}, nil
	}
	if err != nil {
		return st, fmt.Errorf("read fallback state of task %s: %w", s.task, err)
	}
	return st, nil
}

// setFallback is a CAS: of many processes that see the same, one makes the change.
func (s *healthStore) setFallback(ctx context.Context, active bool, reason string) error {
	if _, err := s.db.ExecContext(ctx, `INSERT IGNORE INTO mq_task_health (task, instance, country, role, updated_at)
		VALUES (?, ?, ?, ?, NOW(3))`, s.task, s.sharedInstance(), s.country, RoleFallback); err != nil {
		return fmt.Errorf("make fallback row of task %s: %w", s.task, err)
	}
	statement := `UPDATE mq_task_health SET fallback = 0, fallback_since = NULL, fallback_reason = ?, updated_at = NOW(3)
		WHERE task = ? AND instance = ? AND fallback = 1`
	if active {
		statement = `UPDATE mq_task_health SET fallback = 1, fallback_since = NOW(3), fallback_reason = ?,
		fallback_runs = fallback_runs + 1, updated_at = NOW(3) WHERE task = ? AND instance = ? AND fallback = 0`
	}
	res, err := s.db.ExecContext(ctx, statement, reason, s.task, s.sharedInstance())
	if err != nil {
		return fmt.Errorf("change fallback of task %s: %w", s.task, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("change fallback of task %s: %w", s.task, err)
	}
	if n != 1 {
		return errOtherWasFirst
	}
	return nil
}

// failing returns the failures in a row of an instance that failed at least limit
// times, the last one within recent, while no instance succeeded; 0 if there is none.
func (s *healthStore) failing(ctx context.Context, limit int64, recent time.Duration) (int64, error) {
	var n int64
	err := s.db.QueryRowContext(ctx, `SELECT COALESCE(MAX(h.failures_since_success), 0) FROM mq_task_health h
		WHERE h.task = ? AND h.country = ? AND h.failures_since_success >= ?
		  AND h.last_failure_at > NOW(3) - INTERVAL ? MICROSECOND
		  AND NOT EXISTS (SELECT 1 FROM mq_task_health s WHERE s.task = h.task AND s.country = h.country
		                  AND s.last_success_at > h.last_failure_at - INTERVAL ? MICROSECOND)`,
		s.task, s.country, limit, recent.Microseconds(), successTolerance.Microseconds()).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("read health of task %s: %w", s.task, err)
	}
	return n, nil
}
