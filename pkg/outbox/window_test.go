package outbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// insertAt writes rows as another program would, with a created_at of its choice.
func (b *box) insertAt(t testing.TB, prefix string, n int, createdAt string) {
	t.Helper()
	for from := 0; from < n; from += 500 {
		var rows []string
		for i := from; i < min(n, from+500); i++ {
			rows = append(rows, fmt.Sprintf("('obe%s%d', '%s%d', 'T', 'a', '1', '{}', %s)", prefix, i, prefix, i,
				strings.ReplaceAll(createdAt, "#", fmt.Sprint(i))))
		}
		_, err := b.pool.ExecContext(t.Context(), `INSERT INTO outbox_event
			(id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at) VALUES `+strings.Join(rows, ","))
		require.NoError(t, err)
	}
}

// A backlog of every shape is worked off, each event once, and what appears behind or
// ahead of the window meanwhile is found by sweep and tail.
func TestBacklogOfEveryShape(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *box) {
		if b.cfg.TimeZone == "+07:00" {
			b.Exec(t, "ALTER TABLE outbox_event MODIFY created_at DATETIME NOT NULL") // as the app made it
		}
		b.insertAt(t, "same", 1700, "'2026-01-02 03:04:05'")
		b.insertAt(t, "hours", 900, "NOW(3) - INTERVAL 30 DAY + INTERVAL # HOUR")
		b.insertAt(t, "dense", 2500, "NOW(3) - INTERVAL 1 HOUR + INTERVAL (# * 5000) MICROSECOND")
		b.insertAt(t, "future", 700, "NOW(3) + INTERVAL # MINUTE")
		b.insertAt(t, "far", 1, "'2099-01-01'")
		m := newMemory()
		reg := prometheus.NewRegistry()
		b.startRelayOn(t, reg, quick(), m)
		for i := range 5 {
			b.insertAt(t, fmt.Sprint("late", i, "x"), 30, "NOW(3) - INTERVAL 100 DAY")
			b.append(t, events(fmt.Sprint("now", i), 30)...)
			time.Sleep(20 * time.Millisecond)
		}
		b.allPublished(t, soon)
		require.Len(t, m.sent, 1700+900+2500+700+1+300)
		require.Equal(t, 1, m.mostCalls(), "none is sent twice")
		require.Positive(t, gauge(t, reg, "seahub_outbox_passes_total", "backlog"), "the window worked")
	})
}

// Thousands of events that are backed off stand in front of the queue: what is behind
// them goes out.
func TestBackedOffEventsStarveNobody(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *box) {
		b.insertAt(t, "off", 3000, "NOW(3) - INTERVAL 1 DAY")
		b.Exec(t, "UPDATE outbox_event SET available_at = NOW(3) + INTERVAL 12 HOUR")
		b.insertAt(t, "behind", 1500, "NOW(3) - INTERVAL 1 HOUR + INTERVAL # SECOND")
		m := newMemory()
		b.startRelay(t, quick(), m)
		b.append(t, events("now", 100)...)
		require.Eventually(t, func() bool { return b.countStatus(t, "PUBLISHED") == 1600 }, soon, 20*time.Millisecond)
		b.Exec(t, "UPDATE outbox_event SET available_at = NOW(3) - INTERVAL 1 DAY WHERE status = 'PENDING'")
		b.allPublished(t, soon)
		require.Equal(t, 1, m.mostCalls())
	})
}
