package outbox

import (
	"context"
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
