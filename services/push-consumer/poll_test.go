package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

// With the flag on and no consumer alive the poll process steps in, on what is overdue
// and nothing else, and what it has to put off comes back by an event.
func TestFallbackSendsOverduePushesOnly(t *testing.T) {
	b := newBench(t, func(c *Config) { c.OverdueBy = 2 * time.Second })
	pool, err := b.gdb.DB()
	require.NoError(t, err)
	_, err = flags.Set(t.Context(), pool, flags.Change{Flag: flags.PushDispatch, Country: "id", Enabled: true, BasisPoints: flags.FullRollout, Who: "t", Why: "t"})
	require.NoError(t, err)
	for _, table := range []string{"mq_feature_flag", "mq_feature_flag_history"} {
		b.s.Exec(t, "UPDATE "+table+" SET effective_at = effective_at - INTERVAL 1 MINUTE")
	}
	fl, err := flags.New(pool, flags.Config{}, "id", nil)
	require.NoError(t, err)
	tk, err := task.New(task.Spec{
		Name: flags.PushDispatch, Country: "id", Instance: "poll", Config: task.Config{Role: task.RolePoll, FailureLimit: 3},
		DB: pool, Flags: fl, BusConfigured: true, Poller: b, PollEvery: b.cfg.PollEvery, OverdueBy: b.cfg.OverdueBy,
	})
	require.NoError(t, err)
	b.eventOwns = tk.EventOwns
	ctx, stop := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	defer func() { stop(); loops.Wait() }()
	loops.Go(func() { _ = fl.Run(ctx, nil) })
	loops.Go(func() { _ = tk.RunPoll(ctx) })

	b.push(t, "late", 1)
	b.push(t, "refused", 1)
	b.fcm.BehaveFor(token("refused", 0), fcmfake.Behaviour{Kind: fcmfake.Unavailable, RetryAfter: 30 * time.Second, Times: 1})
	time.Sleep(time.Second)
	require.Empty(t, b.fcm.Requests(), "not overdue yet")
	testenv.Eventually(t, 3*b.cfg.OverdueBy, "the poll steps in", func() bool { return b.status(t, "late") == statusSent })
	b.push(t, "fresh", 1)
	testenv.Eventually(t, 5*time.Second, "the refused one waits for its event", func() bool {
		return b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event WHERE event_id = 'push:refused:a1'") == 1
	})
	require.Equal(t, statusPending, b.status(t, "fresh"), "a push that is not overdue is the event path's, also during the fallback")
	require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT SUM(fallback_runs) FROM mq_task_health"))
}

func TestOrphansArePolledAndForeignStatesLeftAlone(t *testing.T) {
	b := newBench(t)
	b.push(t, "orphan", 1, "status = 'SENDING', lease_owner = 'x', attempt = 3, lease_until = "+now+" - INTERVAL 1 SECOND")
	b.push(t, "nolease", 1, "status = 'SENDING', updated_at = "+now+" - INTERVAL 1 SECOND")
	b.push(t, "cancelled", 1, "status = 'CANCELLED'")
	for i := range 20 { // more than one page
		b.push(t, fmt.Sprint("p", i), 1)
	}
	result, err := b.Poll(t.Context(), everything())
	require.NoError(t, err)
	require.Equal(t, 22, result.Rows)
	require.EqualValues(t, 22, b.s.QueryInt(t, "SELECT COUNT(*) FROM push_messages WHERE status = 'SENT'"))
	require.Equal(t, "CANCELLED", b.status(t, "cancelled"))
	require.Equal(t, eventbus.VerdictDone, b.handle(t, "cancelled", 1).Verdict)
}

