package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// The flag goes off and on again between two scans, and the handler skips an event
// meanwhile: the next scan makes up for it, before it is anybody's failure.
func TestAnEventSkippedBetweenTwoScansIsMadeUpFor(t *testing.T) {
	s := testenv.MariaDB(t)
	newBench(t, s)
	w := newWorld(t, s, openDB(t, s, 1), 99)
	w.rnd = nil // nothing happens by chance
	pool, err := db.Pool(w.b.gdb)
	require.NoError(t, err)
	set := func(on bool) {
		_, err := flags.Set(t.Context(), pool, flags.Change{Flag: flags.CouponExpire, Country: "id", Enabled: on, BasisPoints: flags.FullRollout, Who: "t", Why: "t"})
		require.NoError(t, err)
	}
	pass := func(d time.Duration) {
		for end := w.clock.Add(d); w.clock.Before(end); {
			w.clock = w.clock.Add(time.Second)
			w.setClock()
			w.refresh(w.scanner)
			w.refresh(w.handler)
		}
	}
	scan := func() tally {
		var done tally
		state := w.scanner.Get(flags.CouponExpire)
		o, err := w.b.Overdue(t.Context(), simOverdue, func(id string, at time.Time) bool { return !state.PollOwns(id, at) })
		require.NoError(t, err)
		require.Zero(t, o.Rows)
		require.NoError(t, w.b.scan(t.Context(), scopeOf(state), &done))
		return done
	}
	set(true)
	pass(flags.HandOver + time.Second)
	w.sql("UPDATE user_coupons SET expires_at = NOW(3) + INTERVAL 1 DAY WHERE id <> 'c1'")
	w.sql("UPDATE user_coupons SET expires_at = NOW(3) WHERE id = 'c1'")
	require.Equal(t, 1, scan().appended)
	set(false)
	pass(flags.HandOver + time.Second)
	require.Equal(t, "flag off", w.consume.Handle(t.Context(), delivery(t, "u-c1", "c1", 1)).Reason)
	set(true)
	pass(flags.HandOver + time.Second)
	require.Equal(t, 1, scan().expired)
	require.Equal(t, 1, w.b.count(t, "user_coupons WHERE id = 'c1' AND status = 'EXPIRED'"))
}
