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

// ClaimSQL are the statements that must be served by the index.
func ClaimSQL() map[string]string {
	return map[string]string{
		"claim tail":  claimColumns + pending + tail.where + " ORDER BY created_at, id LIMIT 500",
		"claim sweep": claimColumns + pending + " ORDER BY created_at, id LIMIT 500",
		"probe tail":  "SELECT 1" + pending + tail.where + " LIMIT 1",
		"probe sweep": "SELECT 1" + pending + " LIMIT 1",
	}
}
