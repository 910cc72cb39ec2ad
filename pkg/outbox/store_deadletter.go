package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/seahub/seahub-mq/pkg/event"
)

const deadLetterColumns = `id, consumer_group, topic, tag, event_id, attempts, reason, last_error,
	status, deaths, created_at, updated_at`

// upsert names the table's columns through VALUES(): MySQL prefers an alias by now, which
// MariaDB does not know.
func (s *DeadLetterStore) upsert(ctx context.Context, key string, dl event.DeadLetter) error {
	headers := dl.Headers
	if headers == nil {
		headers = map[string]string{}
	}
	encoded, err := json.Marshal(headers)
	if err != nil {
		return fmt.Errorf("encode headers: %w", err)
	}
	body := dl.Body
	if body == nil {
		body = []byte{} // NULL is not an empty body
	}
	_, err = s.db.ExecContext(ctx, `INSERT INTO mq_dead_letter
			(dedup_key, consumer_group, topic, tag, event_id, body, headers_json, attempts, reason, last_error,
			status, deaths, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'OPEN', 1, NOW(3), NOW(3))
		ON DUPLICATE KEY UPDATE topic = VALUES(topic), tag = VALUES(tag), body = VALUES(body),
			headers_json = VALUES(headers_json), attempts = VALUES(attempts), reason = VALUES(reason),
			last_error = VALUES(last_error), status = 'OPEN', deaths = deaths + 1, updated_at = NOW(3),
			resolved_at = NULL, resolved_by = NULL, resolved_why = NULL`,
		key, dl.Group, dl.Topic, dl.Tag, cut(dl.EventID, 255), body, string(encoded), dl.Attempts,
		cut(dl.Reason, 255), cut(dl.LastError, 512))
	return err
}

func (s *DeadLetterStore) list(ctx context.Context, f DeadLetterFilter) ([]DeadLetterRow, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	rows, err := s.db.QueryContext(ctx, `SELECT `+deadLetterColumns+` FROM mq_dead_letter
		WHERE id > ? AND (? = '' OR status = ?) AND (? = '' OR consumer_group = ?) AND (? = '' OR tag = ?)
		ORDER BY id LIMIT ?`, f.After, f.Status, f.Status, f.Group, f.Group, f.Tag, f.Tag, f.Limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []DeadLetterRow
	for rows.Next() {
		var r DeadLetterRow
		if err := rows.Scan(r.columns()...); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

func (s *DeadLetterStore) count(ctx context.Context, f DeadLetterFilter) (n int64, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM mq_dead_letter
		WHERE (? = '' OR status = ?) AND (? = '' OR consumer_group = ?) AND (? = '' OR tag = ?)`,
		f.Status, f.Status, f.Group, f.Group, f.Tag, f.Tag).Scan(&n)
	return n, err
}

func (s *DeadLetterStore) openByGroup(ctx context.Context) (map[string]int64, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT consumer_group, COUNT(*) FROM mq_dead_letter
		WHERE status = 'OPEN' GROUP BY consumer_group`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	out := map[string]int64{}
	for rows.Next() {
		var group string
		var n int64
		if err := rows.Scan(&group, &n); err != nil {
			return nil, err
		}
		out[group] = n
	}
	return out, rows.Err()
}

func (r *DeadLetterRow) columns() []any {
	return []any{
		&r.ID, &r.Group, &r.Topic, &r.Tag, &r.EventID, &r.Attempts, &r.Reason, &r.LastError,
		&r.Status, &r.Deaths, &r.CreatedAt, &r.UpdatedAt,
	}
}

// querier is *sql.DB or *sql.Tx.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func get(ctx context.Context, q querier, id int64, locking string) (DeadLetterRow, error) {
	var r DeadLetterRow
	var headers []byte
	err := q.QueryRowContext(ctx, `SELECT `+deadLetterColumns+`, body, headers_json
		FROM mq_dead_letter WHERE id = ?`+locking, id).Scan(append(r.columns(), &r.Body, &headers)...)
	if errors.Is(err, sql.ErrNoRows) {
		return r, fmt.Errorf("%w: dead letter %d", ErrNotFound, id)
	}
	if err != nil {
		return r, fmt.Errorf("read dead letter %d: %w", id, err)
	}
	if err := json.Unmarshal(headers, &r.Headers); err != nil {
		return r, fmt.Errorf("read headers of dead letter %d: %w", id, err)
	}
	return r, nil
}

// resolve locks an OPEN row, does what has to be done first, and closes the row. A
// consumer that lets the event die again meanwhile waits for the lock and then opens
// the row anew.
func (s *DeadLetterStore) resolve(ctx context.Context, id int64, status string, act Act, first func(r DeadLetterRow) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	r, err := get(ctx, tx, id, " FOR UPDATE")
	if err != nil {
		return err
	}
	if r.Status != DeadOpen {
		return fmt.Errorf("%w: dead letter %d is %s, not %s", ErrNotFound, id, r.Status, DeadOpen)
	}
	if err := first(r); err != nil {
		return err
	}
	n, err := affected(tx.ExecContext(ctx, `UPDATE mq_dead_letter
		SET status = ?, resolved_at = NOW(3), resolved_by = ?, resolved_why = ?, updated_at = NOW(3)
		WHERE id = ? AND status = 'OPEN'`, status, cut(act.Who, 128), cut(act.Reason, 512), id))
	if err != nil {
		return fmt.Errorf("mark %s: %w", status, err)
	}
	if n != 1 {
		return fmt.Errorf("%w: dead letter %d", ErrRaced, id)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO mq_audit (at, who, action, target, filter_json, affected, reason)
		VALUES (NOW(3), ?, ?, 'mq_dead_letter', ?, 1, ?)`,
		cut(act.Who, 128), "dead-letter "+status, fmt.Sprintf(`{"id":%d}`, id), cut(act.Reason, 512))
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
