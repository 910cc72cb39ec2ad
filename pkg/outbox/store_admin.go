package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/db"
)

// where renders the filter's conditions.
func (f Filter) where() (string, []any) {
	conditions := []string{"status = ?"}
	args := []any{f.Status}
	add := func(condition, value string) {
		if value != "" {
			conditions = append(conditions, condition)
			args = append(args, value)
		}
	}
	add("id = ?", f.ID)
	add("event_id = ?", f.EventID)
	add("event_type = ?", string(f.Type))
	add("aggregate_type = ?", f.AggregateType)
	add("aggregate_id = ?", f.AggregateID)
	if !f.From.IsZero() {
		conditions, args = append(conditions, "created_at >= ?"), append(args, f.From)
	}
	if !f.To.IsZero() {
		conditions, args = append(conditions, "created_at < ?"), append(args, f.To)
	}
	return strings.Join(conditions, " AND "), args
}

// from names the index where the filter has no better one of its own.
func (f Filter) from() string {
	if f.ID != "" || f.EventID != "" {
		return " FROM outbox_event "
	}
	return " FROM outbox_event FORCE INDEX (idx_status_created) "
}

// page reads rows after the cursor, in the order of (created_at, id).
func (s *Store) page(ctx context.Context, f Filter, after cursor, limit int) ([]Row, error) {
	after = after.orStart()
	where, args := f.where()
	args = append(args, after.createdAt, after.createdAt, after.id, limit)
	rows, err := s.db.QueryContext(ctx, `SELECT id, event_id, event_type, aggregate_type, aggregate_id,
			status, retry_count, created_at, COALESCE(last_error, ''), CAST(created_at AS CHAR)`+
		f.from()+`WHERE `+where+` AND created_at >= ? AND (created_at > ? OR id > ?)
		ORDER BY created_at, id LIMIT ?`, args...)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []Row
	for rows.Next() {
		var r Row
		if err := rows.Scan(&r.ID, &r.EventID, &r.Type, &r.AggregateType, &r.AggregateID, &r.Status,
			&r.RetryCount, &r.CreatedAt, &r.LastError, &r.place.createdAt); err != nil {
			return nil, fmt.Errorf("list events: read a row: %w", err)
		}
		r.place.id = r.ID
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list events: read rows: %w", err)
	}
	return out, nil
}

func (s *Store) countFiltered(ctx context.Context, f Filter, most int64) (Count, error) {
	where, args := f.where()
	var c Count
	err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1"+f.from()+"WHERE "+where+" LIMIT ?) t",
		append(args, most)...).Scan(&c.N)
	if err != nil {
		return c, fmt.Errorf("count events: %w", err)
	}
	c.AtLeast = c.N >= most
	return c, nil
}

// beginAudit writes the entry before anything changes; each page then raises it.
func (s *Store) beginAudit(ctx context.Context, action string, f Filter, act Act) (id int64, began string, err error) {
	filter, err := json.Marshal(f)
	if err != nil {
		return 0, "", fmt.Errorf("audit of %s: %w", action, err)
	}
	res, err := s.db.ExecContext(ctx, `INSERT INTO mq_audit (at, who, action, target, filter_json, affected, reason)
		VALUES (NOW(3), ?, ?, 'outbox_event', ?, 0, ?)`, cut(act.Who, 128), action, string(filter), cut(act.Reason, 512))
	if err != nil {
		return 0, "", fmt.Errorf("audit of %s: %w", action, err)
	}
	if id, err = res.LastInsertId(); err != nil {
		return 0, "", fmt.Errorf("audit of %s: %w", action, err)
	}
	err = s.db.QueryRowContext(ctx, "SELECT CAST(at AS CHAR) FROM mq_audit WHERE id = ?", id).Scan(&began)
	if err != nil {
		return 0, "", fmt.Errorf("audit of %s: %w", action, err)
	}
	return id, began, nil
}

