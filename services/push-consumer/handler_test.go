package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

func everything() task.Scope {
	return task.Scope{Owns: func(string, time.Time) bool { return true }}
}

func TestPushReachesEveryDeviceOnce(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBenchOn(t, s)
		b.push(t, "p1", 3, "expires_at = "+now+" + INTERVAL 2 HOUR")
		require.Equal(t, eventbus.VerdictDone, b.handle(t, "p1", 1).Verdict)
		require.Equal(t, statusSent, b.status(t, "p1"))
		got := b.fcm.Accepted("p1")
		require.Len(t, got, 3)
		require.Equal(t, "Halo 👋🏽", got[0].Title)
		require.Regexp(t, `^7\d\d\ds$`, got[0].TTL, "ttl ends with the push")
		require.EqualValues(t, 3, s.QueryInt(t, "SELECT COUNT(*) FROM mq_push_attempts WHERE state = 'ACCEPTED' AND attempt = 1 AND provider_id IS NOT NULL AND finished_at >= started_at"))
		require.EqualValues(t, 1, s.QueryInt(t, "SELECT COUNT(*) FROM push_messages WHERE lease_owner IS NULL AND lease_until IS NULL AND sent_at IS NOT NULL AND last_error IS NULL"))

		out := b.handle(t, "p1", 1)
		require.Equal(t, eventbus.VerdictDone, out.Verdict, "a replay is done, and does nothing")
		require.Len(t, b.fcm.Requests(), 3)
		require.Equal(t, eventbus.VerdictDone, b.handle(t, "no-such-push", 1).Verdict)
	})
}

func TestHundredWorkersOnePush(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBenchOn(t, s)
		b.fcm.Behave(fcmfake.Behaviour{Kind: fcmfake.Slow, Delay: 50 * time.Millisecond})
		b.push(t, "p1", 1)
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				<-start
				if i%2 == 0 {
					_, err := b.Poll(t.Context(), everything())
					if err != nil {
						t.Errorf("poll: %v", err)
					}
					return
				}
				if out := b.handle(t, "p1", 1); out.Verdict == eventbus.VerdictRetry && out.Err != nil {
					t.Errorf("handler: %v", out.Err)
				}
			})
		}
		close(start)
		all.Wait()
		require.Len(t, b.fcm.Requests(), 1)
		require.Equal(t, statusSent, b.status(t, "p1"))
		require.EqualValues(t, 1, s.QueryInt(t, "SELECT attempt FROM push_messages"))
	})
}

