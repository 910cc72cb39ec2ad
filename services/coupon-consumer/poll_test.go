package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// population writes coupons of all kinds and returns how many of them are due.
func population(t *testing.T, b *bench) int {
	t.Helper()
	due := 0
	b.many(t, 120, func(i int) (string, string) {
		status := []string{"CLAIMABLE", "ISSUED", "ACTIVE", "USED", "EXPIRED"}[i%5]
		when := now + " - INTERVAL 1 HOUR" // many at the same instant, over several pages
		switch i % 4 {
		case 0:
			when = "'2026-01-01 00:00:00'"
		case 1:
			when = now + " + INTERVAL 1 HOUR"
		}
		if i%5 < 3 && i%4 != 1 {
			due++
		}
		return status, when
	})
	return due
}

func TestScanWithTheFlagOffIsTheOldJob(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		due := population(t, b)
		used := b.count(t, "user_coupons WHERE status = 'USED'")
		b.s.Exec(t, "DROP TABLE outbox_event") // it needs none
		require.Equal(t, due, b.poll(t, all).Rows)
		require.Zero(t, b.count(t, "user_coupons WHERE status IN ('CLAIMABLE', 'ISSUED', 'ACTIVE') AND expires_at <= "+now))
		require.Equal(t, used, b.count(t, "user_coupons WHERE status = 'USED'"))
		require.Zero(t, b.count(t, "user_coupons WHERE status = 'EXPIRED' AND expires_at > "+now+" AND id NOT IN (SELECT id FROM (SELECT id FROM user_coupons WHERE SUBSTRING(id, 5) % 5 = 4) AS x)"))
		require.Zero(t, b.poll(t, all).Rows)
	})
}

func TestScanWithTheFlagOnWritesOneEventPerDueCoupon(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		due := population(t, b)
		for range 3 {
			require.Zero(t, b.poll(t, none).Rows)
			require.Equal(t, due, b.count(t, "outbox_event WHERE event_type = 'COUPON_EXPIRE' AND status = 'PENDING'"))
		}
		require.Equal(t, due, b.count(t, `outbox_event e JOIN user_coupons c ON CONVERT(c.id USING utf8mb4) COLLATE utf8mb4_bin = e.aggregate_id
			WHERE c.status IN ('CLAIMABLE', 'ISSUED', 'ACTIVE') AND c.expires_at <= `+now))
	})
}

func TestACouponExtendedAfterItsEventIsTheScansOwn(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		b.coupon(t, "c1", now)
		b.poll(t, none)
		require.Equal(t, 1, b.count(t, "outbox_event"))
		b.s.Exec(t, "UPDATE user_coupons SET expires_at = "+now+" + INTERVAL 1 DAY")
		require.Equal(t, "coupon was extended, the scan expires it when it is due", b.handle(t, "c1").Reason)
		b.poll(t, none)
		require.Equal(t, "ISSUED", b.status(t, "c1"), "none early")

		// A day and a half passes; the event was published and is three weeks old.
		b.s.Exec(t, "UPDATE outbox_event SET status = 'PUBLISHED', created_at = created_at - INTERVAL 21 DAY")
		b.s.Exec(t, "UPDATE user_coupons SET expires_at = "+now+" - INTERVAL 12 HOUR")
		o, err := b.Overdue(t.Context(), b.cfg.overdueBy(), all)
		require.NoError(t, err)
		require.Zero(t, o.Rows, "an extension is no failure of the event path")
		require.Equal(t, 1, b.poll(t, none).Rows)
		require.Equal(t, statusExpired, b.status(t, "c1"))
		require.Equal(t, 1, b.count(t, "outbox_event"))
	})
}

