package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
)

// scope is the part of the queue that a statement looks at.
type scope struct {
	name  string
	where string
	args  []any
}

// tail is bounded on both sides: with a lower bound alone MariaDB still reads the
// index from the head. It trails NOW because writers commit late and the app writes
// whole seconds, and runs ahead of it by the rounding of a whole-second column.
// everywhere has no bounds, and the backlog's window (window.go) moves.
func tail() scope {
	return scope{name: "tail", where: `
		AND created_at >= NOW(3) - INTERVAL 3 SECOND AND created_at < NOW(3) + INTERVAL 1 SECOND`}
}

// tip is the end of the tail, for when the tail is full of marked rows that the server
// could not purge yet.
func tip() scope {
	return scope{name: "tip", where: `
		AND created_at >= NOW(3) - INTERVAL 250000 MICROSECOND AND created_at < NOW(3) + INTERVAL 1 SECOND`}
}

func everywhere() scope { return scope{name: sweepName} }

// beyond is what lies behind a row, in the order of claims.
func beyond(at time.Time, id string) scope {
	return scope{name: "beyond", where: `
		AND created_at >= ? AND (created_at > ? OR id > ?)`, args: []any{at, at, id}}
}

const sweepName = "sweep"

// pending is the queue: (status, created_at) serves the condition and the order, id
// being the index's own tail. The index is named because an optimizer that takes the
// primary key instead reads the whole table.
const pending = `
	FROM outbox_event FORCE INDEX (idx_status_created)
	WHERE status = 'PENDING' AND (available_at IS NULL OR available_at <= NOW(3))`

const claimColumns = `SELECT id, event_id, event_type, aggregate_type, aggregate_id, payload_json,
	retry_count, created_at, COALESCE(traceparent, ''), COALESCE(request_id, ''),
	TIMESTAMPDIFF(MICROSECOND, COALESCE(requeued_at, created_at), NOW(3))`

const lockRows = ` FOR UPDATE SKIP LOCKED`

// relayStore holds the relay's statements on outbox_event.
type relayStore struct {
	db *sql.DB
	// locking is lockRows. Tests take it away to show that the lease guards alone.
	locking string
}

// waiting reports whether there is anything to claim. It needs no transaction and
// takes no lock.
func (s relayStore) waiting(ctx context.Context, where scope) (bool, error) {
	var one int
	err := s.db.QueryRowContext(ctx, "SELECT 1"+pending+where.where+" LIMIT 1", where.args...).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for waiting events (%s): %w", where.name, err)
	}
	return true, nil
}

// canSkipLocked has the server lock as claims do, no row of no table. Servers without
// SKIP LOCKED call it a syntax error.
func (s relayStore) canSkipLocked(ctx context.Context) error {
	var one int
	err := s.db.QueryRowContext(ctx, "SELECT 1 FROM (SELECT 1 AS n) t WHERE n = 2"+lockRows).Scan(&one)
	switch {
	case err == nil || errors.Is(err, sql.ErrNoRows):
		return nil
	case !db.IsSyntax(err):
		return fmt.Errorf("look whether locked rows can be skipped: %w", err)
	}
	var version string
	if err := s.db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return fmt.Errorf("ask for the server's version: %w", err)
	}
	return fmt.Errorf("%w: %s does not know SKIP LOCKED, MariaDB 10.6 or MySQL 8.0.1 is the oldest that does", ErrServerTooOld, version)
}

// claim locks up to limit rows and reads them until their payloads exceed maxBytes.
// Rows past that are given back by the end of the transaction; more says that there
// may be further ones.
func (s relayStore) claim(ctx context.Context, tx *sql.Tx, where scope, limit, maxBytes int) (recs []Record, more bool, err error) {
	rows, err := tx.QueryContext(ctx, claimColumns+pending+where.where+`
		ORDER BY created_at, id LIMIT ?`+s.locking, append(where.args, limit)...)
	if err != nil {
		return nil, false, fmt.Errorf("claim (%s): %w", where.name, err)
	}
	defer func() { _ = rows.Close() }()
	var into rowBuffer
	size := 0
	for size < maxBytes && rows.Next() {
		r, err := into.scan(rows)
		if err != nil {
			return nil, false, fmt.Errorf("claim (%s): read a row: %w", where.name, err)
		}
		size += len(r.Payload)
		recs = append(recs, r)
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("claim (%s): read rows: %w", where.name, err)
	}
	if err := rows.Close(); err != nil {
		return nil, false, fmt.Errorf("claim (%s): end of rows: %w", where.name, err)
	}
	return recs, len(recs) == limit || size >= maxBytes, nil
}

