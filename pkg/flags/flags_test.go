package flags_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func pool(t *testing.T, s *testenv.Schema) *sql.DB {
	t.Helper()
	p, err := db.OpenSQL(db.Config{DSN: s.DSN, TimeZone: "+07:00", MaxOpen: 8, DialTimeout: 2 * time.Second, IOTimeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	_, err = migrations.Up(t.Context(), p)
	require.NoError(t, err)
	return p
}

func open(t *testing.T, p *sql.DB, cfg flags.Config) *flags.Flags {
	t.Helper()
	f, err := flags.New(p, cfg, "id", nil)
	require.NoError(t, err)
	return f
}

func set(t *testing.T, p *sql.DB, c flags.Change) flags.Row {
	t.Helper()
	if c.Flag == "" {
		c.Flag = flags.PushDispatch
	}
	if c.Country == "" {
		c.Country = "id"
	}
	c.Who, c.Why = "ops", "test"
	row, err := flags.Set(t.Context(), p, c)
	require.NoError(t, err)
	return row
}

func yes() *bool { v := true; return &v }
func no() *bool  { v := false; return &v }

func TestOrderOfAuthority(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		p := pool(t, s)
		for _, tt := range []struct {
			name string
			env  *bool
			row  *bool
			want bool
			from flags.Source
		}{
			{"nobody says anything", nil, nil, false, flags.SourceDefault},
			{"environment true", yes(), nil, true, flags.SourceEnvOn},
			{"environment false", no(), nil, false, flags.SourceEnvOff},
			{"row on", nil, yes(), true, flags.SourceRow},
			{"row off beats environment true", yes(), no(), false, flags.SourceRow},
			{"environment false beats row on", no(), yes(), false, flags.SourceEnvOff},
		} {
			t.Run(tt.name, func(t *testing.T) {
				_, err := p.ExecContext(t.Context(), "DELETE FROM mq_feature_flag")
				require.NoError(t, err)
				_, err = p.ExecContext(t.Context(), "DELETE FROM mq_feature_flag_history")
				require.NoError(t, err)
				if tt.row != nil {
					set(t, p, flags.Change{Enabled: *tt.row, BasisPoints: flags.FullRollout})
				}
				f := open(t, p, flags.Config{PushDispatch: tt.env})
				require.NoError(t, f.Refresh(t.Context()))
				state := f.Get(flags.PushDispatch)
				require.Equal(t, tt.want, state.Enabled)
				require.Equal(t, tt.from, state.Source)
				require.False(t, state.Stale())
				if tt.from == flags.SourceEnvOff {
					require.False(t, state.EventOwns("1"), "the rollback by the environment knows no hand-over")
				}
				require.True(t, state.EventOwns("1") || state.PollOwns("1", time.Now()))
			})
		}
	})
}

func TestChangeArrivesAndAnotherCountryIsLeftAlone(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		p := pool(t, s)
		f := open(t, p, flags.Config{Refresh: 100 * time.Millisecond})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx, nil) }()
		defer func() { stop(); require.NoError(t, <-done) }()

		set(t, p, flags.Change{Country: "my", Enabled: true, BasisPoints: flags.FullRollout})
		row := set(t, p, flags.Change{Enabled: true, BasisPoints: 2500})
		require.EqualValues(t, 1, row.Version)
		testenv.Eventually(t, 10*time.Second, "the flag is on", func() bool { return f.Get(flags.PushDispatch).Enabled })
		state := f.Get(flags.PushDispatch)
		require.Equal(t, 2500, state.BasisPoints)
		require.True(t, state.EffectiveAt.Equal(row.EffectiveAt), "%s %s", state.EffectiveAt, row.EffectiveAt)
		require.True(t, state.PollOwns("1", time.Now().Add(-time.Second)))

		set(t, p, flags.Change{Enabled: false})
		testenv.Eventually(t, 10*time.Second, "the flag is off", func() bool { return !f.Get(flags.PushDispatch).Enabled })
		n := 0
		for i := range 1000 {
			if f.Get(flags.PushDispatch).EventOwns(fmt.Sprint(i)) {
				n++
			}
		}
		require.InDelta(t, 250, n, 60, "until the off is binding, events go on with the rows that they had")
	})
}

func TestDatabaseAwayKeepsTheLastValues(t *testing.T) {
	s := testenv.MariaDB(t)
	p := pool(t, s)
	set(t, p, flags.Change{Enabled: true, BasisPoints: flags.FullRollout})
	f := open(t, p, flags.Config{})
	boot := f.Get(flags.PushDispatch)
	require.False(t, boot.Enabled, "off until the database was asked")
	require.True(t, boot.Stale())
	require.NoError(t, f.Refresh(t.Context()))
	require.True(t, f.Get(flags.PushDispatch).Enabled)

	require.NoError(t, p.Close())
	require.Error(t, f.Refresh(t.Context()))
	state, err := f.FreshEnough(t.Context(), flags.PushDispatch)
	require.NoError(t, err, "a moment later it is fresh enough still")
	require.True(t, state.Enabled)
	require.Positive(t, state.Age())
}