func TestOverdueCouponsAreAFallback(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		b.coupon(t, "late", now+" - INTERVAL 601 SECOND")
		b.coupon(t, "noevent", now+" - INTERVAL 700 SECOND")
		b.coupon(t, "fresh", now+" - INTERVAL 300 SECOND")
		b.coupon(t, "polls", now+" - INTERVAL 900 SECOND")
		b.s.Exec(t, "INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, status, created_at) VALUES ('o1', ?, 'COUPON_EXPIRE', 'user_coupon', 'late', '{}', 'PUBLISHED', "+now+" - INTERVAL 600 SECOND)", event.CouponExpireEventID("u-late", "late"))
		events := func(id string, _ time.Time) bool { return id != "polls" }
		o, err := b.Overdue(t.Context(), b.cfg.overdueBy(), events)
		require.NoError(t, err)
		require.EqualValues(t, 2, o.Rows)
		require.InDelta(t, 700, o.Oldest.Seconds(), 5)
		_, err = b.Poll(t.Context(), task.Scope{Owns: events, OverdueBy: b.cfg.overdueBy(), Fallback: true})
		require.NoError(t, err)
		require.Equal(t, 2, b.count(t, "user_coupons WHERE status = 'EXPIRED' AND id IN ('late', 'noevent')"))
		require.Equal(t, "ISSUED", b.status(t, "fresh"))
		require.Equal(t, "ISSUED", b.status(t, "polls"))
		require.Equal(t, 1, b.count(t, "outbox_event"), "a fallback writes no events")
	})
}

// An event that was written before a change of the flag became binding may have been
// skipped by a handler that knew the flag as off.
func TestEventsOlderThanTheFlagsChangeAreTheScans(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	b.coupon(t, "before", now+" - INTERVAL 20 SECOND")
	b.coupon(t, "after", now+" - INTERVAL 20 SECOND")
	b.poll(t, none)
	b.s.Exec(t, "UPDATE outbox_event SET created_at = created_at - INTERVAL 10 SECOND WHERE aggregate_id = 'before'")
	binding := time.Now().Add(-5 * time.Second)
	polls := func(_ string, at time.Time) bool { return at.Before(binding) }
	require.Equal(t, 1, b.poll(t, polls).Rows)
	require.Equal(t, statusExpired, b.status(t, "before"))
	require.Equal(t, "ISSUED", b.status(t, "after"))
	require.Equal(t, 2, b.count(t, "outbox_event"))
}

// A batch must not wait for one row while it holds others.
func TestRowsInBusinessHandsAreLeftToTheNextScan(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		for i := range 5 {
			b.coupon(t, fmt.Sprint("c", i), now)
		}
		tx, err := s.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), "UPDATE user_coupons SET coupon_id = 'x' WHERE id = 'c2'")
		require.NoError(t, err)
		began := time.Now()
		require.Equal(t, 4, b.poll(t, all).Rows)
		require.Less(t, time.Since(began), 10*time.Second)
		require.NoError(t, tx.Rollback())
		require.Equal(t, 1, b.poll(t, all).Rows)
	})
}

func TestIdsThatMakeNoEventAreExpiredByTheScan(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		b.s.Exec(t, "ALTER TABLE outbox_event MODIFY event_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL")
		b.coupon(t, "ok1", now)
		b.coupon(t, "kupón", now)
		b.coupon(t, strings.Repeat("x", 50), now)
		b.coupon(t, "ok2", now)
		b.coupon(t, "clash", now)
		// Another event whose id differs in case only, which this collation calls equal.
		b.s.Exec(t, "INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at) VALUES ('o1', ?, 'COUPON_EXPIRE', 'user_coupon', 'CLASH', '{}', "+now+")", event.CouponExpireEventID("u-CLASH", "CLASH"))
		require.Equal(t, 3, b.poll(t, none).Rows)
		require.Equal(t, 3, b.count(t, "user_coupons WHERE status = 'EXPIRED' AND id NOT LIKE 'ok%'"))
		require.Equal(t, 2, b.count(t, "outbox_event WHERE aggregate_id LIKE 'ok%'"))
	})
}

