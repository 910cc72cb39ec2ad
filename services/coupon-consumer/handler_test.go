package main

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestHandlerExpiresWhatIsOpenAndDue(t *testing.T) {
	const past, future = now + " - INTERVAL 1 SECOND", now + " + INTERVAL 1 HOUR"
	tests := map[string]struct {
		status, due, want, reason string
		verdict                   eventbus.Verdict
	}{
		"claimable, due":     {"CLAIMABLE", past, "EXPIRED", "coupon is EXPIRED", eventbus.VerdictDone},
		"issued, due":        {"ISSUED", past, "EXPIRED", "coupon is EXPIRED", eventbus.VerdictDone},
		"active, due":        {"ACTIVE", past, "EXPIRED", "coupon is EXPIRED", eventbus.VerdictDone},
		"redeemed":           {"USED", past, "USED", "coupon is USED already", eventbus.VerdictDone},
		"expired before":     {"EXPIRED", past, "EXPIRED", "coupon is EXPIRED already", eventbus.VerdictDone},
		"a status of theirs": {"FROZEN", past, "FROZEN", "coupon is FROZEN already", eventbus.VerdictDone},
		"extended":           {"ISSUED", future, "ISSUED", "coupon was extended, the scan expires it when it is due", eventbus.VerdictDone},
		"extended a little":  {"ISSUED", now + " + INTERVAL 3 SECOND", "ISSUED", "coupon is not due yet", eventbus.VerdictRetry},
	}
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		for name, tt := range tests {
			id := "c-" + tt.status + tt.due[len(tt.due)-8:len(tt.due)-7]
			b.coupon(t, id, tt.due, "status = '"+tt.status+"'")
			out := b.handle(t, id)
			require.Equal(t, tt.verdict, out.Verdict, name)
			require.Equal(t, tt.reason, out.Reason, name)
			require.NoError(t, out.Err, name)
			require.Equal(t, tt.want, b.status(t, id), name)
			if tt.verdict == eventbus.VerdictRetry {
				require.InDelta(t, 3, out.After.Seconds(), 1)
			}
			b.s.Exec(t, "DELETE FROM user_coupons")
		}
		out := b.handle(t, "no-such-coupon")
		require.Equal(t, "coupon is GONE already", out.Reason)
	})
}

func TestAReplayChangesNothing(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	b.coupon(t, "c1", now)
	require.Equal(t, "coupon is EXPIRED", b.handle(t, "c1").Reason)
	b.s.Exec(t, "UPDATE user_coupons SET updated_at = '2020-01-01'")
	for range 3 {
		require.Equal(t, "coupon is EXPIRED already", b.handle(t, "c1").Reason)
	}
	require.Equal(t, 1, b.count(t, "user_coupons WHERE updated_at = '2020-01-01'"))
}

func TestAHundredWorkersExpireOneCouponOnce(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		b.watchTransitions(t)
		b.coupon(t, "c1", now)
		start := make(chan struct{})
		var workers sync.WaitGroup
		for i := range 100 {
			workers.Go(func() {
				<-start
				if i%2 == 0 {
					if _, err := b.Poll(t.Context(), task.Scope{Owns: all}); err != nil {
						t.Errorf("scan: %v", err)
					}
					return
				}
				if out := b.handle(t, "c1"); out.Verdict != eventbus.VerdictDone {
					t.Errorf("handler: %v %v", out.Verdict, out.Err)
				}
			})
		}
		close(start)
		workers.Wait()
		require.Equal(t, statusExpired, b.status(t, "c1"))
		require.Equal(t, 1, b.count(t, "transitions"))
	})
}

// A business transaction that holds the row decides: the handler waits for it and
// finds the coupon redeemed, extended, or as it was.
func TestHandlerWaitsForARedeemInFlight(t *testing.T) {
	for name, tt := range map[string]struct{ set, want string }{
		"redeemed":    {"status = 'USED'", "USED"},
		"extended":    {"expires_at = " + now + " + INTERVAL 1 DAY", "ISSUED"},
		"rolled back": {"", statusExpired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
				b := newBench(t, s)
				b.coupon(t, "c1", now)
				tx, err := s.DB.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback() }()
				_, err = tx.ExecContext(t.Context(), "SELECT id FROM user_coupons WHERE id = 'c1' FOR UPDATE")
				require.NoError(t, err)
				outcome := make(chan eventbus.Outcome, 1)
				go func() { outcome <- b.handle(t, "c1") }()
				if tt.set != "" {
					_, err = tx.ExecContext(t.Context(), "UPDATE user_coupons SET "+tt.set+" WHERE id = 'c1'")
					require.NoError(t, err)
				}
				select {
				case out := <-outcome:
					t.Fatalf("did not wait: %v", out)
				case <-time.After(200 * time.Millisecond):
				}
				require.NoError(t, tx.Commit())
				require.Equal(t, eventbus.VerdictDone, (<-outcome).Verdict)
				require.Equal(t, tt.want, b.status(t, "c1"))
			})
		})
	}
}

func TestDatabaseAwayIsNoFailureOfTheEventPath(t *testing.T) {
	s := testenv.PrivateMariaDB(t)
	b := newBench(t, s)
	b.coupon(t, "c1", now)
	require.NoError(t, s.Server.Kill())
	out := b.handle(t, "c1")
	require.Equal(t, eventbus.VerdictRetry, out.Verdict)
	require.Error(t, out.Err)
	require.True(t, out.Outside, "the scan could do no better: %v", out.Err)
	_, err := b.Poll(t.Context(), task.Scope{Owns: all})
	require.Error(t, err)
}

func TestRowIDIsTheCouponRow(t *testing.T) {
	e := &expirer{}
	id, err := e.RowID(delivery(t, "u1", "9007199254740993", 1))
	require.NoError(t, err)
	require.Equal(t, "9007199254740993", id)
	_, err = e.RowID(eventbus.Delivery{Message: eventbus.Message{Body: []byte(`{"userCouponId":1}`)}})
	require.Error(t, err)
}
