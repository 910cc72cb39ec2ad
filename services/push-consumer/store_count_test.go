package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

// A push that fails for good is counted once, at the very instant of its row, and by the
// transaction that made it FAILED: without the event there is no failure either.
func TestAFailureIsCountedByItsTransaction(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBenchOn(t, s, func(c *Config) { c.Base.Country = "id" })
		b.push(t, "p1", 1)
		b.fcm.BehaveFor(token("p1", 0), fcmfake.Behaviour{Kind: fcmfake.Unregistered})
		b.handle(t, "p1", 1)
		b.handle(t, "p1", 2)
		require.Equal(t, statusFailed, b.status(t, "p1"))
		require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE event_type = 'OPS_COUNTER'"))
		p, at, err := event.DecodeOpsCounter([]byte(b.text(t, "SELECT payload_json FROM outbox_event WHERE event_id = 'ops:push_failed:p1:a1'")))
		require.NoError(t, err)
		require.Equal(t, event.OpsCounterPayload{Metric: event.MetricPushFailed, Country: "id", OccurredAt: p.OccurredAt, Subject: "p1"}, p)
		var updated time.Time // the test's handle reads the app's +07:00 as UTC
		require.NoError(t, b.s.DB.QueryRowContext(t.Context(), "SELECT updated_at FROM push_messages WHERE id = 'p1'").Scan(&updated))
		require.True(t, at.Equal(updated.Add(-7*time.Hour)), "%s %s", at, updated)

		b.push(t, "p2", 1)
		b.push(t, "p3", 1)
		b.handle(t, "p2", 1)
		require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE event_type = 'OPS_COUNTER'"), "a push that was sent is no failure")
		b.fcm.BehaveFor(token("p3", 0), fcmfake.Behaviour{Kind: fcmfake.Unregistered})
		b.s.Exec(t, "RENAME TABLE outbox_event TO gone")
		b.handle(t, "p3", 1)
		require.Equal(t, statusSending, b.status(t, "p3"))
		b.s.Exec(t, "RENAME TABLE gone TO outbox_event")
	})
}