func TestWorkerThatFinishesTooLateChangesNothing(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Lease, c.FCMTimeout = 600*time.Millisecond, 300*time.Millisecond })
	b.push(t, "p1", 2)
	late, _, err := b.store.leaseMessageIfDue(t.Context(), "p1", "late", b.cfg.Lease, time.Hour, 4)
	require.NoError(t, err)
	require.NoError(t, b.store.beginAttempts(t.Context(), late))

	require.Equal(t, eventbus.VerdictRetry, b.handle(t, "p1", 1).Verdict, "held by another")
	time.Sleep(b.cfg.Lease)
	require.Equal(t, eventbus.VerdictDone, b.handle(t, "p1", 2).Verdict)
	before := b.text(t, "SELECT CONCAT_WS('|', status, attempt, updated_at, due_at) FROM push_messages")

	dead := []device{{ID: "dev-p1-0", Token: token("p1", 0)}}
	require.ErrorIs(t, b.store.recordAnswer(t.Context(), late, "dev-p1-0", answer{class: accepted}), errLeaseLost)
	require.ErrorIs(t, b.store.finish(t.Context(), late, statusFailed, "too late", dead), errLeaseLost)
	require.ErrorIs(t, b.store.reschedule(t.Context(), late, time.Hour, "too late", dead, true), errLeaseLost)
	require.Equal(t, before, b.text(t, "SELECT CONCAT_WS('|', status, attempt, updated_at, due_at) FROM push_messages"))
	require.EqualValues(t, 2, b.s.QueryInt(t, "SELECT COUNT(*) FROM user_devices WHERE active = 1"))
	require.Zero(t, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event"))
	require.EqualValues(t, 2, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_push_attempts WHERE attempt = 1 AND state = 'UNKNOWN' AND error_code = 'WORKER_LOST'"))
	require.Len(t, b.fcm.Accepted("p1"), 2)
}

// While its successor is still sending, only owner and attempt tell the two apart; the
// state is the same.
func TestWorkerThatFinishesWhileItsSuccessorSendsChangesNothing(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Lease = 600 * time.Millisecond })
	for _, successor := range []string{"other", "late"} { // an owner's name may even come again
		id := "by-" + successor
		b.push(t, id, 1)
		late, _, err := b.store.leaseMessageIfDue(t.Context(), id, "late", b.cfg.Lease, time.Hour, 4)
		require.NoError(t, err)
		require.NoError(t, b.store.beginAttempts(t.Context(), late))
		time.Sleep(b.cfg.Lease)
		next, _, err := b.store.leaseMessageIfDue(t.Context(), id, successor, time.Minute, time.Hour, 4)
		require.NoError(t, err)
		require.NoError(t, b.store.beginAttempts(t.Context(), next))

		require.ErrorIs(t, b.store.recordAnswer(t.Context(), late, "dev-"+id+"-0", answer{class: accepted}), errLeaseLost)
		require.ErrorIs(t, b.store.finish(t.Context(), late, statusFailed, "too late", late.Devices), errLeaseLost)
		require.ErrorIs(t, b.store.reschedule(t.Context(), late, time.Hour, "too late", late.Devices, true), errLeaseLost)
		require.Equal(t, statusSending, b.status(t, id))
		require.Zero(t, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event"))
		require.NoError(t, b.store.recordAnswer(t.Context(), next, "dev-"+id+"-0", answer{class: accepted}))
		require.NoError(t, b.store.finish(t.Context(), next, statusSent, "", nil))
	}
}

// blocked is a worker that hangs in its request until it is let go.
type blocked struct{ entered, letGo chan struct{} }

func (s blocked) send(context.Context, message) answer {
	close(s.entered)
	<-s.letGo
	return answer{class: accepted, providerID: "late"}
}

func TestFrozenHandlerFindsThePushDone(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Lease, c.FCMTimeout = 500*time.Millisecond, 200*time.Millisecond })
	b.push(t, "p1", 1)
	frozen := blocked{make(chan struct{}), make(chan struct{})}
	other := newDispatcher(t, b.cfg, b.gdb, frozen)
	result := make(chan eventbus.Outcome, 1)
	go func() { result <- other.Handle(t.Context(), "p1", delivery(t, "p1", 1)) }()
	<-frozen.entered
	testenv.Eventually(t, 5*time.Second, "the event path sends it after the lease", func() bool {
		return b.handle(t, "p1", 1).Verdict == eventbus.VerdictDone
	})
	close(frozen.letGo)
	out := <-result
	require.Equal(t, eventbus.VerdictDone, out.Verdict)
	require.Equal(t, "push is SENT already", out.Reason)
	require.EqualValues(t, 2, b.s.QueryInt(t, "SELECT attempt FROM push_messages"))
}

