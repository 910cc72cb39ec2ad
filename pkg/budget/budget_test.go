package budget_test

import (
	"context"
	"database/sql"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/budget"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// zone is one that is not the process's: budgets are about intervals.
const zone = "+07:00"

func onServers(t *testing.T, test func(t *testing.T, open func() *sql.DB)) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		open := func() *sql.DB {
			pool, err := db.OpenSQL(db.Config{DSN: s.DSN, TimeZone: zone, MaxOpen: 8, DialTimeout: 5 * time.Second, IOTimeout: 10 * time.Second})
			require.NoError(t, err)
			t.Cleanup(func() { _ = pool.Close() })
			return pool
		}
		_, err := migrations.Up(t.Context(), open())
		require.NoError(t, err)
		test(t, open)
	})
}

func steady(rate float64) budget.Spec {
	return budget.Spec{Name: "api:id", Start: rate, Least: rate, Most: rate}
}

func make1(t *testing.T, pool *sql.DB, spec budget.Spec) *budget.Budget {
	t.Helper()
	b, err := budget.New(pool, spec)
	require.NoError(t, err)
	return b
}

// Units never overlap: over any span the sum of all replicas stays within the rate.
func TestReplicasTogetherKeepTheRate(t *testing.T) {
	const rate, takers, each = 200.0, 4, 25
	onServers(t, func(t *testing.T, open func() *sql.DB) {
		var mu sync.Mutex
		var spent []time.Time
		var all sync.WaitGroup
		for range 3 { // three pods, each with a pool of its own
			b := make1(t, open(), steady(rate))
			for taker := range takers {
				all.Go(func() {
					for left := each; left > 0; {
						n := min(1+taker, left)
						g, err := b.Wait(t.Context(), n, 10*time.Second)
						if err != nil {
							t.Errorf("wait: %v", err)
							return
						}
						at := time.Now()
						mu.Lock()
						for i := range n {
							spent = append(spent, at.Add(time.Duration(i)*g.Every))
						}
						mu.Unlock()
						left -= n
					}
				})
			}
		}
		all.Wait()
		require.Len(t, spent, 3*takers*each)
		sort.Slice(spent, func(i, j int) bool { return spent[i].Before(spent[j]) })
		// Nobody is early by more than the clocks' noise, so that n units need (n-1)/rate.
		took := spent[len(spent)-1].Sub(spent[0])
		least := time.Duration(float64(len(spent)-1) / rate * float64(time.Second))
		require.GreaterOrEqual(t, took, least-50*time.Millisecond)
	})
}

func TestABusyBudgetSaysWhenAndTakesNothing(t *testing.T) {
	onServers(t, func(t *testing.T, open func() *sql.DB) {
		b := make1(t, open(), steady(1))
		g, err := b.Take(t.Context(), 3, 0)
		require.NoError(t, err)
		require.Zero(t, g.Wait)
		require.Equal(t, time.Second, g.Every)
		for range 3 {
			_, err = b.Take(t.Context(), 1, time.Second)
			require.ErrorIs(t, err, budget.ErrBusy)
			var busy *budget.BusyError
			require.ErrorAs(t, err, &busy)
			require.InDelta(t, 3, busy.After.Seconds(), 1, "asking in vain takes nothing")
		}
		g, err = b.Take(t.Context(), 1, 5*time.Second)
		require.NoError(t, err)
		require.InDelta(t, 3, g.Wait.Seconds(), 1)
		_, err = b.Take(t.Context(), 0, 0)
		require.ErrorIs(t, err, budget.ErrSpec)
	})
}

func TestBurstAfterAnIdleTime(t *testing.T) {
	onServers(t, func(t *testing.T, open func() *sql.DB) {
		spec := steady(10)
		spec.Burst = 5
		b := make1(t, open(), spec)
		_, err := b.Take(t.Context(), 1, 0)
		require.NoError(t, err)
		time.Sleep(700 * time.Millisecond)
		for range 5 {
			g, err := b.Take(t.Context(), 1, 0)
			require.NoError(t, err)
			require.Zero(t, g.Wait)
		}
		_, err = b.Take(t.Context(), 2, 0)
		require.ErrorIs(t, err, budget.ErrBusy)
	})
}

