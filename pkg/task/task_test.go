package task_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// work is a task's two sides with results that the test sets.
type work struct {
	mu      sync.Mutex
	outcome eventbus.Outcome
	panics  bool
	handled []string

	overdue  task.Overdue
	row      string
	created  time.Time
	scopes   []task.Scope
	pollFail error
	pollBoom bool
	polls    atomic.Int64
}

func (w *work) RowID(d eventbus.Delivery) (string, error) {
	if len(d.Body) == 0 {
		return "", errors.New("no body")
	}
	return string(d.Body), nil
}

func (w *work) Handle(_ context.Context, id string, _ eventbus.Delivery) eventbus.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handled = append(w.handled, id)
	if w.panics {
		panic("boom")
	}
	return w.outcome
}

func (w *work) Poll(_ context.Context, s task.Scope) (task.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polls.Add(1)
	w.scopes = append(w.scopes, s)
	if w.pollBoom {
		panic("boom")
	}
	return task.Result{Rows: 1}, w.pollFail
}

func (w *work) Overdue(_ context.Context, _ time.Duration, owned func(string, time.Time) bool) (task.Overdue, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.overdue.Rows == 0 || !owned(w.row, w.created) {
		return task.Overdue{}, nil
	}
	return w.overdue, nil
}

func (w *work) set(f func(*work)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
}

// fallbackPasses counts the passes that stepped in for the event path.
func (w *work) fallbackPasses() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, s := range w.scopes {
		if s.Fallback {
			n++
		}
	}
	return n
}

type bench struct {
	s    *testenv.Schema
	pool *sql.DB
}

