package outbox

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
)

// One INSERT is bounded in rows and in bytes, far below any max_allowed_packet.
const (
	insertMaxRows  = 200
	insertMaxBytes = 1 << 20
)

// row is one event on its way into a table.
type row struct {
	event.Event
	id    string
	trace event.Trace
}

// target is where appended events go: the columns and values of one row, and the
// statement that reads back an event_id after a duplicate.
type target struct {
	table   string
	columns string
	values  string
	args    func(r row) []any
}

// The times are the database's: NOW(3) in the session's zone, which is the app's.
func intoOutbox() target {
	return target{
		table:   "outbox_event",
		columns: "id, event_id, event_type, aggregate_type, aggregate_id, payload_json, traceparent, request_id, status, retry_count, created_at",
		values:  "(?, ?, ?, ?, ?, ?, ?, ?, 'PENDING', 0, NOW(3))",
		args:    baseArgs,
	}
}

func intoDelayed(d due) target {
	return target{
		table:   "mq_delayed_event",
		columns: "id, event_id, event_type, aggregate_type, aggregate_id, payload_json, traceparent, request_id, created_at, due_at",
		values:  "(?, ?, ?, ?, ?, ?, ?, ?, NOW(3), " + d.expr + ")",
		args:    func(r row) []any { return append(baseArgs(r), d.arg) },
	}
}

// baseArgs passes the payload as text: bytes would be sent as a binary string, which
// the servers convert differently.
func baseArgs(r row) []any {
	return []any{
		r.id, r.EventID, string(r.Type), r.AggregateType, r.AggregateID, string(r.Payload),
		orNull(r.trace.Traceparent), orNull(r.trace.RequestID),
	}
}

// due is a due time as the database computes it.
type due struct {
	expr string
	arg  any
}

func dueAfter(wait time.Duration) due {
	return due{"NOW(3) + INTERVAL ? MICROSECOND", max(wait, 0).Microseconds()}
}

// dueAt passes the instant as a number: a time.Time would be written in the zone of
// the connection's driver, which need not be the session's.
func dueAt(t time.Time) due {
	return due{"FROM_UNIXTIME(CAST(? AS DECIMAL(16,3)))", fmt.Sprintf("%d.%03d", t.Unix(), t.Nanosecond()/1e6)}
}

// chunks cuts rows into portions for one INSERT each.
func chunks(rows []row) iter.Seq[[]row] {
	return func(yield func([]row) bool) {
		for len(rows) > 0 {
			n, size := 0, 0
			for n < len(rows) && n < insertMaxRows && (n == 0 || size+len(rows[n].Payload) <= insertMaxBytes) {
				size += len(rows[n].Payload)
				n++
			}
			if !yield(rows[:n]) {
				return
			}
			rows = rows[n:]
		}
	}
}

// insertRows writes rows and adds the event_ids that were there before to existing.
//
// It tries one INSERT for all. A duplicate fails that statement as a whole and leaves
// the transaction as it was, so the rows are halved until the duplicate stands alone.
// The usual ways around are worse here: IGNORE turns every other error into a warning,
// and ON DUPLICATE KEY UPDATE locks the existing row itself, which the relay holds
// while it publishes: a repeated append would wait for the broker.
func insertRows(ctx context.Context, c conn, into target, rows []row, existing map[string]bool) error {
	err := insertAll(ctx, c, into, rows)
	switch {
	case err == nil || !db.IsDuplicate(err):
		return err
	case len(rows) == 1:
		if err := confirmExisting(ctx, c, into, rows[0], err); err != nil {
			return err
		}
		existing[rows[0].EventID] = true
		return nil
	}
	half := len(rows) / 2
	if err := insertRows(ctx, c, into, rows[:half], existing); err != nil {
		return err
	}
	return insertRows(ctx, c, into, rows[half:], existing)
}

func insertAll(ctx context.Context, c conn, into target, rows []row) error {
	args := make([]any, 0, 10*len(rows))
	for _, r := range rows {
		args = append(args, into.args(r)...)
	}
	query := "INSERT INTO " + into.table + " (" + into.columns + ") VALUES " +
		into.values + strings.Repeat(", "+into.values, len(rows)-1)
	res, err := c.ExecContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("insert %d rows: %w", len(rows), err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("insert %d rows: count them: %w", len(rows), err)
	}
	if n != int64(len(rows)) {
		return fmt.Errorf("%w: %d of %d rows", ErrNotWritten, n, len(rows))
	}
	return nil
}

// confirmExisting makes sure that the row in the way is this event. The app's table
// may have a collation in which different ids are equal; without this check such an
// event would be reported as existing and never be sent.
//
// The read is a locking one, because a plain read in an older snapshot would not see
// a row that was committed since. It selects the indexed column alone: so it locks the
// index entry, on which the failed INSERT has left a shared lock already, and not the
// row that a relay may hold.
func confirmExisting(ctx context.Context, c conn, into target, r row, duplicate error) error {
	var id string
	err := c.QueryRowContext(ctx,
		"SELECT event_id FROM "+into.table+" WHERE event_id = ? LOCK IN SHARE MODE", r.EventID).Scan(&id)
	if err != nil {
		// No such event: it was the row id that clashed, or the reader failed.
		return fmt.Errorf("look for event %q after %w: %w", r.EventID, duplicate, err)
	}
	if id != r.EventID {
		return fmt.Errorf("%w: %q is taken by %q", ErrIDClash, r.EventID, id)
	}
	return nil
}
