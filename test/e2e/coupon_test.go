package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// Kill -9 of the process that scans, and of the one that handles, in the middle of it and
// three times: the next one goes on, and each coupon expires once, but those that people
// redeemed or extended meanwhile.
func TestACouponScanSurvivesItsProcesses(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]bool{"flag off": false, "flag on": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killTheScan(t, newWorldOf(t, couponSubject()), on)
		})
	}
}

func killTheScan(t *testing.T, w *world, on bool) {
	// Slow enough that it is in the middle of a scan that a process dies, and patient
	// enough that no fallback does the work.
	maps.Copy(w.Env, map[string]string{
		"SEAHUB_COUPON_SCAN_BATCH": "50", "SEAHUB_COUPON_SCAN_PAUSE": "200ms", "SEAHUB_COUPON_OVERDUE_SCANS": "1000",
	})
	const n, taken = 4000, 100
	w.dueCoupons(n)
	progress := func() int { return w.count("SELECT COUNT(*) FROM expirations") }
	if on {
		w.flagSince()
		w.relay("relay-1")
		progress = func() int { return w.count("SELECT COUNT(*) FROM outbox_event") }
	}
	begin := func(round int) []*stack.Service {
		all := []*stack.Service{w.consumer(fmt.Sprintf("poll-%d", round), "poll")}
		if on {
			all = append(all, w.consumer(fmt.Sprintf("consume-%d", round), "consume"))
		}
		return all
	}
	running := begin(0)
	for round, share := range []float64{0.15, 0.3, 0.5} {
		testenv.Eventually(t, 3*soon, "the scan goes on", func() bool { return progress() >= int(share*n) })
		for _, s := range running {
			require.NoError(t, s.Kill())
		}
		require.Less(t, progress(), n-taken, "it was in the middle")
		if round == 0 {
			w.takeCoupons(n-taken, n)
		}
		running = begin(round + 1)
	}
	testenv.Eventually(t, 4*soon, "all others are expired", func() bool {
		return w.count("SELECT COUNT(*) FROM user_coupons WHERE status = 'EXPIRED'") == n-taken
	})
	require.Equal(t, n-taken, w.count("SELECT COUNT(*) FROM expirations"), "each once")
	require.Equal(t, n-taken, w.count("SELECT COUNT(DISTINCT id) FROM expirations WHERE early = 0"))
	require.Zero(t, w.count("SELECT COUNT(*) FROM expirations WHERE id >= ?", dueCouponID(n-taken)), "none that was redeemed or extended")
	require.Equal(t, taken/2, w.count("SELECT COUNT(*) FROM user_coupons WHERE status = 'USED'"))
	require.Zero(t, w.fallbackRuns())
	if on {
		require.Zero(t, w.count("SELECT COUNT(*) FROM mq_dead_letter"))
	}
}

// dueCouponID orders as the scan does.
func dueCouponID(i int) string { return fmt.Sprintf("due-%06d", i) }

// dueCoupons writes n coupons whose time is now.
func (w *world) dueCoupons(n int) {
	w.t.Helper()
	const atOnce = 1000
	for from := 0; from < n; from += atOnce {
		var values []string
		for i := from; i < min(n, from+atOnce); i++ {
			values = append(values, fmt.Sprintf("('%s', 'u%d', 'c1', 'ISSUED', NOW())", dueCouponID(i), i%100))
		}
		w.exec("INSERT INTO user_coupons (id, user_id, coupon_id, status, expires_at) VALUES " + strings.Join(values, ","))
	}
}

// takeCoupons redeems and extends, by halves, coupons that are due and that no scan has
// come to.
func (w *world) takeCoupons(from, to int) {
	w.t.Helper()
	half := (from + to) / 2
	for _, change := range []struct {
		set      string
		from, to int
	}{{"status = 'USED'", from, half}, {"expires_at = expires_at + INTERVAL 1 DAY", half, to}} {
		res, err := w.DB.ExecContext(w.t.Context(), "UPDATE user_coupons SET "+change.set+" WHERE id >= ? AND id < ? AND status = 'ISSUED'",
			dueCouponID(change.from), dueCouponID(change.to))
		require.NoError(w.t, err)
		changed, err := res.RowsAffected()
		require.NoError(w.t, err)
		require.EqualValues(w.t, change.to-change.from, changed)
	}
}