func TestOneBadRowFreezesNoOther(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		p := pool(t, s)
		reg := prometheus.NewRegistry()
		f, err := flags.New(p, flags.Config{}, "id", reg)
		require.NoError(t, err)
		set(t, p, flags.Change{Enabled: true, BasisPoints: 5000})
		require.NoError(t, f.Refresh(t.Context()))
		for _, bad := range []string{"rollout_bp = 20000", "rollout_bp = -1", "rollout_bp = 5000, enabled = 7"} {
			s.Exec(t, "UPDATE mq_feature_flag SET "+bad+" WHERE flag = 'push-dispatch'")
			set(t, p, flags.Change{Flag: flags.CouponExpire, Enabled: true, BasisPoints: flags.FullRollout})
			s.Exec(t, "INSERT IGNORE INTO mq_feature_flag SELECT 'not-ours', country, enabled, rollout_bp, salt, version, effective_at, updated_by, reason, updated_at FROM mq_feature_flag WHERE flag = 'coupon-expire'")
			require.NoError(t, f.Refresh(t.Context()))
			push := f.Get(flags.PushDispatch)
			require.True(t, push.Enabled, bad)
			require.Equal(t, 5000, push.BasisPoints, bad)
			require.True(t, f.Get(flags.CouponExpire).Enabled)
		}
		n, err := testutil.GatherAndCount(reg, "seahub_feature_flag_enabled")
		require.NoError(t, err)
		require.Equal(t, len(flags.Names()), n)
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, family := range families {
			if family.GetName() != "seahub_feature_flag_bad_row" {
				continue
			}
			for _, m := range family.GetMetric() {
				require.Equal(t, m.GetLabel()[0].GetValue() == "push-dispatch", m.GetGauge().GetValue() == 1)
			}
		}
	})
}

func TestSetIsACASWithAHistory(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		p := pool(t, s)
		zero := int64(0)
		var wg sync.WaitGroup
		results := make(chan error, 8)
		for i := range 8 {
			wg.Go(func() {
				_, err := flags.Set(t.Context(), p, flags.Change{
					Flag: flags.PushDispatch, Country: "id", Enabled: true, BasisPoints: i, Who: "ops", Why: "race", Version: &zero,
				})
				results <- err
			})
		}
		wg.Wait()
		close(results)
		won := 0
		for err := range results {
			if err == nil {
				won++
				continue
			}
			require.ErrorIs(t, err, flags.ErrConflict)
		}
		require.Equal(t, 1, won)

		for range 3 {
			set(t, p, flags.Change{Enabled: true, BasisPoints: 100})
		}
		history, err := flags.History(t.Context(), p, flags.PushDispatch, "id", 10)
		require.NoError(t, err)
		require.Len(t, history, 4)
		require.EqualValues(t, 4, history[0].Version)
		rows, err := flags.List(t.Context(), p)
		require.NoError(t, err)
		require.Len(t, rows, 1)
		require.Equal(t, history[0], rows[0])
		require.Equal(t, history[3].Salt, rows[0].Salt, "the salt stays, or a larger rollout would take rows away")
		require.InDelta(t, flags.HandOver.Seconds(), rows[0].EffectiveAt.Sub(rows[0].UpdatedAt).Seconds(), 0.1)
	})
}

func TestChangesThatMakeNoSenseAreRefusedAtOnce(t *testing.T) {
	_, err := flags.Set(t.Context(), nil, flags.Change{Flag: "push", BasisPoints: 10_001, Enabled: true})
	require.ErrorIs(t, err, flags.ErrInvalidChange)
	require.ErrorIs(t, err, flags.ErrUnknownFlag)
	for _, want := range []string{"country", "basis points 10001", "who", "reason"} {
		require.ErrorContains(t, err, want)
	}
}

func TestBucketsAreEvenMonotoneAndTheirOwn(t *testing.T) {
	const ids = 100_000
	bins := make([]int, 100)
	both, first := 0, 0
	for i := range ids {
		id := fmt.Sprint(i) // sequential ids are our case
		b := flags.Bucket(flags.PushDispatch, "s", id)
		require.True(t, b >= 0 && b < flags.FullRollout)
		bins[b/100]++
		if b < 1000 {
			first++
			if flags.Bucket(flags.CouponExpire, "s", id) < 1000 {
				both++
			}
		}
	}
	chi := 0.0
	for _, n := range bins {
		d := float64(n) - ids/100
		chi += d * d / (ids / 100)
	}
	require.Less(t, chi, 99+5*14.1, "chi square of 99 degrees of freedom")
	require.InDelta(t, 0.1, float64(both)/float64(first), 0.02, "the first tenth of one flag is not that of another")
	require.Equal(t, flags.Bucket("a", "b", "c"), flags.Bucket("a", "b", "c"))
	require.NotEqual(t, flags.Bucket("ab", "", "c"), flags.Bucket("a", "b", "c"), "parts are kept apart")
}