func TestSlowHalvesOnceASpellAndPauses(t *testing.T) {
	onServers(t, func(t *testing.T, open func() *sql.DB) {
		spec := budget.Spec{Name: "api:id", Start: 40, Least: 4, Most: 40, Recover: 10}
		pods := []*budget.Budget{make1(t, open(), spec), make1(t, open(), spec)}
		for i := range 20 { // refusals of one spell, seen by all
			require.NoError(t, pods[i%2].Slow(t.Context(), 800*time.Millisecond))
		}
		st, err := pods[0].State(t.Context())
		require.NoError(t, err)
		require.InDelta(t, 20, st.Rate, 0.5)
		require.Greater(t, st.PausedFor, 300*time.Millisecond)
		_, err = pods[1].Take(t.Context(), 1, 0)
		require.ErrorIs(t, err, budget.ErrBusy)

		began := time.Now()
		_, err = pods[1].Wait(t.Context(), 1, 5*time.Second)
		require.NoError(t, err)
		require.Greater(t, time.Since(began), 300*time.Millisecond)
		time.Sleep(1200 * time.Millisecond)
		_, err = pods[0].Take(t.Context(), 1, time.Second)
		require.NoError(t, err)
		st, err = pods[0].State(t.Context())
		require.NoError(t, err)
		require.Greater(t, st.Rate, 30.0, "it grows back")
		require.LessOrEqual(t, st.Rate, 40.0)
		for range 5 {
			require.NoError(t, pods[0].Slow(t.Context(), 0))
			time.Sleep(1100 * time.Millisecond)
		}
		st, err = pods[0].State(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, st.Rate, 4.0)
	})
}

// Who waits for a unit that was granted before a pause does not spend it in the pause.
func TestAPauseTakesGrantedUnitsBack(t *testing.T) {
	onServers(t, func(t *testing.T, open func() *sql.DB) {
		spec := steady(0.5)
		b, other := make1(t, open(), spec), make1(t, open(), spec)
		_, err := b.Take(t.Context(), 1, 0)
		require.NoError(t, err)
		began := time.Now()
		done := make(chan error, 1)
		go func() {
			_, err := b.Wait(t.Context(), 1, 20*time.Second) // begins in two seconds
			done <- err
		}()
		time.Sleep(200 * time.Millisecond)
		require.NoError(t, other.Slow(t.Context(), 4*time.Second))
		require.NoError(t, <-done)
		require.Greater(t, time.Since(began), 4*time.Second)
	})
}

// A process that dies with units in hand holds nobody up for longer than they last.
func TestUnitsOfTheDeadPass(t *testing.T) {
	onServers(t, func(t *testing.T, open func() *sql.DB) {
		pool := open()
		dead := make1(t, pool, steady(10))
		_, err := dead.Take(t.Context(), 5, 0)
		require.NoError(t, err)
		require.NoError(t, pool.Close())
		_, err = make1(t, open(), steady(10)).Wait(t.Context(), 1, 3*time.Second)
		require.NoError(t, err)
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	onServers(t, func(t *testing.T, open func() *sql.DB) {
		b := make1(t, open(), steady(0.1))
		_, err := b.Take(t.Context(), 1, 0)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = b.Wait(ctx, 1, time.Minute)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestSpecIsChecked(t *testing.T) {
	for _, s := range []budget.Spec{
		{}, {Name: "x"}, {Name: "x", Start: 1, Least: 2, Most: 3}, {Name: "x", Start: 5, Least: 1, Most: 3},
		{Name: "x", Start: 1, Least: 1, Most: 1, Recover: -1},
	} {
		_, err := budget.New(nil, s)
		require.ErrorIs(t, err, budget.ErrSpec, "%+v", s)
	}
}