func TestOverdueCountsWhatIsLate(t *testing.T) {
	b := newBench(t)
	b.push(t, "late", 1, "due_at = "+now+" - INTERVAL 90 SECOND")
	b.push(t, "fresh", 1)
	b.push(t, "orphan", 1, "status = 'SENDING', lease_until = "+now+" - INTERVAL 70 SECOND")
	b.push(t, "held", 1, "due_at = "+now+" - INTERVAL 1 HOUR, status = 'SENDING', lease_until = "+now+" + INTERVAL 5 SECOND")
	b.push(t, "putoff", 1, "due_at = "+now+" + INTERVAL 5 SECOND")
	o, err := b.Overdue(t.Context(), time.Minute, func(string, time.Time) bool { return true })
	require.NoError(t, err)
	require.EqualValues(t, 2, o.Rows)
	require.InDelta(t, 90, o.Oldest.Seconds(), 2)
	var created time.Time
	_, err = b.Overdue(t.Context(), time.Minute, func(_ string, at time.Time) bool { created = at; return false })
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), created, time.Minute, "created_at is an instant, whatever the app's zone")
}

func TestDatabaseAwayIsNoFailureOfTheEventPath(t *testing.T) {
	s := testenv.PrivateMariaDB(t)
	b := newBenchOn(t, s)
	b.push(t, "p1", 1)
	require.NoError(t, s.Server.Kill())
	out := b.handle(t, "p1", 1)
	require.Equal(t, eventbus.VerdictRetry, out.Verdict)
	require.Error(t, out.Err)
	require.True(t, out.Outside, "the poll could do no better: %v", out.Err)
	_, err := b.Poll(t.Context(), everything())
	require.Error(t, err)
}

func TestMissingTablesAndColumnsAreNamed(t *testing.T) {
	b := newBench(t)
	pool, err := b.gdb.DB()
	require.NoError(t, err)
	lacks, err := task.Missing(t.Context(), pool, tables())
	require.NoError(t, err)
	require.Empty(t, lacks)
	b.s.Exec(t, "DROP TABLE user_devices")
	b.s.Exec(t, "ALTER TABLE push_messages DROP COLUMN lease_owner, DROP COLUMN expires_at")
	lacks, err = task.Missing(t.Context(), pool, tables())
	require.NoError(t, err)
	require.Equal(t, "column push_messages.expires_at, column push_messages.lease_owner, table user_devices", lacks)
}

// Neither a lane that closes for others nor the order to stop cuts off a request that is
// under way: FCM may have taken it, and would get it once more.
func TestARequestUnderWayIsNotCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		others int
		end    func(b *bench, stop func())
	}{
		"a closed lane": {others: 6, end: func(b *bench, _ func()) {
			b.lane.slow(time.Now(), time.Minute)
		}},
		"the order to stop": {end: func(_ *bench, stop func()) { stop() }},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(c *Config) {
				c.FCMTimeout, c.Lease, c.PollConcurrency = 5*time.Second, 20*time.Second, 2
				c.Base.DrainTimeout = 10 * time.Second
			})
			b.push(t, "slow", 1, "due_at = due_at - INTERVAL 1 MINUTE") // the first of the page
			b.fcm.BehaveFor(token("slow", 0), fcmfake.Behaviour{Kind: fcmfake.AmbiguousLate, Delay: time.Second, Times: 1})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan struct{})
			for i := range c.others {
				b.push(t, fmt.Sprint("other", i), 1)
				b.fcm.BehaveFor(token(fmt.Sprint("other", i), 0), fcmfake.Behaviour{Kind: fcmfake.AmbiguousLate, Delay: 100 * time.Millisecond})
			}
			go func() {
				defer close(ended)
				_, _ = b.Poll(ctx, everything())
			}()
			testenv.Eventually(t, 5*time.Second, "it is under way", func() bool { return len(b.fcm.Accepted("slow")) == 1 })
			c.end(b, stop)
			<-ended
			require.Equal(t, statusSent, b.status(t, "slow"))
			require.Len(t, b.fcm.Accepted("slow"), 1)
			require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_push_attempts WHERE push_id = 'slow'"))
			if c.others > 0 {
				require.NotZero(t, b.s.QueryInt(t, "SELECT COUNT(*) FROM push_messages WHERE status = 'PENDING'"), "the page ended")
			}
		})
	}
}