func TestRefusedLeaseIsReadBack(t *testing.T) {
	b := newBench(t)
	b.push(t, "soon", 1, "due_at = "+now+" + INTERVAL 3 SECOND")
	out := b.handle(t, "soon", 1)
	require.Equal(t, eventbus.VerdictRetry, out.Verdict)
	require.NoError(t, out.Err, "waiting is no failure")
	require.InDelta(t, 3, out.After.Seconds(), 1)

	b.push(t, "far", 1, "due_at = "+now+" + INTERVAL 2 HOUR")
	for range 3 { // replays make no second event
		require.Equal(t, eventbus.VerdictDone, b.handle(t, "far", 1).Verdict)
	}
	require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event WHERE event_id LIKE 'push:far:a%' AND ABS(TIMESTAMPDIFF(SECOND, due_at, "+now+" + INTERVAL 2 HOUR)) < 5"))
	b.s.Exec(t, "UPDATE push_messages SET due_at = due_at + INTERVAL 1 HOUR WHERE id = 'far'")
	require.Equal(t, eventbus.VerdictDone, b.handle(t, "far", 1).Verdict)
	require.EqualValues(t, 2, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event"), "another due time, another event")
	require.Empty(t, b.fcm.Requests())

	b.push(t, "held", 1, "status = 'SENDING', lease_owner = 'x', attempt = 1, lease_until = "+now+" + INTERVAL 20 SECOND")
	out = b.handle(t, "held", 1)
	require.Equal(t, eventbus.VerdictRetry, out.Verdict)
	require.InDelta(t, 20, out.After.Seconds(), 1)
	require.Equal(t, eventbus.VerdictDone, b.handle(t, "held", handOff).Verdict, "waiting must not use up the broker's attempts")
	require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event WHERE event_id LIKE 'push:held:a%'"))
}

func TestEndsOfAPush(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxAge = time.Hour })
	for _, tt := range []struct {
		id, set  string
		devices  int
		behave   fcmfake.Kind
		status   string
		reason   string
		active   int64
		requests int
	}{
		{"expired", "expires_at = " + now, 1, "", statusExpired, "its expiry has passed", 1, 0},
		{"old", "due_at = " + now + " - INTERVAL 61 MINUTE", 1, "", statusExpired, "it is older than pushes are sent at (1h0m0s)", 1, 0},
		{"lonely", "attempt = 0", 0, "", statusFailed, "the user has no active device", 0, 0},
		{"baddata", `data_json = '{"a":{"b":1}}'`, 1, "", statusFailed, "data_json has a value that is neither text, number nor boolean", 1, 0},
		{"dead", "attempt = 0", 1, fcmfake.Unregistered, statusFailed, "no device took it, last answer: UNREGISTERED", 0, 1},
		{"malformed", "attempt = 0", 1, fcmfake.InvalidToken, statusFailed, "no device took it, last answer: INVALID_ARGUMENT", 0, 1},
		{"payload", "attempt = 0", 1, fcmfake.InvalidPayload, statusFailed, "no device took it, last answer: INVALID_ARGUMENT", 1, 1},
		{"reserved", `data_json = '{"google.x":"1"}'`, 1, "", statusFailed, "no device took it, last answer: INVALID_ARGUMENT", 1, 1},
		{"large", "body = REPEAT('x', 4200)", 1, "", statusFailed, "no device took it, last answer: INVALID_ARGUMENT", 1, 1},
		{"mismatch", "attempt = 0", 1, fcmfake.SenderMismatch, statusFailed, "no device took it, last answer: SENDER_ID_MISMATCH", 1, 1},
	} {
		t.Run(tt.id, func(t *testing.T) {
			b.fcm.Reset()
			b.push(t, tt.id, tt.devices, tt.set)
			if tt.behave != "" {
				b.fcm.BehaveFor(token(tt.id, 0), fcmfake.Behaviour{Kind: tt.behave})
			}
			require.Equal(t, eventbus.VerdictDone, b.handle(t, tt.id, 1).Verdict)
			require.Equal(t, tt.status, b.status(t, tt.id))
			require.Equal(t, tt.reason, b.text(t, "SELECT last_error FROM push_messages WHERE id = ?", tt.id))
			require.Equal(t, tt.active, b.s.QueryInt(t, "SELECT COUNT(*) FROM user_devices WHERE user_id = ? AND active = 1", "user-"+tt.id))
			require.Len(t, b.fcm.Requests(), tt.requests)
		})
	}
}

func TestRetrySparesDevicesThatAnsweredForGood(t *testing.T) {
	b := newBench(t)
	b.push(t, "p1", 4)
	b.fcm.BehaveFor(token("p1", 1), fcmfake.Behaviour{Kind: fcmfake.Unavailable, Times: 2})
	b.fcm.BehaveFor(token("p1", 2), fcmfake.Behaviour{Kind: fcmfake.Unregistered})
	b.fcm.BehaveFor(token("p1", 3), fcmfake.Behaviour{Kind: fcmfake.AmbiguousClose, Times: 1})
	attempts := 0
	testenv.Eventually(t, 10*time.Second, "it is sent", func() bool {
		attempts++
		out := b.handle(t, "p1", 1)
		if out.Verdict == eventbus.VerdictRetry {
			require.True(t, out.Outside || out.Err == nil, "%v", out.Err)
		}
		return b.status(t, "p1") == statusSent
	})
	count := map[string]int{}
	for _, r := range b.fcm.Requests() {
		count[r.Token]++
		require.Equal(t, "p1", r.CollapseID)
	}
	require.Equal(t, map[string]int{token("p1", 0): 1, token("p1", 1): 3, token("p1", 2): 1, token("p1", 3): 2}, count)
	require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM user_devices WHERE active = 0"))
	require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_push_attempts WHERE state = 'UNKNOWN' AND error_code = 'NO_ANSWER'"))
}

