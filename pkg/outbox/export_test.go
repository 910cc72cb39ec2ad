package outbox

import (
	"context"
	"database/sql"
	"math"
	"strings"
	"time"
)

// What the external tests need to show that each guard holds alone.

// WithoutLease lets a relay work whenever it likes.
func WithoutLease(r *Relay) {
	r.guard = func(ctx context.Context, _ int, work func(ctx context.Context, t trust) error) error {
		return work(ctx, always{})
	}
}

type always struct{}

func (always) ValidFor(time.Duration) bool { return true }

// WithoutRowLocks lets a relay claim rows that another one holds.
func WithoutRowLocks(r *Relay) { r.store.locking = "" }

// Claim locks rows in a transaction of the test's, as a relay does that looks at the
// whole queue or at a backlog that begins somewhere.
func Claim(ctx context.Context, tx *sql.Tx, backlog time.Time, limit int) (ids []string, err error) {
	where := everywhere()
	if !backlog.IsZero() {
		w := window{lo: backlog, width: windowMax}
		where = w.scope()
	}
	recs, _, err := relayStore{locking: lockRows}.claim(ctx, tx, where, limit, math.MaxInt)
	for _, r := range recs {
		ids = append(ids, r.ID)
	}
	return ids, err
}

// ClaimSQL are the statements that the index must serve, and their arguments: backlog is
// a window that begins there.
func ClaimSQL(backlog time.Time) map[string][]any {
	w := window{lo: backlog, width: windowMin}
	statements := map[string][]any{}
	for _, where := range []scope{tail(), tip(), everywhere(), beyond(backlog, "obe"), w.scope()} {
		statements["claim "+where.name] = append([]any{claimColumns + pending + where.where + " ORDER BY created_at, id LIMIT 500"}, where.args...)
		statements["probe "+where.name] = append([]any{"SELECT 1" + pending + where.where + " LIMIT 1"}, where.args...)
	}
	return statements
}

// AllSQL adds the statements of the operator and of the purge. What a status counts is
// bounded by its cap, here 1000.
func AllSQL(backlog time.Time) map[string][]any {
	statements := ClaimSQL(backlog)
	in, ids := inList([]string{"obenew1", "obenew2", "obenew3"})
	statements["mark"] = append([]any{"UPDATE outbox_event SET status = 'PUBLISHED', published_at = NOW(3) WHERE id IN (" + in + ") AND status = 'PENDING'"}, ids...)
	for name, query := range map[string]string{
		"status published": sqlPublishedLastMinute, "status pending": sqlPending, "status backed off": sqlBackedOff, "status failed": sqlFailed,
	} {
		// Their inner SELECT is what reads the table.
		inner := query[strings.Index(query, "(SELECT")+1 : strings.LastIndex(query, ") t")]
		statements[name] = []any{inner, 1000}
	}
	statements["status oldest published"] = []any{sqlOldestPublished}
	for _, status := range []string{StatusPending, StatusPublished} {
		f := Filter{Status: status, From: backlog.Add(-time.Hour + 123_456_789)} // as a clock gives it
		where, args := f.where()
		statements["operator "+status] = append([]any{"SELECT id FROM outbox_event FORCE INDEX (idx_status_created) WHERE " + where +
			" AND created_at >= ? AND (created_at > ? OR id > ?) ORDER BY created_at, id LIMIT 200"}, append(args, backlog, backlog, "obe")...)
	}
	statements["purge"] = []any{`SELECT CAST(created_at AS CHAR), id FROM outbox_event FORCE INDEX (idx_status_created)
		WHERE status = 'PUBLISHED' AND created_at < NOW(3) - INTERVAL ? MICROSECOND
			AND created_at >= ? AND (created_at > ? OR id > ?)
			AND COALESCE(published_at, created_at) < NOW(3) - INTERVAL ? MICROSECOND
		ORDER BY created_at, id LIMIT 500`, time.Hour.Microseconds(), "1000-01-01", "1000-01-01", "", 0}
	return statements
}
