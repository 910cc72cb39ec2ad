package main

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// broker hands events to one of the handlers, late and in no order, and again when it
// is told to; delayed events come from the table when they are due.
type broker struct {
	b        *bench
	handlers []eventbus.Handler
	all      sync.WaitGroup
	slots    chan struct{}
	mu       sync.Mutex
	verdicts map[eventbus.Verdict]int
}

func (k *broker) publish(ctx context.Context, d eventbus.Delivery, after time.Duration) {
	k.all.Go(func() {
		for d.Attempt = 1; sleep(ctx, after); d.Attempt++ {
			k.slots <- struct{}{}
			out := k.handlers[rand.IntN(len(k.handlers))].Handle(ctx, d)
			<-k.slots
			k.mu.Lock()
			k.verdicts[out.Verdict]++
			k.mu.Unlock()
			if out.Verdict != eventbus.VerdictRetry {
				return
			}
			after = max(out.After, 20*time.Millisecond)
		}
	})
}

// moveDelayed is the relay's part.
func (k *broker) moveDelayed(ctx context.Context, t *testing.T) {
	for sleep(ctx, 50*time.Millisecond) {
		rows, err := k.b.s.DB.QueryContext(ctx, "SELECT event_id, aggregate_id FROM mq_delayed_event WHERE due_at <= "+now)
		if err != nil {
			return
		}
		var due [][2]string
		for rows.Next() {
			var r [2]string
			if rows.Scan(&r[0], &r[1]) == nil {
				due = append(due, r)
			}
		}
		_ = rows.Close()
		for _, r := range due {
			if _, err := k.b.s.DB.ExecContext(ctx, "DELETE FROM mq_delayed_event WHERE event_id = ?", r[0]); err == nil {
				k.publish(ctx, delivery(t, r[1], 1), 0)
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Flips both ways, faster than a hand-over and slower, and rollout steps, while pushes
// are written, FCM has its spells, and attempts are put off across all of it: each push
// reaches each device once, and the fallback has nothing to do.
func TestFlipsUnderLoad(t *testing.T) {
	b := newBench(t, func(c *Config) {
		c.MaxAttempts, c.OverdueBy, c.PollEvery, c.RetryMax, c.PollBatch = 50, 10*time.Second, 200*time.Millisecond, 2*time.Second, 50
		c.FCMTimeout = 2 * time.Second
	})
	pool, err := b.gdb.DB()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	k := &broker{b: b, slots: make(chan struct{}, 16), verdicts: map[eventbus.Verdict]int{}}
	var loops sync.WaitGroup
	defer func() { stop(); k.all.Wait(); loops.Wait() }()
	for i := range 2 { // two processes, each with both sides
		fl, err := flags.New(pool, flags.Config{Refresh: 3 * time.Second}, "id", nil)
		require.NoError(t, err)
		d := newDispatcher(t, b.cfg, b.gdb, b.dispatcher.fcm)
		tk, err := task.New(task.Spec{
			Name: flags.PushDispatch, Country: "id", Instance: fmt.Sprint("i", i), Config: task.Config{Role: task.RoleAll, FailureLimit: 5},
			DB: pool, Flags: fl, BusConfigured: true, Work: d, Poller: d, PollEvery: b.cfg.PollEvery, OverdueBy: b.cfg.OverdueBy,
		})
		require.NoError(t, err)
		d.eventOwns = tk.EventOwns
		k.handlers = append(k.handlers, tk.Handler())
		loops.Go(func() { _ = sleep(ctx, time.Duration(i)*1300*time.Millisecond); _ = fl.Run(ctx, nil) })
		loops.Go(func() { _ = tk.RunPoll(ctx) })
		loops.Go(func() { _ = tk.RunHealth(ctx) })
	}
	loops.Go(func() { k.moveDelayed(ctx, t) })

	set := func(on bool, points int) {
		_, err := flags.Set(t.Context(), pool, flags.Change{Flag: flags.PushDispatch, Country: "id", Enabled: on, BasisPoints: points, Who: "t", Why: "t"})
		require.NoError(t, err)
	}
	type flip struct {
		at     time.Duration
		on     bool
		points int
	}
	flips := []flip{{1, true, 10_000}, {4, false, 0}, {7, true, 10_000}, {20, false, 0}, {22, true, 1000}, {25, true, 10_000}, {37, false, 0}}
	total, began := 0, time.Now()
	for len(flips) > 0 || time.Since(began) < 40*time.Second {
		if len(flips) > 0 && time.Since(began) >= flips[0].at*time.Second {
			set(flips[0].on, flips[0].points)
			flips = flips[1:]
			b.fcm.Behave(fcmfake.Behaviour{Kind: fcmfake.Quota, RetryAfter: time.Second, For: 1500 * time.Millisecond})
		}
		id := fmt.Sprint("p", total)
		if total%10 == 0 {
			b.fcm.BehaveFor(token(id, 0), fcmfake.Behaviour{Kind: fcmfake.Unavailable, RetryAfter: time.Second, Times: 2 + total%3})
		}
		b.push(t, id, 1+total%2)
		k.publish(ctx, delivery(t, id, 1), rand.N(300*time.Millisecond))
		total++
		time.Sleep(15 * time.Millisecond)
	}
	defer func() {
		if t.Failed() {
			t.Log("not sent (id|status|attempt|due|lease|error|now): " + b.text(t, `SELECT COALESCE(GROUP_CONCAT(CONCAT_WS('|', id, status, attempt,
				due_at, COALESCE(lease_until, '-'), COALESCE(last_error, '-'), NOW(3)) SEPARATOR '\n'), '') FROM push_messages WHERE status <> 'SENT'`))
		}
	}()
	// On a machine that is short of time a hanging request closes the lane again and again.
	testenv.Eventually(t, 90*time.Second, "all pushes are sent", func() bool {
		return b.s.QueryInt(t, "SELECT COUNT(*) FROM push_messages WHERE status = 'SENT'") == int64(total)
	})
	accepted := map[string]int{}
	for _, r := range b.fcm.Requests() {
		if r.Accepted {
			accepted[r.Token]++
		}
	}
	require.Len(t, accepted, total+total/2)
	repeats := 0
	for _, n := range accepted {
		repeats += n - 1
	}
	// On a machine that is slower than the client's patience an answer may come too late.
	unknown := int(b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_push_attempts WHERE state = 'UNKNOWN' AND error_code = 'NO_ANSWER'"))
	require.LessOrEqual(t, repeats, unknown, "a repeat without an ambiguous answer before it")
	require.Zero(t, b.s.QueryInt(t, "SELECT COALESCE(SUM(fallback_runs), 0) FROM mq_task_health"))
	k.mu.Lock()
	defer k.mu.Unlock()
	t.Logf("%d pushes, %d repeats after %d ambiguous answers; events: %v", total, repeats, unknown, k.verdicts)
	require.Positive(t, k.verdicts[eventbus.VerdictDone])
	require.Positive(t, k.verdicts[eventbus.VerdictSkip])
}

// FCM being down, refusing or hanging, is nothing that a poll could mend: rows wait,
// nothing trips.
func TestFCMDownTripsNoFallback(t *testing.T) {
	for name, behaviour := range map[string]fcmfake.Behaviour{
		"refuses": {Kind: fcmfake.Unavailable, RetryAfter: time.Second},
		"hangs":   {Kind: fcmfake.AmbiguousLate, Delay: time.Minute},
	} {
		t.Run(name, func(t *testing.T) { fcmDown(t, behaviour) })
	}
}

func fcmDown(t *testing.T, down fcmfake.Behaviour) {
	const pushes = 60
	b := newBench(t, func(c *Config) { c.OverdueBy, c.MaxAttempts, c.RetryMax = 3*time.Second, 1000, 500*time.Millisecond })
	pool, err := b.gdb.DB()
	require.NoError(t, err)
	_, err = flags.Set(t.Context(), pool, flags.Change{Flag: flags.PushDispatch, Country: "id", Enabled: true, BasisPoints: flags.FullRollout, Who: "t", Why: "t"})
	require.NoError(t, err)
	for _, table := range []string{"mq_feature_flag", "mq_feature_flag_history"} {
		b.s.Exec(t, "UPDATE "+table+" SET effective_at = effective_at - INTERVAL 1 MINUTE")
	}
	fl, err := flags.New(pool, flags.Config{}, "id", nil)
	require.NoError(t, err)
	require.NoError(t, fl.Refresh(t.Context()))
	tk, err := task.New(task.Spec{
		Name: flags.PushDispatch, Country: "id", Instance: "i", Config: task.Config{Role: task.RoleAll, FailureLimit: 3},
		DB: pool, Flags: fl, BusConfigured: true, Work: b, Poller: b, PollEvery: b.cfg.PollEvery, OverdueBy: b.cfg.OverdueBy,
	})
	require.NoError(t, err)
	b.dispatcher.eventOwns = tk.EventOwns
	ctx, stop := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	k := &broker{b: b, handlers: []eventbus.Handler{tk.Handler()}, slots: make(chan struct{}, 8), verdicts: map[eventbus.Verdict]int{}}
	defer func() { stop(); k.all.Wait(); loops.Wait() }()
	loops.Go(func() { _ = fl.Run(ctx, nil) })
	loops.Go(func() { _ = tk.RunPoll(ctx) })
	loops.Go(func() { _ = tk.RunHealth(ctx) })
	loops.Go(func() { k.moveDelayed(ctx, t) })

	b.fcm.Behave(down)
	for i := range pushes {
		id := fmt.Sprint("p", i)
		b.push(t, id, 1)
		k.publish(ctx, delivery(t, id, 1), 0)
	}
	time.Sleep(8 * time.Second)
	require.Zero(t, b.s.QueryInt(t, "SELECT COALESCE(SUM(fallback_runs), 0) FROM mq_task_health"))
	require.EqualValues(t, pushes, b.s.QueryInt(t, "SELECT COUNT(*) FROM push_messages WHERE status IN ('PENDING', 'SENDING')"))
	b.fcm.Reset()
	testenv.Eventually(t, 30*time.Second, "all are sent once FCM is back", func() bool {
		return b.s.QueryInt(t, "SELECT COUNT(*) FROM push_messages WHERE status = 'SENT'") == pushes
	})
	require.Zero(t, b.s.QueryInt(t, "SELECT COALESCE(SUM(fallback_runs), 0) FROM mq_task_health"))
}