func TestDeadTokenSwitchesNoNewRegistrationOff(t *testing.T) {
	b := newBench(t)
	b.push(t, "p1", 1)
	dead := []device{{ID: "dev-p1-0", Token: "TOKEN-p1-0"}} // differs in case only
	p, _, err := b.store.leaseMessageIfDue(t.Context(), "p1", "me", time.Minute, time.Hour, 4)
	require.NoError(t, err)
	require.NoError(t, b.store.finish(t.Context(), p, statusFailed, "x", dead))
	require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM user_devices WHERE active = 1"))
}

func TestAttemptsEndExactlyAtTheLimit(t *testing.T) {
	for kind, code := range map[fcmfake.Kind]string{fcmfake.Internal: "INTERNAL", fcmfake.AmbiguousClose: "NO_ANSWER", fcmfake.Quota: "QUOTA_EXCEEDED"} {
		t.Run(string(kind), func(t *testing.T) {
			b := newBench(t)
			b.lane.most = 1e6
			b.push(t, "p1", 1)
			b.fcm.Behave(fcmfake.Behaviour{Kind: kind, RetryAfter: 2 * time.Second})
			for range b.cfg.MaxAttempts {
				b.lane = newLane(10_000)
				b.s.Exec(t, "UPDATE push_messages SET due_at = "+now+" - INTERVAL 1 SECOND WHERE status = 'PENDING'")
				b.handle(t, "p1", 1)
			}
			require.Equal(t, statusFailed, b.status(t, "p1"))
			require.Len(t, b.fcm.Requests(), b.cfg.MaxAttempts)
			require.Equal(t, "no device took it, last answer: "+code, b.text(t, "SELECT last_error FROM push_messages"))
		})
	}
}

// What never reached FCM's judgement burns no attempt, however often it happens.
func TestOutsideFailuresBurnNothing(t *testing.T) {
	for _, kind := range []fcmfake.Kind{fcmfake.Unauthorized, fcmfake.HTML404, fcmfake.ThirdPartyAuth} {
		t.Run(string(kind), func(t *testing.T) {
			b := newBench(t)
			b.push(t, "p1", 1)
			b.fcm.Behave(fcmfake.Behaviour{Kind: kind})
			for i := range 2 * b.cfg.MaxAttempts {
				b.lane = newLane(10_000)
				b.s.Exec(t, "UPDATE push_messages SET due_at = "+now+" - INTERVAL 1 SECOND")
				out := b.handle(t, "p1", 1)
				require.True(t, out.Outside || out.Verdict == eventbus.VerdictDone, "try %d: %+v", i, out)
			}
			require.Equal(t, statusPending, b.status(t, "p1"))
			b.fcm.Reset()
			b.lane = newLane(10_000)
			b.s.Exec(t, "UPDATE push_messages SET due_at = "+now+" - INTERVAL 1 SECOND")
			require.Equal(t, eventbus.VerdictDone, b.handle(t, "p1", 1).Verdict)
			require.Equal(t, statusSent, b.status(t, "p1"))
			require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM user_devices WHERE active = 1"))
		})
	}
}

