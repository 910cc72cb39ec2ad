package outbox_test

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// A writer that ignores the relay's locks (the app's own relay, a person) decides about
// a row while it is published. Its word stands, the others are marked, and it shows.
func TestAMarkLeavesRowsThatAreNoLongerPendingAlone(t *testing.T) {
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	b.append(t, someEvent("push:mine"), someEvent("push:taken"), someEvent("push:refused"), someEvent("push:poison"))
	m := newMemory()
	m.answers(func(r outbox.Record) outbox.Outcome {
		if r.EventID != "push:mine" {
			if _, err := b.pool.ExecContext(t.Context(), "UPDATE outbox_event SET status = 'FAILED', last_error = 'by hand' WHERE id = ?", r.ID); err != nil {
				return outbox.Outcome{Class: outbox.Unavailable, Err: err}
			}
		}
		return outbox.Outcome{Class: map[string]outbox.Class{
			"push:mine": outbox.Confirmed, "push:taken": outbox.Confirmed, "push:refused": outbox.Refused, "push:poison": outbox.Failed,
		}[r.EventID]}
	})
	pool, err := outbox.OpenPool(b.cfg, quick())
	require.NoError(t, err)
	reg := prometheus.NewRegistry()
	r, err := outbox.NewRelay(quick(), outbox.Deps{Pool: pool, Leases: lease.New(b.pool), Publisher: m, Metrics: reg})
	require.NoError(t, err)
	outbox.WithoutRowLocks(r)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	testenv.Eventually(t, soon, "the event that nobody touched is PUBLISHED", func() bool { return b.countStatus(t, "PUBLISHED") == 1 })
	stop()
	require.NoError(t, <-done)
	_ = pool.Close()
	require.EqualValues(t, 3, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'FAILED' AND last_error = 'by hand' AND retry_count = 0"))
	require.EqualValues(t, 3, gauge(t, reg, "seahub_outbox_mark_lost_total"))
}

// A row that somebody holds keeps nobody waiting but itself.
func TestAClaimPassesOverRowsThatOthersHold(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		b.append(t, events("push", 20)...)
		tx, err := b.pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var id string
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT id FROM outbox_event WHERE event_id = 'push:000007' FOR UPDATE").Scan(&id))
		m := newMemory()
		b.startRelay(t, quick(), m)
		testenv.Eventually(t, soon, "all others are PUBLISHED", func() bool { return b.countStatus(t, "PUBLISHED") == 19 })
		calls, _ := m.count("push:000007")
		require.Zero(t, calls)
		require.NoError(t, tx.Rollback())
		b.allPublished(t, soon)
	})
}
