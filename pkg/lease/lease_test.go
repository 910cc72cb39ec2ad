package lease_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// zones are the session zones that the suite runs at: leases are about intervals, so
// nothing may depend on which one it is.
var zones = []string{"+00:00", "+07:00"}

func onServers(t *testing.T, test func(t *testing.T, store *lease.Store, pool *sql.DB)) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		for _, zone := range zones {
			t.Run(zone, func(t *testing.T) {
				pool, err := db.OpenSQL(db.Config{DSN: s.DSN, TimeZone: zone, MaxOpen: 8, DialTimeout: 5 * time.Second, IOTimeout: 10 * time.Second})
				require.NoError(t, err)
				t.Cleanup(func() { _ = pool.Close() })
				_, err = migrations.Up(t.Context(), pool)
				require.NoError(t, err)
				_, err = pool.ExecContext(t.Context(), "DELETE FROM mq_lease")
				require.NoError(t, err)
				test(t, lease.New(pool), pool)
			})
		}
	})
}

func TestAcquireRenewRelease(t *testing.T) {
	onServers(t, func(t *testing.T, s *lease.Store, _ *sql.DB) {
		ctx := t.Context()
		a, err := s.Acquire(ctx, "job", lease.NewOwner(), time.Minute)
		require.NoError(t, err)
		require.True(t, a.ValidFor(40*time.Second))
		require.False(t, a.ValidFor(50*time.Second), "a margin of a fifth is not trusted")

		_, err = s.Acquire(ctx, "job", lease.NewOwner(), time.Minute)
		require.ErrorIs(t, err, lease.ErrHeld)
		renewed, err := s.Renew(ctx, a)
		require.NoError(t, err)
		require.Equal(t, a.Fence, renewed.Fence)
		require.NoError(t, s.Release(ctx, renewed))
		require.ErrorIs(t, s.Release(ctx, renewed), lease.ErrLost, "released once")
		_, err = s.Renew(ctx, renewed)
		require.ErrorIs(t, err, lease.ErrLost)

		b, err := s.Acquire(ctx, "job", lease.NewOwner(), time.Minute)
		require.NoError(t, err)
		require.Greater(t, b.Fence, a.Fence)
		require.ErrorIs(t, s.Release(ctx, a), lease.ErrLost, "an old holder frees nothing")
		infos, err := s.List(ctx, "jo")
		require.NoError(t, err)
		require.Len(t, infos, 1)
		require.True(t, infos[0].Held)
		require.Less(t, infos[0].HeldFor, time.Minute)
	})
}

func TestAnExpiredLeaseIsTakenOver(t *testing.T) {
	onServers(t, func(t *testing.T, s *lease.Store, _ *sql.DB) {
		a, err := s.Acquire(t.Context(), "job", lease.NewOwner(), time.Second)
		require.NoError(t, err)
		var b lease.Lease
		testenv.Eventually(t, 5*time.Second, "the lease runs out", func() bool {
			b, err = s.Acquire(t.Context(), "job", lease.NewOwner(), time.Minute)
			return err == nil
		})
		require.Equal(t, a.Fence+1, b.Fence)
		_, err = s.Renew(t.Context(), a)
		require.ErrorIs(t, err, lease.ErrLost)
	})
}

func TestOneOfManyWins(t *testing.T) {
	onServers(t, func(t *testing.T, s *lease.Store, _ *sql.DB) {
		for round := range 3 { // the first round inserts the row, the others update it
			var won atomic.Int32
			var winner lease.Lease
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					l, err := s.Acquire(t.Context(), "contended", lease.NewOwner(), time.Minute)
					switch {
					case err == nil:
						won.Add(1)
						mu.Lock()
						winner = l
						mu.Unlock()
					case !errors.Is(err, lease.ErrHeld) && !db.IsRetryable(err):
						t.Errorf("round %d: %v", round, err)
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 1, won.Load(), "round %d", round)
			require.NoError(t, s.Release(t.Context(), winner))
		}
	})
}

func TestHoldRenewsWhileItWorks(t *testing.T) {
	onServers(t, func(t *testing.T, s *lease.Store, _ *sql.DB) {
		err := s.Hold(t.Context(), "job", time.Second, func(ctx context.Context, h *lease.Held) error {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(2500 * time.Millisecond):
			}
			require.True(t, h.ValidFor(100*time.Millisecond))
			_, err := s.Acquire(ctx, "job", lease.NewOwner(), time.Second)
			require.ErrorIs(t, err, lease.ErrHeld)
			return nil
		})
		require.NoError(t, err)
		_, err = s.Acquire(t.Context(), "job", lease.NewOwner(), time.Second)
		require.NoError(t, err, "released at the end")
	})
}

func TestHoldEndsItsWorkWhenTheRowIsTakenAway(t *testing.T) {
	tests := map[string]string{
		"deleted by hand":    "DELETE FROM mq_lease",
		"owned by another":   "UPDATE mq_lease SET owner = 'somebody', fence = fence + 1",
		"database forgot it": "UPDATE mq_lease SET locked_until = NOW(3) - INTERVAL 1 SECOND",
	}
	onServers(t, func(t *testing.T, s *lease.Store, pool *sql.DB) {
		for name, stmt := range tests {
			t.Run(name, func(t *testing.T) {
				err := s.Hold(t.Context(), "job-"+name[:5], time.Second, func(ctx context.Context, _ *lease.Held) error {
					_, err := pool.ExecContext(ctx, stmt)
					require.NoError(t, err)
					select {
					case <-ctx.Done():
						return context.Cause(ctx)
					case <-time.After(5 * time.Second):
						return errors.New("still working")
					}
				})
				require.ErrorIs(t, err, lease.ErrLost)
			})
		}
	})
}

func TestHoldGivesUpBeforeTheLeaseEndsWhenTheDatabaseIsSilent(t *testing.T) {
	s := testenv.PrivateMariaDB(t)
	pool, err := db.OpenSQL(db.Config{DSN: s.DSN, TimeZone: "+00:00", MaxOpen: 4, DialTimeout: time.Second, IOTimeout: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	_, err = migrations.Up(t.Context(), pool)
	require.NoError(t, err)
	const ttl = 2 * time.Second
	var began, ended time.Time
	err = lease.New(pool).Hold(t.Context(), "job", ttl, func(ctx context.Context, _ *lease.Held) error {
		began = time.Now()
		require.NoError(t, s.Server.Freeze())
		<-ctx.Done()
		ended = time.Now()
		return s.Server.Thaw()
	})
	require.ErrorIs(t, err, lease.ErrLost)
	require.Less(t, ended.Sub(began), ttl, "the work ended while the database still counted the lease as ours")
}

func TestTooShortALeaseIsRefused(t *testing.T) {
	_, err := lease.New(nil).Acquire(t.Context(), "job", "me", time.Millisecond)
	require.ErrorContains(t, err, "too short")
}