func newBench(t *testing.T) bench {
	t.Helper()
	s := testenv.MariaDB(t)
	p, err := db.OpenSQL(db.Config{DSN: s.DSN, TimeZone: "+07:00", MaxOpen: 8, DialTimeout: 2 * time.Second, IOTimeout: 5 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	_, err = migrations.Up(t.Context(), p)
	require.NoError(t, err)
	return bench{s, p}
}

// turnOn sets the flag with a change that is binding already.
func (b bench) turnOn(t *testing.T, points int) {
	t.Helper()
	_, err := flags.Set(t.Context(), b.pool, flags.Change{Flag: flags.PushDispatch, Country: "id", Enabled: true, BasisPoints: points, Who: "t", Why: "t"})
	require.NoError(t, err)
	for _, table := range []string{"mq_feature_flag", "mq_feature_flag_history"} {
		b.s.Exec(t, "UPDATE "+table+" SET effective_at = effective_at - INTERVAL 1 MINUTE")
	}
}

func (b bench) task(t *testing.T, instance string, w *work, reg prometheus.Registerer, change ...func(*task.Spec)) (*task.Task, *flags.Flags) {
	t.Helper()
	f, err := flags.New(b.pool, flags.Config{Refresh: 100 * time.Millisecond}, "id", nil)
	require.NoError(t, err)
	require.NoError(t, f.Refresh(t.Context()))
	spec := task.Spec{
		Name: flags.PushDispatch, Country: "id", Instance: instance, Config: task.Config{Role: task.RoleAll, FailureLimit: 3},
		DB: b.pool, Flags: f, BusConfigured: true, Work: w, Poller: w,
		PollEvery: 20 * time.Millisecond, OverdueBy: 300 * time.Millisecond, Registerer: reg,
	}
	for _, c := range change {
		c(&spec)
	}
	tk, err := task.New(spec)
	require.NoError(t, err)
	return tk, f
}

// run starts loops and ends them with the test.
func run(t *testing.T, loops ...func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, loop := range loops {
		all.Go(func() {
			if err := loop(ctx); err != nil {
				t.Errorf("loop: %v", err)
			}
		})
	}
	t.Cleanup(func() { stop(); all.Wait() })
}

func delivery(id string) eventbus.Delivery {
	return eventbus.Delivery{Message: eventbus.Message{Body: []byte(id)}, Attempt: 1, PublishedAt: time.Now().Add(-time.Second)}
}

func TestFlagDecidesRowByRow(t *testing.T) {
	b := newBench(t)
	w := &work{outcome: eventbus.Done()}
	tk, f := b.task(t, "i1", w, nil)
	out := tk.Handler().Handle(t.Context(), delivery("1"))
	require.Equal(t, eventbus.VerdictSkip, out.Verdict)
	require.Equal(t, "flag off", out.Reason)

	b.turnOn(t, 5000)
	require.NoError(t, f.Refresh(t.Context()))
	on := 0
	for i := range 200 {
		id := fmt.Sprint(i)
		done := tk.Handler().Handle(t.Context(), delivery(id)).Verdict == eventbus.VerdictDone
		require.Equal(t, done, tk.EventOwns(id))
		if done {
			on++
		}
	}
	require.InDelta(t, 100, on, 40)
	require.Len(t, w.handled, on)
	require.Equal(t, eventbus.VerdictDead, tk.Handler().Handle(t.Context(), eventbus.Delivery{}).Verdict)
}

// An event must not be acknowledged as the poll's on knowledge that may be outdated.
func TestStaleFlagsSkipNothing(t *testing.T) {
	b := newBench(t)
	w := &work{outcome: eventbus.Done()}
	f, err := flags.New(b.pool, flags.Config{}, "id", nil) // nothing read yet
	require.NoError(t, err)
	tk, _ := b.task(t, "i1", w, nil, func(s *task.Spec) { s.Flags = f })
	b.turnOn(t, flags.FullRollout)
	require.Equal(t, eventbus.VerdictDone, tk.Handler().Handle(t.Context(), delivery("1")).Verdict, "it looks before it skips")

	f, err = flags.New(b.pool, flags.Config{}, "id", nil)
	require.NoError(t, err)
	tk, _ = b.task(t, "i2", w, nil, func(s *task.Spec) { s.Flags = f })
	require.True(t, tk.EventOwns("1"), "in doubt yes: whoever reschedules then leaves an event")
	require.NoError(t, b.pool.Close())
	out := tk.Handler().Handle(t.Context(), delivery("1"))
	require.Equal(t, eventbus.VerdictRetry, out.Verdict)
	require.Error(t, out.Err)
	require.Len(t, w.handled, 1)
}

func TestPollRunsAsBeforeWithoutAFlagOrWithoutABus(t *testing.T) {
	b := newBench(t)
	w := &work{}
	tk, _ := b.task(t, "i1", w, nil)
	run(t, tk.RunPoll)
	testenv.Eventually(t, 5*time.Second, "passes", func() bool { return w.polls.Load() > 3 })
	w.set(func(w *work) {
		require.True(t, w.scopes[0].Owns("any", time.Now()))
		require.Zero(t, w.scopes[0].OverdueBy)
	})

	b.turnOn(t, flags.FullRollout)
	reg := prometheus.NewRegistry()
	lone := &work{overdue: task.Overdue{Rows: 5}, row: "r", created: time.Now()}
	without, _ := b.task(t, "i2", lone, reg, func(s *task.Spec) { s.BusConfigured = false })
	run(t, without.RunPoll)
	testenv.Eventually(t, 5*time.Second, "passes", func() bool { return lone.polls.Load() > 3 })
	lone.set(func(w *work) { require.True(t, w.scopes[0].Owns("any", time.Now())) })
	require.False(t, without.EventOwns("any"))
	require.Zero(t, lone.fallbackPasses())
	ok, reason := without.Ready()
	require.True(t, ok)
	require.Contains(t, reason, "no event bus is configured")
	require.Equal(t, 1.0, gauge(t, reg, "seahub_task_flag_without_bus"))
}

func TestPollLeavesWhatEventsOwn(t *testing.T) {
	b := newBench(t)
	b.turnOn(t, flags.FullRollout)
	w := &work{}
	tk, f := b.task(t, "i1", w, nil)
	run(t, tk.RunPoll)
	testenv.Eventually(t, 5*time.Second, "passes", func() bool { return w.polls.Load() > 3 })
	effective := f.Get(flags.PushDispatch).EffectiveAt
	w.set(func(w *work) {
		require.False(t, w.scopes[0].Owns("r", time.Now()))
		require.True(t, w.scopes[0].Owns("r", effective.Add(-time.Millisecond)), "a row from before the hand-over stays the poll's")
		require.False(t, w.scopes[0].Owns("r", effective))
	})
	require.Zero(t, w.fallbackPasses())
}

func TestFallbackOfManyProcessesIsOne(t *testing.T) {
	b := newBench(t)
	b.turnOn(t, flags.FullRollout)
	w := &work{outcome: eventbus.Done()}
	reg := prometheus.NewRegistry()
	var tasks []*task.Task
	for i := range 4 {
		tk, f := b.task(t, fmt.Sprint("i", i), w, prometheus.WrapRegistererWith(prometheus.Labels{"i": fmt.Sprint(i)}, reg))
		tasks = append(tasks, tk)
		run(t, tk.RunPoll, func(ctx context.Context) error { return f.Run(ctx, nil) })
	}
	run(t, tasks[0].RunHealth)
	testenv.Eventually(t, 5*time.Second, "passes", func() bool { return w.polls.Load() > 20 })
	require.Zero(t, w.fallbackPasses())

	for round := int64(1); round <= 2; round++ {
		w.set(func(w *work) {
			w.overdue, w.row, w.created = task.Overdue{Rows: 7, Oldest: time.Minute}, "r", time.Now()
		})
		before := w.fallbackPasses()
		testenv.Eventually(t, 5*time.Second, "all step in", func() bool { return w.fallbackPasses() > before+20 })
		require.Equal(t, round, b.s.QueryInt(t, "SELECT SUM(fallback_runs) FROM mq_task_health"))
		require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_task_health WHERE fallback = 1 AND fallback_since IS NOT NULL"))
		_, reason := tasks[1].Ready()
		require.Contains(t, reason, "7 rows of the event path are overdue")
		w.set(func(w *work) {
			s := w.scopes[len(w.scopes)-1]
			for i := len(w.scopes) - 1; !s.Fallback; i-- {
				s = w.scopes[i]
			}
			require.Equal(t, 300*time.Millisecond, s.OverdueBy)
			require.True(t, s.Owns("r", time.Now()))
			w.overdue = task.Overdue{}
		})
		// A success of the event path ends it.
		tasks[0].Handler().Handle(t.Context(), delivery("x"))
		testenv.Eventually(t, 10*time.Second, "it ends", func() bool {
			return b.s.QueryInt(t, "SELECT SUM(fallback) FROM mq_task_health") == 0
		})
		testenv.Eventually(t, 5*time.Second, "all see it", func() bool {
			for _, tk := range tasks {
				if _, reason := tk.Ready(); reason != "" {
					return false
				}
			}
			return true
		})
	}
	require.Equal(t, 2.0, gauge(t, reg, "seahub_task_fallback_activations_total"), "one increment per activation, among all processes")
}

func TestFallbackWithoutTrafficEndsByCalm(t *testing.T) {
	b := newBench(t)
	b.turnOn(t, flags.FullRollout)
	w := &work{overdue: task.Overdue{Rows: 1}, row: "r", created: time.Now()}
	tk, _ := b.task(t, "i1", w, nil)
	run(t, tk.RunPoll)
	testenv.Eventually(t, 5*time.Second, "it trips", func() bool { return w.fallbackPasses() > 0 })
	w.set(func(w *work) { w.overdue = task.Overdue{} })
	began := time.Now()
	testenv.Eventually(t, 10*time.Second, "it ends", func() bool { return b.s.QueryInt(t, "SELECT SUM(fallback) FROM mq_task_health") == 0 })
	require.GreaterOrEqual(t, time.Since(began), 500*time.Millisecond, "twice the bound, not at the first calm look")
}

// Rows that the poll keeps during a hand-over are late for no fault of the event path.
func TestHandOverTripsNoFallback(t *testing.T) {
	b := newBench(t)
	b.turnOn(t, flags.FullRollout)
	w := &work{overdue: task.Overdue{Rows: 100}, row: "r", created: time.Now().Add(-time.Hour)}
	tk, _ := b.task(t, "i1", w, nil)
	run(t, tk.RunPoll)
	testenv.Eventually(t, 5*time.Second, "passes", func() bool { return w.polls.Load() > 20 })
	require.Zero(t, w.fallbackPasses())
}

func TestFailuresTripOnlyIfNobodySucceeds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		outcome eventbus.Outcome
		panics  bool
		other   bool // another instance succeeds meanwhile
		trips   bool
	}{
		{"own errors", eventbus.RetryAfter(time.Second, errors.New("x")), false, false, true},
		{"panics", eventbus.Outcome{}, true, false, true},
		{"dead events", eventbus.Dead("x", nil), false, false, true},
		{"another instance succeeds", eventbus.RetryAfter(time.Second, errors.New("x")), false, true, false},
		{"provider down", eventbus.RetryOutside(time.Second, errors.New("x")), false, false, false},
		{"waiting for a lease", eventbus.RetryAfter(time.Second, nil), false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.turnOn(t, flags.FullRollout)
			w := &work{outcome: tt.outcome, panics: tt.panics}
			tk, _ := b.task(t, "i1", w, nil)
			good := &work{outcome: eventbus.Done()}
			other, _ := b.task(t, "i2", good, nil)
			deliver := func(ctx context.Context) error {
				for ctx.Err() == nil {
					func() {
						defer func() { _ = recover() }() // as the bus does
						tk.Handler().Handle(ctx, delivery("r"))
					}()
					if tt.other {
						other.Handler().Handle(ctx, delivery("r"))
					}
					time.Sleep(50 * time.Millisecond)
				}
				return nil
			}
			run(t, tk.RunHealth, other.RunHealth, deliver)
			if tt.other {
				testenv.Eventually(t, 5*time.Second, "the other's row", func() bool {
					return b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_task_health WHERE last_success_at IS NOT NULL") == 1
				})
			}
			// Only now, so that the first success is not raced for.
			run(t, tk.RunPoll)
			if tt.trips {
				testenv.Eventually(t, 10*time.Second, "it trips", func() bool { return w.fallbackPasses() > 0 })
				require.Contains(t, b.reason(t), "times in a row")
				return
			}
			time.Sleep(2500 * time.Millisecond)
			require.Zero(t, w.fallbackPasses())
		})
	}
}