func TestQuotaClosesTheLaneAndPutsOthersOff(t *testing.T) {
	b := newBench(t)
	b.push(t, "p1", 1)
	b.push(t, "p2", 1)
	b.fcm.BehaveFor(token("p1", 0), fcmfake.Behaviour{Kind: fcmfake.Quota, RetryAfter: 30 * time.Second, Times: 1})
	out := b.handle(t, "p1", 1)
	require.True(t, out.Outside)
	require.InDelta(t, 30, out.After.Seconds(), 4)
	out = b.handle(t, "p2", 1)
	require.True(t, out.Outside)
	require.InDelta(t, 30, out.After.Seconds(), 4)
	require.Len(t, b.fcm.Requests(), 1, "the lane is closed for all")
	require.EqualValues(t, 2, b.s.QueryInt(t, "SELECT COUNT(*) FROM push_messages WHERE status = 'PENDING' AND due_at > "+now+" + INTERVAL 25 SECOND"),
		"both are put off, so that neither is overdue meanwhile")
	require.EqualValues(t, 0, b.s.QueryInt(t, "SELECT attempt FROM push_messages WHERE id = 'p2'"))
	require.Zero(t, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event"))
}

func TestLongWaitBecomesADelayedEventWithTheStateChange(t *testing.T) {
	b := newBench(t)
	b.push(t, "p1", 1)
	b.fcm.Behave(fcmfake.Behaviour{Kind: fcmfake.Unavailable, RetryAfter: 5 * time.Minute})
	require.Equal(t, eventbus.VerdictDone, b.handle(t, "p1", 1).Verdict)
	require.EqualValues(t, 1, b.s.QueryInt(t, `SELECT COUNT(*) FROM mq_delayed_event e JOIN push_messages p
		WHERE e.event_id = 'push:p1:a1' AND e.due_at >= p.due_at AND e.due_at < p.due_at + INTERVAL 2 SECOND`))
}

// Whoever reschedules: the poll leaves a row to nobody.
func TestPollWritesAnEventForWhatEventsOwn(t *testing.T) {
	for _, owned := range []bool{false, true} {
		t.Run(fmt.Sprint(owned), func(t *testing.T) {
			b := newBench(t)
			b.owned.Store(owned)
			b.push(t, "p1", 1)
			b.fcm.Behave(fcmfake.Behaviour{Kind: fcmfake.Unavailable, RetryAfter: 2 * time.Second})
			_, err := b.Poll(t.Context(), everything())
			require.NoError(t, err)
			require.Equal(t, statusPending, b.status(t, "p1"))
			want := int64(0)
			if owned {
				want = 1
			}
			require.Equal(t, want, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event WHERE event_id = 'push:p1:a1'"))
		})
	}
}

func TestExpiryAfterOneDeviceTookItIsSent(t *testing.T) {
	b := newBench(t)
	b.push(t, "p1", 2)
	b.fcm.BehaveFor(token("p1", 1), fcmfake.Behaviour{Kind: fcmfake.Unavailable})
	require.Equal(t, eventbus.VerdictRetry, b.handle(t, "p1", 1).Verdict)
	b.s.Exec(t, "UPDATE push_messages SET due_at = "+now+" - INTERVAL 1 SECOND, expires_at = "+now)
	require.Equal(t, eventbus.VerdictDone, b.handle(t, "p1", 2).Verdict)
	require.Equal(t, statusSent, b.status(t, "p1"))
	require.Len(t, b.fcm.Requests(), 2)
}

func TestLedgerIsPurgedByAge(t *testing.T) {
	b := newBench(t, func(c *Config) { c.KeepAttempts = 48 * time.Hour })
	for i := range 5 {
		b.s.Exec(t, "INSERT INTO mq_push_attempts (push_id, device_id, attempt, owner, state, started_at) VALUES ('p', 'd', ?, 'o', 'ACCEPTED', "+now+" - INTERVAL ? HOUR)", i, 24*i+1) // none at the very boundary
	}
	n, err := b.purgeOnce(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.EqualValues(t, 2, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_push_attempts"))
}

func TestAttemptStaysAboveTheLedger(t *testing.T) {
	b := newBench(t)
	b.push(t, "p1", 1)
	b.handle(t, "p1", 1)
	b.s.Exec(t, "DELETE FROM mq_push_attempts WHERE attempt = 99")
	b.s.Exec(t, "UPDATE mq_push_attempts SET state = 'RETRY'")
	b.s.Exec(t, "UPDATE push_messages SET status = 'PENDING', attempt = 0") // by hand
	require.Equal(t, eventbus.VerdictDone, b.handle(t, "p1", 1).Verdict)
	require.EqualValues(t, 2, b.s.QueryInt(t, "SELECT attempt FROM push_messages"))
}
