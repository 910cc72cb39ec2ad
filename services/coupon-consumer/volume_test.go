package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

const (
	volume = 100_000
	// patience is how long a business update may take beside a scan: the bound on a
	// transaction, not a wish for speed.
	patience = batchTimeout
)

// business redeems and extends coupons until it is stopped, as the app does, and
// remembers which it got.
type business struct {
	b                  *bench
	mu                 sync.Mutex
	redeemed, extended map[string]bool
	updates            int
	longest            time.Duration
	failed             error
	all                sync.WaitGroup
	stop               context.CancelFunc
}

func (b *bench) startBusiness(t *testing.T, n int, writers int) *business {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &business{b: b, redeemed: map[string]bool{}, extended: map[string]bool{}, stop: stop}
	for range writers {
		w.all.Go(func() {
			for ctx.Err() == nil {
				w.one(t.Context(), manyID(rand.IntN(n)))
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	t.Cleanup(func() { stop(); w.all.Wait() })
	return w
}

func (w *business) one(ctx context.Context, id string) {
	set, got := "status = 'USED'", w.redeemed
	if rand.IntN(2) == 0 {
		set, got = "expires_at = NOW(3) + INTERVAL 2 DAY", w.extended
	}
	began := time.Now()
	res := w.b.gdb.WithContext(ctx).Exec("UPDATE user_coupons SET "+set+" WHERE id = ? AND status IN ('CLAIMABLE', 'ISSUED', 'ACTIVE')", id)
	took := time.Since(began)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.updates++
	w.longest = max(w.longest, took)
	switch {
	case res.Error != nil && !db.IsRetryable(res.Error):
		w.failed = res.Error
	case res.RowsAffected == 1:
		got[id] = true
	}
}

// judge ends it and demands that each coupon is what the business made of it.
func (w *business) judge(t *testing.T) {
	t.Helper()
	w.stop()
	w.all.Wait()
	require.NoError(t, w.failed)
	require.Less(t, w.longest, patience)
	statuses := map[string]string{}
	rows, err := w.b.s.DB.QueryContext(t.Context(), "SELECT id, status FROM user_coupons")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, status string
		require.NoError(t, rows.Scan(&id, &status))
		statuses[id] = status
	}
	for id, status := range statuses {
		switch {
		case w.redeemed[id]:
			require.Equal(t, "USED", status, id)
		case w.extended[id]:
			require.Contains(t, openStatuses(), status, id)
		default:
			require.Equal(t, statusExpired, status, id)
		}
	}
	w.b.judge(t)
	require.Equal(t, len(statuses)-w.b.count(t, "user_coupons WHERE status <> 'EXPIRED'"), w.b.count(t, "transitions"))
	t.Logf("%d business updates meanwhile (%d redeemed, %d extended), the longest took %s", w.updates, len(w.redeemed), len(w.extended), w.longest.Round(time.Millisecond))
}

func newVolume(t *testing.T, s *testenv.Schema) *bench {
	t.Helper()
	b := newBench(t, s, func(c *Config) { c.ScanBatch = 500 })
	b.watchTransitions(t)
	b.many(t, volume, func(i int) (string, string) {
		if i%2 == 0 {
			return openStatuses()[i%3], "'2026-03-01 00:00:00'"
		}
		return openStatuses()[i%3], now + fmt.Sprintf(" - INTERVAL %d SECOND", i%5000)
	})
	return b
}

// scanInterrupted scans again and again, each time ended at some moment, until a scan
// came through. It returns the longest transaction.
func (b *bench) scanInterrupted(t *testing.T, owns func(string, time.Time) bool) (longest time.Duration, scans int) {
	t.Helper()
	for patience := 50 * time.Millisecond; ; patience += patience / 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience+rand.N(patience))
		var done tally
		err := b.scan(ctx, task.Scope{Owns: owns}, &done)
		cancel()
		longest, scans = max(longest, done.longest), scans+1
		if err == nil {
			return longest, scans
		}
		require.True(t, ctx.Err() != nil || db.IsRetryable(err), err)
	}
}

func TestAHundredThousandWithTheFlagOff(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newVolume(t, s)
		w := b.startBusiness(t, volume, 2)
		began := time.Now()
		longest, scans := b.scanInterrupted(t, all)
		t.Logf("%d coupons in %s, %d scans (all but the last interrupted), longest transaction %s", volume, time.Since(began).Round(time.Millisecond), scans, longest.Round(time.Millisecond))
		w.stop()
		w.all.Wait()
		b.poll(t, all) // what was locked when the scan came by
		w.judge(t)
	})
}

func TestAHundredThousandWithTheFlagOn(t *testing.T) {
	b := newVolume(t, testenv.MariaDB(t))
	w := b.startBusiness(t, volume, 2)
	began := time.Now()
	longest, scans := b.scanInterrupted(t, none)
	t.Logf("%d events in %s, %d scans (all but the last interrupted), longest transaction %s",
		b.count(t, "outbox_event"), time.Since(began).Round(time.Millisecond), scans, longest.Round(time.Millisecond))
	began = time.Now()
	b.handleAll(t)
	t.Logf("handled in %s", time.Since(began).Round(time.Millisecond))
	require.Zero(t, b.count(t, "(SELECT event_id FROM outbox_event GROUP BY event_id HAVING COUNT(*) > 1) AS twice"))
	w.judge(t)
}

// handleAll gives each event to a handler, some of them twice, and some after one that
// was interrupted.
func (b *bench) handleAll(t *testing.T) {
	t.Helper()
	events := make(chan [2]string, 1000)
	var workers sync.WaitGroup
	var failures atomic.Int64
	for range 8 {
		workers.Go(func() {
			for e := range events {
				d := delivery(t, e[0], e[1], 1)
				for again := rand.IntN(20); again >= 18; again-- {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
					_ = b.Handle(ctx, e[1], d)
					cancel()
				}
				for out := b.Handle(t.Context(), e[1], d); out.Verdict != eventbus.VerdictDone; out = b.Handle(t.Context(), e[1], d) {
					if !db.IsRetryable(out.Err) || errors.Is(out.Err, context.Canceled) {
						failures.Add(1)
						t.Errorf("coupon %s: %v %v", e[1], out.Reason, out.Err)
						break
					}
				}
			}
		})
	}
	rows, err := b.s.DB.QueryContext(t.Context(), "SELECT SUBSTRING_INDEX(SUBSTRING_INDEX(event_id, ':', 2), ':', -1), aggregate_id FROM outbox_event")
	require.NoError(t, err)
	for rows.Next() {
		var e [2]string
		require.NoError(t, rows.Scan(&e[0], &e[1]))
		events <- e
	}
	close(events)
	workers.Wait()
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	require.Zero(t, failures.Load())
}