// rowBuffer reads claimed rows. The texts of a row share one string, for a string each
// is a fifth of what a claim costs the relay.
type rowBuffer struct {
	texts   [7]sql.RawBytes
	payload sql.RawBytes
	joined  []byte
}

func (b *rowBuffer) scan(rows *sql.Rows) (Record, error) {
	var r Record
	var retries, age int64
	t := &b.texts
	if err := rows.Scan(&t[0], &t[1], &t[2], &t[3], &t[4], &b.payload,
		&retries, &r.CreatedAt, &t[5], &t[6], &age); err != nil {
		return r, err
	}
	b.joined = b.joined[:0]
	for _, text := range t {
		b.joined = append(b.joined, text...)
	}
	rest := string(b.joined)
	cut := func(i int) (text string) {
		text, rest = rest[:len(t[i])], rest[len(t[i]):]
		return text
	}
	r.ID, r.EventID, r.Type, r.AggregateType, r.AggregateID = cut(0), cut(1), event.Type(cut(2)), cut(3), cut(4)
	r.Traceparent, r.RequestID = cut(5), cut(6)
	r.Payload = bytes.Clone(b.payload)
	r.RetryCount = int(retries)
	r.Age = max(0, time.Duration(age)*time.Microsecond)
	return r, nil
}

// markPublished marks the rows that the broker confirmed, in one statement. Like the
// other marks it returns how many of them were no longer PENDING.
func (s relayStore) markPublished(ctx context.Context, tx *sql.Tx, ids []string) (lost int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	in, args := inList(ids)
	res, err := tx.ExecContext(ctx, `UPDATE outbox_event SET status = 'PUBLISHED', published_at = NOW(3)
		WHERE id IN (`+in+`) AND status = 'PENDING'`, args...)
	return checkMarked(res, err, len(ids))
}

// markFailed gives a row up until a person requeues it.
func (s relayStore) markFailed(ctx context.Context, tx *sql.Tx, class string, f failure) (lost int, err error) {
	res, err := tx.ExecContext(ctx, `UPDATE outbox_event
		SET status = 'FAILED', retry_count = LEAST(retry_count, 2147483646) + 1, last_error = ?
		WHERE id = ? AND status = 'PENDING'`, lastError(class, f.err), f.id)
	return checkMarked(res, err, 1)
}

// markRetry puts a row off.
func (s relayStore) markRetry(ctx context.Context, tx *sql.Tx, f failure) (lost int, err error) {
	res, err := tx.ExecContext(ctx, `UPDATE outbox_event
		SET retry_count = LEAST(retry_count, 2147483646) + 1, last_error = ?,
			available_at = NOW(3) + INTERVAL ? MICROSECOND
		WHERE id = ? AND status = 'PENDING'`, lastError("failed", f.err), f.wait.Microseconds(), f.id)
	return checkMarked(res, err, 1)
}

// proveWritable changes one claimed row, so that a server that takes no marks (a full
// disk, a trigger) says so before a batch is sent that could then not be marked.
func (s relayStore) proveWritable(ctx context.Context, tx *sql.Tx, id string) error {
	res, err := tx.ExecContext(ctx, `UPDATE outbox_event SET available_at = NOW(3)
		WHERE id = ? AND status = 'PENDING'`, id)
	_, err = checkMarked(res, err, 1)
	return err
}

func checkMarked(res sql.Result, err error, want int) (lost int, _ error) {
	if err != nil {
		return 0, fmt.Errorf("mark %d rows: %w", want, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, fmt.Errorf("mark %d rows: count them: %w", want, err)
	}
	return want - int(n), nil
}

// inList renders placeholders and arguments for an IN list of at least one id.
func inList(ids []string) (string, []any) {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	return "?" + strings.Repeat(", ?", len(ids)-1), args
}
