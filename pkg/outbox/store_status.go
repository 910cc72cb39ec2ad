package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/db"
)

const (
	sqlPending = `SELECT COUNT(*) FROM (SELECT 1 FROM outbox_event FORCE INDEX (idx_status_created)
		WHERE status = 'PENDING' LIMIT ?) t`
	sqlBackedOff = `SELECT COUNT(*) FROM (SELECT available_at FROM outbox_event FORCE INDEX (idx_status_created)
		WHERE status = 'PENDING' LIMIT ?) t WHERE available_at > NOW(3)`
	sqlFailed = `SELECT COUNT(*) FROM (SELECT 1 FROM outbox_event FORCE INDEX (idx_status_created)
		WHERE status = 'FAILED' LIMIT ?) t`
	sqlDelayed         = `SELECT COUNT(*) FROM (SELECT 1 FROM mq_delayed_event LIMIT ?) t`
	sqlOpenDeadLetters = `SELECT COUNT(*) FROM (SELECT 1 FROM mq_dead_letter WHERE status = 'OPEN' LIMIT ?) t`
	// The newest rows stand at the end of the index, so the last minute is a short range
	// of created_at; an hour of it covers what was published late.
	sqlPublishedLastMinute = `SELECT COUNT(*) FROM (SELECT published_at FROM outbox_event FORCE INDEX (idx_status_created)
		WHERE status = 'PUBLISHED' AND created_at > NOW(3) - INTERVAL 1 HOUR ORDER BY created_at DESC LIMIT ?) t
		WHERE published_at > NOW(3) - INTERVAL 1 MINUTE`

	// The oldest by created_at; a requeued one among the first is as old as its requeue.
	sqlOldestPending = `SELECT COALESCE(MAX(age), 0) FROM (
		SELECT TIMESTAMPDIFF(MICROSECOND, COALESCE(requeued_at, created_at), NOW(3)) AS age
		FROM outbox_event FORCE INDEX (idx_status_created)
		WHERE status = 'PENDING' ORDER BY created_at, id LIMIT 100) t`
	sqlNextDelayed = `SELECT TIMESTAMPDIFF(MICROSECOND, NOW(3), due_at)
		FROM mq_delayed_event ORDER BY due_at LIMIT 1`
	sqlOldestPublished = `SELECT created_at FROM outbox_event FORCE INDEX (idx_status_created)
		WHERE status = 'PUBLISHED' ORDER BY created_at LIMIT 1`

	// One descent per status to the end of the index.
	sqlNewest = `SELECT TIMESTAMPDIFF(SECOND, NOW(3), MAX(newest)) FROM (
		(SELECT created_at AS newest FROM outbox_event FORCE INDEX (idx_status_created) WHERE status = 'PENDING' ORDER BY created_at DESC LIMIT 1)
		UNION ALL
		(SELECT created_at FROM outbox_event FORCE INDEX (idx_status_created) WHERE status = 'PUBLISHED' ORDER BY created_at DESC LIMIT 1)
		UNION ALL
		(SELECT created_at FROM outbox_event FORCE INDEX (idx_status_created) WHERE status = 'FAILED' ORDER BY created_at DESC LIMIT 1)
		) t`
)

func (s *Store) oldestPublished(ctx context.Context) (*time.Time, error) {
	var t time.Time
	err := s.db.QueryRowContext(ctx, sqlOldestPublished).Scan(&t)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the oldest published event: %w", err)
	}
	return &t, nil
}

// newestAhead is how many seconds the newest created_at lies ahead of NOW, negative if
// it lies behind. ok is false on an empty table.
func (s *Store) newestAhead(ctx context.Context) (seconds int64, ok bool, err error) {
	var n sql.NullInt64
	if err := s.db.QueryRowContext(ctx, sqlNewest).Scan(&n); err != nil {
		return 0, false, fmt.Errorf("compare the newest created_at with NOW: %w", err)
	}
	return n.Int64, n.Valid, nil
}

// historyList asks in the words of MariaDB, then in those of MySQL, which wants the
// PROCESS privilege for it.
func (s *Store) historyList(ctx context.Context) (*int64, error) {
	var n int64
	var name string
	err := s.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'").Scan(&name, &n)
	if errors.Is(err, sql.ErrNoRows) {
		err = s.db.QueryRowContext(ctx,
			"SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'").Scan(&n)
	}
	switch {
	case err == nil:
		return &n, nil
	case db.IsUnavailable(err) || ctx.Err() != nil:
		return nil, fmt.Errorf("read the history list length: %w", err)
	}
	return nil, nil // not told to this user
}
