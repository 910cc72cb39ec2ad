package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestAgreement(t *testing.T) {
	c := testConfig().Sweep
	now := time.Date(2026, 7, 19, 8, 30, 20, 0, time.UTC)
	a := begin(now, now.Add(10*time.Second), 3)
	require.Equal(t, time.Date(2026, 7, 19, 8, 31, 0, 0, time.UTC), a.CountingFrom, "from the first whole minute that is binding")
	_, _, due := a.due(now.Add(14*time.Minute), c)
	require.False(t, due)

	for i := 1; i <= 4; i++ {
		at := now.Add(time.Duration(i) * 15 * time.Minute)
		from, to, due := a.due(at, c)
		require.True(t, due)
		require.Equal(t, a.CountingFrom, from)
		require.Equal(t, floorMinute(at.Add(-2*time.Minute)), to, "minutes that have been over for two")
		require.False(t, a.trusted(at, c))
		a = a.recounted(at, 10, 10)
	}
	require.Equal(t, 4, a.Agreements)
	require.False(t, a.trusted(now.Add(time.Hour), c), "the first minutes of the window were not counted")
	later := now.Add(75 * time.Minute)
	require.True(t, a.trusted(later, c))
	require.Equal(t, 4, a.recounted(later, 0, 0).Agreements, "nothing on both sides proves nothing, and takes nothing away")

	b := a.recounted(later, 11, 10)
	require.False(t, b.trusted(later, c))
	require.Equal(t, ceilMinute(later), b.CountingFrom)
	require.Equal(t, 1, b.Disagreements)

	quiet := begin(now, now, 3)
	for range 10 {
		quiet = quiet.recounted(now, 0, 0)
	}
	require.Zero(t, quiet.Agreements, "a metric that no writer feeds is not believed for being quiet")
}

// turnOn gives the counts to events, as a change that has been binding for long.
func (b *bench) turnOn(t *testing.T, version int) {
	t.Helper()
	for _, table := range []string{"mq_feature_flag", "mq_feature_flag_history"} {
		b.exec(t, "REPLACE INTO "+table+` (flag, country, enabled, rollout_bp, salt, version, effective_at, updated_by, reason, updated_at)
			VALUES ('ops-snapshot', 'id', ?, 10000, 's', ?, NOW(3) - INTERVAL 3 HOUR, 't', 't', NOW(3) - INTERVAL 3 HOUR)`, version%2 == 1, version)
	}
	require.NoError(t, b.flags.Refresh(t.Context()))
}

// recount makes the next sweep recount, of counts that began long ago.
func (b *bench) recount(t *testing.T) {
	t.Helper()
	b.exec(t, "UPDATE mq_ops_agreement SET recounted_at = recounted_at - INTERVAL 1 HOUR")
	b.sweepNow(t)
}

func (b *bench) source(t *testing.T, name string) string {
	t.Helper()
	return b.text(t, "SELECT source FROM mq_ops_figure WHERE name = ?", name)
}

// A flip in mid-hour shows no step, one disagreement brings SQL back, and a metric that no
// writer feeds stays with SQL.
func TestFiguresMoveToEventsAndBack(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		c := newCounter(b.store, b.cfg.Sweep, b.metrics)
		for i := range 110 {
			id := fmt.Sprint("p", i)
			b.exec(t, `INSERT INTO push_messages (id, user_id, title, body, status, due_at, updated_at)
				VALUES (?, 'u', 't', 'b', 'FAILED', NOW(3), NOW(3) - INTERVAL ? SECOND)`, id, i*30)
			var at time.Time
			require.NoError(t, b.pool.QueryRowContext(t.Context(), "SELECT updated_at FROM push_messages WHERE id = ?", id).Scan(&at))
			th := thing{id, at}
			c.Handle(t.Context(), "push_failed", th.delivery(t))
			b.exec(t, "INSERT INTO affiliate_orders (id, created_at) VALUES (?, NOW(3) - INTERVAL ? SECOND)", id, i*30)
		}
		look := func(source string, value int, when string) {
			t.Helper()
			require.Equal(t, source, b.source(t, "push_failed"), when)
			v, ok := b.figure(t, "push_failed", "")
			require.True(t, ok)
			require.EqualValues(t, value, v, when)
			require.Equal(t, sourceSQL, b.source(t, "order_new"), when)
			v, _ = b.figure(t, "order_new", "")
			require.EqualValues(t, 110, v)
		}
		b.sweepNow(t)
		look(sourceSQL, 110, "flag off")
		b.turnOn(t, 1)
		b.sweepNow(t)
		look(sourceSQL, 110, "flag on, not believed yet")
		for i := range 4 {
			b.recount(t)
			want := sourceSQL
			if i == 3 {
				want = sourceEvents
			}
			look(want, 110, fmt.Sprint("after recount ", i+1))
		}
		require.Equal(t, 0, b.number(t, "SELECT agreements FROM mq_ops_agreement WHERE metric = 'order_new'"))
		require.Positive(t, b.number(t, "SELECT disagreements FROM mq_ops_agreement WHERE metric = 'order_new'"))

		b.exec(t, "INSERT INTO push_messages (id, user_id, title, body, status, due_at, updated_at) VALUES ('lost', 'u', 't', 'b', 'FAILED', NOW(3), NOW(3) - INTERVAL 20 MINUTE)")
		b.recount(t)
		look(sourceSQL, 111, "an event was lost")
		require.Contains(t, b.text(t, "SELECT note FROM mq_ops_figure WHERE name = 'push_failed'"), "disagreed")

		b.turnOn(t, 2) // off
		b.recount(t)
		look(sourceSQL, 111, "flag off again")
	})
}