func TestScansDoNotOverlap(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	b.coupon(t, "c1", now)
	l, err := b.leases.Acquire(t.Context(), scanLock, lease.NewOwner(), time.Minute)
	require.NoError(t, err)
	require.Zero(t, b.poll(t, all).Rows, "another process scans, and that is no error")
	require.NoError(t, b.leases.Release(t.Context(), l))
	require.Equal(t, 1, b.poll(t, all).Rows)
}

func TestAScanThatLostItsLeaseEnds(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t), func(c *Config) { c.ScanBatch, c.ScanLease, c.ScanPause = 1, time.Second, 50*time.Millisecond })
	b.many(t, 200, func(int) (string, string) { return "ISSUED", now })
	taken := false
	_, err := b.Poll(t.Context(), task.Scope{Owns: all, Beat: func() {
		if !taken {
			b.s.Exec(t, "UPDATE mq_lease SET owner = 'somebody', fence = fence + 1")
			taken = true
		}
	}})
	require.ErrorIs(t, err, lease.ErrLost)
	require.Positive(t, b.count(t, "user_coupons WHERE status = 'ISSUED'"))
}

func TestAScanThatIsToldToStopEndsBetweenBatches(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	b.many(t, 50, func(int) (string, string) { return "ISSUED", now })
	ctx, stop := context.WithCancel(t.Context())
	_, err := b.Poll(ctx, task.Scope{Owns: all, Beat: stop})
	require.True(t, errors.Is(err, context.Canceled), err)
	require.Equal(t, 7, b.count(t, "user_coupons WHERE status = 'EXPIRED'"))
	require.Zero(t, b.count(t, "mq_lease WHERE locked_until > "+now), "the lease is given back")
	require.Equal(t, 43, b.poll(t, all).Rows)
}

// Scan and handler must draw the same line through the coupons, at every percentage.
func TestRolloutDrawsOneLineForScanAndHandler(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t), func(c *Config) { c.ScanBatch = 100 })
	pool, err := b.gdb.DB()
	require.NoError(t, err)
	fl, err := flags.New(pool, flags.Config{}, "id", nil)
	require.NoError(t, err)
	tk, err := task.New(task.Spec{
		Name: flags.CouponExpire, Country: "id", Instance: "i", Config: task.Config{Role: task.RoleAll, FailureLimit: 5},
		DB: pool, Flags: fl, BusConfigured: true, Work: b, Poller: b, PollEvery: time.Hour, OverdueBy: time.Hour,
	})
	require.NoError(t, err)
	for _, points := range []int{0, 1000, 5000, 10_000} {
		b.s.Exec(t, "DELETE FROM user_coupons")
		b.s.Exec(t, "DELETE FROM outbox_event")
		b.many(t, 400, func(int) (string, string) { return "ISSUED", now })
		_, err := flags.Set(t.Context(), pool, flags.Change{Flag: flags.CouponExpire, Country: "id", Enabled: true, BasisPoints: points, Who: "t", Why: "t"})
		require.NoError(t, err)
		for _, table := range []string{"mq_feature_flag", "mq_feature_flag_history"} {
			b.s.Exec(t, "UPDATE "+table+" SET effective_at = effective_at - INTERVAL 1 MINUTE")
		}
		require.NoError(t, fl.Refresh(t.Context()))
		scanned := b.poll(t, fl.Get(flags.CouponExpire).PollOwns).Rows
		handled := 0
		for i := range 400 {
			id := manyID(i)
			before := b.status(t, id)
			out := tk.Handler().Handle(t.Context(), delivery(t, fmt.Sprint("u", i%1000), id, 1))
			if before == "ISSUED" { // the scan left it: the handler must take it
				require.Equal(t, "coupon is EXPIRED", out.Reason, id)
				handled++
			} else {
				require.Equal(t, "flag off", out.Reason, id)
			}
		}
		require.Equal(t, 400, scanned+handled)
		require.Equal(t, handled, b.count(t, "outbox_event"))
		require.InDelta(t, 400*points/10_000, handled, 40)
	}
}