// requeuePage: a row that was requeued since the command began is left alone, so that
// two commands over the same rows requeue each of them once, also when the relay has
// published it in between.
func (s *Store) requeuePage(ctx context.Context, c command, ids []string) (int64, error) {
	in, args := inList(ids)
	args = append(args, c.status, c.began)
	return s.inAudited(ctx, c, func(tx *sql.Tx) (int64, error) {
		res, err := tx.ExecContext(ctx, `UPDATE outbox_event
			SET status = 'PENDING', retry_count = 0, published_at = NULL, available_at = NULL, requeued_at = NOW(3)
			WHERE id IN (`+in+`) AND status = ? AND (requeued_at IS NULL OR requeued_at < ?)`, args...)
		if err != nil {
			return 0, fmt.Errorf("requeue %d rows: %w", len(ids), err)
		}
		return res.RowsAffected()
	})
}

// discardPage locks the rows first, so that what is archived is what is deleted.
func (s *Store) discardPage(ctx context.Context, c command, ids []string) (int64, error) {
	in, args := inList(ids)
	args = append(args, c.status)
	return s.inAudited(ctx, c, func(tx *sql.Tx) (int64, error) {
		held, err := lockIDs(ctx, tx, in, args)
		if err != nil || len(held) == 0 {
			return 0, err
		}
		heldIn, heldArgs := inList(held)
		copied, err := affected(tx.ExecContext(ctx, `INSERT INTO mq_outbox_archive
				(id, event_id, event_type, aggregate_type, aggregate_id, payload_json, status, retry_count,
				created_at, published_at, last_error, archived_at, archived_by, reason)
			SELECT id, event_id, event_type, aggregate_type, aggregate_id, payload_json, status, retry_count,
				created_at, published_at, last_error, NOW(3), ?, ?
			FROM outbox_event WHERE id IN (`+heldIn+`)`,
			append([]any{cut(c.act.Who, 128), cut(c.act.Reason, 512)}, heldArgs...)...))
		if err != nil {
			return 0, fmt.Errorf("archive %d rows: %w", len(held), err)
		}
		gone, err := affected(tx.ExecContext(ctx, "DELETE FROM outbox_event WHERE id IN ("+heldIn+")", heldArgs...))
		if err != nil {
			return 0, fmt.Errorf("delete %d archived rows: %w", len(held), err)
		}
		if copied != gone {
			return 0, fmt.Errorf("%w: %d archived, %d deleted", ErrRaced, copied, gone)
		}
		return gone, nil
	})
}

func lockIDs(ctx context.Context, tx *sql.Tx, in string, args []any) ([]string, error) {
	rows, err := tx.QueryContext(ctx, "SELECT id FROM outbox_event WHERE id IN ("+in+") AND status = ? FOR UPDATE", args...)
	if err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("lock rows: %w", err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	return ids, nil
}

// inAudited runs one page and raises the audit entry in the same transaction.
func (s *Store) inAudited(ctx context.Context, c command, f func(tx *sql.Tx) (int64, error)) (int64, error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	n, err := f(tx)
	if err != nil {
		return 0, err
	}
	if n > 0 {
		if _, err := tx.ExecContext(ctx, "UPDATE mq_audit SET affected = affected + ? WHERE id = ?", n, c.audit); err != nil {
			return 0, fmt.Errorf("raise the audit entry: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	return n, nil
}

// retryPage runs a page again, whole, when it loses a conflict with the relay.
func retryPage(ctx context.Context, f func() (int64, error)) (int64, error) {
	wait := backoff.Policy{Base: 10 * time.Millisecond, Max: 500 * time.Millisecond}
	for try := 1; ; try++ {
		n, err := f()
		if err == nil || !db.IsRetryable(err) || try == purgeTries {
			return n, err
		}
		if !backoff.Sleep(ctx, wait.Delay(try)) {
			return 0, errors.Join(ctx.Err(), err)
		}
	}
}

func affected(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// cut shortens a person's text to a column's characters.
func cut(s string, most int) string {
	if r := []rune(strings.ToValidUTF8(s, "?")); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