func (b bench) reason(t *testing.T) string {
	t.Helper()
	var s string
	require.NoError(t, b.s.DB.QueryRowContext(t.Context(), "SELECT fallback_reason FROM mq_task_health WHERE fallback = 1").Scan(&s))
	return s
}

func TestFlagOffEndsTheFallback(t *testing.T) {
	b := newBench(t)
	b.turnOn(t, flags.FullRollout)
	w := &work{overdue: task.Overdue{Rows: 1}, row: "r", created: time.Now()}
	reg := prometheus.NewRegistry()
	tk, f := b.task(t, "i1", w, reg)
	run(t, tk.RunPoll, func(ctx context.Context) error { return f.Run(ctx, nil) })
	testenv.Eventually(t, 5*time.Second, "it trips", func() bool { return w.fallbackPasses() > 0 })
	require.Equal(t, 1.0, gauge(t, reg, "seahub_task_overdue_rows"))
	_, err := flags.Set(t.Context(), b.pool, flags.Change{Flag: flags.PushDispatch, Country: "id", Who: "t", Why: "rollback"})
	require.NoError(t, err)
	testenv.Eventually(t, 5*time.Second, "it ends", func() bool { return b.s.QueryInt(t, "SELECT SUM(fallback) FROM mq_task_health") == 0 })
	testenv.Eventually(t, 5*time.Second, "nothing is overdue on a path that is off", func() bool { return gauge(t, reg, "seahub_task_overdue_rows") == 0 })
}

