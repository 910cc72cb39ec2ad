package task_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// process is a service's life that the test can look into.
type process struct {
	ctx    context.Context
	loops  sync.WaitGroup
	names  []string
	checks map[string]func() (bool, string)
	failed chan error
}

func newProcess(t *testing.T) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{ctx: ctx, checks: map[string]func() (bool, string){}, failed: make(chan error, 10)}
	t.Cleanup(func() { cancel(); p.loops.Wait() })
	return p
}

func (p *process) Registerer() prometheus.Registerer { return nil }

func (p *process) Go(name string, run func(ctx context.Context) error) {
	p.names = append(p.names, name)
	p.loops.Go(func() {
		if err := run(p.ctx); err != nil {
			p.failed <- err
		}
	})
}

func (p *process) Heartbeat(string, time.Duration) func() { return func() {} }

func (p *process) Ready(name string, check func() (bool, string)) { p.checks[name] = check }

func (p *process) OnStop(string, func(context.Context) error) {}

func TestLoopsWaitForTheSchemaAndReadinessNamesWhatItLacks(t *testing.T) {
	b := newBench(t)
	b.s.LoadApp(t)
	b.s.Exec(t, "DROP TABLE user_devices")
	b.s.Exec(t, "ALTER TABLE push_messages DROP COLUMN lease_owner")
	w := &work{}
	tk, _ := b.task(t, "i", w, nil, func(s *task.Spec) { s.BusConfigured, s.PollEvery = false, 20*time.Millisecond })
	p := newProcess(t)
	ran := make(chan struct{})
	require.NoError(t, tk.Start(t.Context(), task.Service{
		Process: p, Event: event.PushDispatch, Group: "push_dispatch",
		Tables: []task.Table{{Name: "push_messages", Columns: []string{"id", "lease_owner"}}, {Name: "user_devices", Columns: []string{"id"}}},
		Loops:  map[string]func(context.Context) error{"own": func(ctx context.Context) error { close(ran); <-ctx.Done(); return nil }},
	}))
	require.ElementsMatch(t, []string{"schema", "flags", "flag seen", "health", "own", "poll"}, p.names)
	lacks := "the database lacks column push_messages.lease_owner, table user_devices: "
	testenv.Eventually(t, 10*time.Second, "readiness names them", func() bool {
		ok, why := p.checks["schema"]()
		return !ok && len(why) > len(lacks) && why[:len(lacks)] == lacks
	})
	require.Zero(t, w.polls.Load())
	ok, why := p.checks["bus"]()
	require.True(t, ok)
	require.Contains(t, why, "no event bus is configured")

	b.s.Exec(t, "ALTER TABLE push_messages ADD COLUMN lease_owner VARCHAR(128) NULL")
	b.s.Exec(t, "CREATE TABLE user_devices (id VARCHAR(64))")
	testenv.Eventually(t, 30*time.Second, "the loops start once the schema is complete", func() bool {
		select {
		case <-ran:
			return w.polls.Load() > 0
		default:
			return false
		}
	})
	ok, why = p.checks["schema"]()
	require.True(t, ok, why)
	require.Empty(t, p.failed)
}

func TestRolesDecideWhatStarts(t *testing.T) {
	b := newBench(t)
	opened := errors.New("it was opened")
	open := func() (*eventbus.Bus, error) { return nil, opened }
	for role, wanted := range map[string]struct {
		names []string
		err   error
	}{
		task.RolePoll:    {[]string{"schema", "flags", "flag seen", "health", "poll"}, nil},
		task.RoleConsume: {[]string{"schema", "flags", "flag seen", "health"}, opened},
		task.RoleAll:     {[]string{"schema", "flags", "flag seen", "health", "poll"}, opened},
	} {
		t.Run(role, func(t *testing.T) {
			tk, _ := b.task(t, "i-"+role, &work{}, nil, func(s *task.Spec) {
				require.NoError(t, s.Config.SetRole(role))
			})
			p := newProcess(t)
			require.ErrorIs(t, tk.Start(t.Context(), task.Service{Process: p, OpenBus: open}), wanted.err)
			require.ElementsMatch(t, wanted.names, p.names)
		})
	}
}

func TestSetRole(t *testing.T) {
	c := task.Config{Role: task.RolePoll}
	require.NoError(t, c.SetRole(""))
	require.Equal(t, task.RolePoll, c.Role)
	require.ErrorIs(t, c.SetRole("pol"), task.ErrRole)
	require.Equal(t, task.RolePoll, c.Role)
}

func TestRetryTellsOurFaultFromTheDatabases(t *testing.T) {
	require.True(t, task.Retry(context.DeadlineExceeded, 1).Outside)
	require.True(t, task.Retry(context.Canceled, 1).Outside)
	out := task.Retry(errors.New("boom"), 40)
	require.False(t, out.Outside)
	require.LessOrEqual(t, out.After, task.LongWait)
	require.Equal(t, eventbus.VerdictRetry, out.Verdict)
}
