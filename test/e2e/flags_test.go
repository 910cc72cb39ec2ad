package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

func TestFlagOffIsTheOldPoll(t *testing.T) {
	w := newWorld(t)
	w.relay("relay-1")
	consume := w.consumer("consume-1", "consume")
	ids := w.pushes(20)
	w.published(soon)
	testenv.Eventually(t, soon, "the events are acknowledged and skipped", func() bool {
		return w.metric(consume, "seahub_consumer_messages_total", map[string]string{"result": "skip"}) >= 20
	})
	for _, id := range ids {
		require.Equal(t, "PENDING", w.status(id), "nobody polls yet, and the event path is off")
	}
	w.consumer("poll-1", "poll")
	w.awaitSent(soon, ids...)
	w.onceEach(ids...)
	require.Zero(t, w.fallbackRuns())
}

func TestFlagOffNeedsNoBroker(t *testing.T) {
	tests := map[string]func(w *world) []string{
		"not configured": func(*world) []string { return []string{"SEAHUB_MQ_PROVIDER", ""} },
		"wrong address":  func(*world) []string { return []string{"SEAHUB_REDIS_ADDRESSES", "127.0.0.1:1"} },
		"down":           func(w *world) []string { require.NoError(w.t, w.Redis.Kill()); return nil },
		"silent":         func(w *world) []string { require.NoError(w.t, w.Redis.Freeze()); return nil },
	}
	for name, broken := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			all := w.consumer("all-1", "all", broken(w)...)
			ids := w.pushes(5)
			w.awaitSent(soon, ids...)
			w.onceEach(ids...)
			if name != "not configured" {
				testenv.Eventually(t, soon, "/readyz is 200 and says what is wrong", func() bool {
					return w.readyReason(all) != "" && containsAny(w.readyReason(all), "redis", "broker", "bus", "connect", "subscri")
				})
			}
			_, body, err := all.Get(t.Context(), "/livez")
			require.NoError(t, err)
			require.Contains(t, body, `"ok": true`)
		})
	}
}

func TestFlagOnWithoutAProviderPolls(t *testing.T) {
	w := newWorld(t)
	w.flag(100, false)
	all := w.consumer("all-1", "all", "SEAHUB_MQ_PROVIDER", "")
	ids := w.pushes(5)
	w.awaitSent(soon, ids...)
	w.onceEach(ids...)
	testenv.Eventually(t, soon, "/readyz is 200 and names the flag", func() bool {
		return containsAny(w.readyReason(all), "flag is on but no event bus")
	})
}

func TestAnExplicitFalseBeatsTheRow(t *testing.T) {
	w := newWorld(t)
	w.flagSince()
	w.relay("relay-1")
	off := []string{"SEAHUB_MQ_PUSHDISPATCH_ENABLED", "false"} // Spring's spelling
	consume := w.consumer("consume-1", "consume", off...)
	ids := w.pushes(5)
	testenv.Eventually(t, soon, "the events are skipped", func() bool {
		return w.metric(consume, "seahub_consumer_messages_total", map[string]string{"result": "skip"}) >= 5
	})
	w.consumer("poll-1", "poll", off...)
	w.awaitSent(soon, ids...)
	w.onceEach(ids...)
}

func TestFlagOnTheEventSends(t *testing.T) {
	w := newWorld(t)
	w.flagSince()
	w.relay("relay-1")
	w.consumer("consume-1", "consume")
	ids := w.pushes(50) // nobody polls
	w.awaitSent(soon, ids...)
	w.onceEach(ids...)

	// A manual replay and a duplicate row of the broker change nothing.
	before := len(w.FCM.Requests())
	out := w.command("relay", "requeue", "--event-id", "push:"+ids[0], "--status", "PUBLISHED", "--reason", "replayed by hand")
	require.Contains(t, out, "1")
	w.published(soon)
	testenv.Eventually(t, soon, "the replayed event is delivered", func() bool {
		return w.count("SELECT COUNT(*) FROM outbox_event WHERE event_id = ? AND requeued_at IS NOT NULL AND status = 'PUBLISHED'", "push:"+ids[0]) == 1
	})
	marker := w.push(w.user(1), 0) // what was published after the replay is sent after it was looked at
	w.awaitSent(soon, marker)
	require.Len(t, w.FCM.Requests(), before+1)
}

func TestFlipsUnderLoadSendEachPushOnce(t *testing.T) {
	w := newWorld(t)
	w.relay("relay-1")
	w.consumer("consume-1", "consume")
	w.consumer("consume-2", "consume")
	w.consumer("poll-1", "poll")
	w.consumer("poll-2", "poll")
	stop := w.load(4, 20*time.Millisecond)
	for _, percent := range []int{100, 0, 10, 100, 0, 100, 0} {
		// Pushes are refused for a while and rescheduled, across the flip.
		w.FCM.Behave(fcmfake.Behaviour{Kind: fcmfake.Quota, RetryAfter: time.Second, For: 500 * time.Millisecond})
		w.flag(percent, false)
		time.Sleep(4 * time.Second) // shorter than the hand-over: flips overlap
	}
	w.flag(100, true)
	stop()
	ids := w.all()
	w.awaitSent(soon, ids...)
	w.onceEach(ids...)
	require.Zero(t, w.fallbackRuns(), "a flip is no failure of the event path")
	t.Logf("%d pushes over 8 changes", len(ids))
}