func TestPollSurvivesPanicsAndErrors(t *testing.T) {
	b := newBench(t)
	w := &work{pollFail: errors.New("x")}
	reg := prometheus.NewRegistry()
	tk, _ := b.task(t, "i1", w, reg)
	run(t, tk.RunPoll)
	testenv.Eventually(t, 5*time.Second, "it goes on", func() bool { return w.polls.Load() > 3 })
	w.set(func(w *work) { w.pollFail, w.pollBoom = nil, true })
	before := w.polls.Load()
	testenv.Eventually(t, 5*time.Second, "it goes on", func() bool { return w.polls.Load() > before+3 })
	w.set(func(w *work) { w.pollBoom = false })
	testenv.Eventually(t, 5*time.Second, "it recovers", func() bool {
		return testutil.CollectAndCount(reg) > 0 && gaugeWith(t, reg, "seahub_task_poll_passes_total", "ok") > 0
	})
}

func TestHealthRowsAreBoundedAndComplete(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		p, err := db.OpenSQL(db.Config{DSN: s.DSN, TimeZone: "+07:00", MaxOpen: 8, DialTimeout: 2 * time.Second, IOTimeout: 5 * time.Second})
		require.NoError(t, err)
		defer func() { _ = p.Close() }()
		_, err = migrations.Up(t.Context(), p)
		require.NoError(t, err)
		b := bench{s, p}
		b.turnOn(t, flags.FullRollout)
		w := &work{outcome: eventbus.Done()}
		tk, _ := b.task(t, "i1", w, nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- tk.RunHealth(ctx) }()
		s.Exec(t, "INSERT INTO mq_task_health (task, instance, country, role, updated_at) VALUES ('push-dispatch', 'gone', 'id', 'all', '2020-01-01')")
		tk.Handler().Handle(ctx, delivery("r"))
		testenv.Eventually(t, 5*time.Second, "the row of a process that is long gone goes", func() bool {
			return s.QueryInt(t, "SELECT COUNT(*) FROM mq_task_health WHERE instance = 'gone'") == 0
		})
		testenv.Eventually(t, 5*time.Second, "the row", func() bool {
			return s.QueryInt(t, `SELECT COUNT(*) FROM mq_task_health WHERE instance = 'i1' AND country = 'id' AND role = 'all'
				AND failures_since_success = 0 AND last_failure_at IS NULL AND event_age_ms BETWEEN 900 AND 60000
				AND ABS(TIMESTAMPDIFF(SECOND, last_success_at, UTC_TIMESTAMP(3) + INTERVAL 7 HOUR)) < 5`) == 1
		})
		w.set(func(w *work) { w.outcome = eventbus.RetryAfter(time.Second, errors.New("x")) })
		for range 4 {
			tk.Handler().Handle(ctx, delivery("r"))
		}
		stop()
		require.NoError(t, <-done)
		require.EqualValues(t, 4, s.QueryInt(t, "SELECT failures_since_success FROM mq_task_health WHERE last_success_at IS NOT NULL"), "the last words were written")
	})
}

func TestNewNamesEverythingThatIsMissing(t *testing.T) {
	_, err := task.New(task.Spec{Name: "x"})
	require.ErrorIs(t, err, task.ErrSpec)
	for _, want := range []string{"DB", "Flags", "Work", "Poller", "Instance", "PollEvery", "OverdueBy"} {
		require.ErrorContains(t, err, want)
	}
}

// gauge adds up a metric over all its labels.
func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	return gaugeWith(t, reg, name, "")
}

func gaugeWith(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			match := label == ""
			for _, l := range m.GetLabel() {
				match = match || l.GetValue() == label
			}
			if match {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
