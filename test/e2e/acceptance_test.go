package e2e

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// TestAcceptance is the acceptance list, for each service: a table of scenarios ×
// services. Scenarios mostly wait, so they go side by side (see TestMain).
func TestAcceptance(t *testing.T) {
	t.Parallel()
	for _, scenario := range []struct {
		name string
		play func(t *testing.T, w *world)
	}{
		{"rollback leaves no event", rollbackLeavesNoEvent},
		{"two relays publish each event once", twoRelaysPublishOnce},
		{"a replay changes nothing", replayChangesNothing},
		{"flag off is the old poll", flagOffIsTheOldPoll},
		{"flips under load do each work once", flipsUnderLoad},
		{"fallback: all consume processes are killed", fallback(
			func(w *world, consume *stack.Service) { require.NoError(w.t, consume.Kill()) },
			func(w *world, _ *stack.Service) { w.consumer("consume-2", "consume") })},
		{"fallback: all consume processes are frozen", fallback(
			func(w *world, consume *stack.Service) { require.NoError(w.t, consume.Freeze()) },
			func(w *world, consume *stack.Service) { require.NoError(w.t, consume.Thaw()) })},
		{"fallback: the broker is down", fallback(
			func(w *world, _ *stack.Service) { require.NoError(w.t, w.Redis.Kill()) },
			func(w *world, _ *stack.Service) { require.NoError(w.t, w.Redis.Restart(w.t.Context())) })},
		{"fallback: the handler fails", fallback(nil, nil)},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			t.Parallel()
			for _, sub := range subjects() {
				t.Run(sub.service, func(t *testing.T) {
					t.Parallel()
					scenario.play(t, newWorldOf(t, sub))
				})
			}
		})
	}
}

func rollbackLeavesNoEvent(t *testing.T, w *world) {
	w.flagSince()
	w.relay("relay-1")
	w.eventPath()
	undone := w.sub.undone(w)
	w.awaitDone(soon, w.some(1)...) // what was committed later is done by now
	require.Zero(t, w.events(undone))
	require.Equal(t, 1, w.sub.effects(w))
}

func twoRelaysPublishOnce(t *testing.T, w *world) {
	w.flagSince()
	w.Env["SEAHUB_RELAY_SLOTS"] = "2" // both claim at a time, row locks alone tell them apart
	w.relay("relay-1")
	w.relay("relay-2")
	consume := w.consumer("consume-1", "consume")
	if w.sub.announced {
		w.consumer("poll-1", "poll")
	}
	ids := w.some(100)
	w.awaitDone(soon, ids...)
	w.published(soon)
	events := w.count("SELECT COUNT(*) FROM outbox_event WHERE status = 'PUBLISHED'")
	require.Equal(t, len(ids), events)
	w.awaitDone(soon, w.some(1)...) // a second copy would have arrived before this one
	require.EqualValues(t, events+1, w.metric(consume, "seahub_consumer_messages_total", nil))
	w.sub.onceEach(w, ids...)
}

func replayChangesNothing(t *testing.T, w *world) {
	w.flagSince()
	w.relay("relay-1")
	w.eventPath() // of a task whose poll writes no events, nobody polls
	ids := w.some(50)
	w.awaitDone(soon, ids...)
	w.sub.onceEach(w, ids...)

	// A manual replay and a duplicate row of the broker change nothing.
	before, id := w.sub.effects(w), ""
	require.NoError(t, w.DB.QueryRowContext(t.Context(), "SELECT event_id FROM outbox_event WHERE aggregate_id = ?", w.sub.aggregate(ids[0])).Scan(&id))
	out := w.command("relay", "requeue", "--event-id", id, "--status", "PUBLISHED", "--reason", "replayed by hand")
	require.Contains(t, out, "1")
	w.published(soon)
	testenv.Eventually(t, soon, "the replayed event is delivered", func() bool {
		return w.count("SELECT COUNT(*) FROM outbox_event WHERE event_id = ? AND requeued_at IS NOT NULL AND status = 'PUBLISHED'", id) == 1
	})
	w.awaitDone(soon, w.some(1)...) // what was published after the replay is done after it was looked at
	require.Equal(t, before+1, w.sub.effects(w))
}

func flagOffIsTheOldPoll(t *testing.T, w *world) {
	w.relay("relay-1")
	consume := w.consumer("consume-1", "consume")
	ids := w.some(20)
	w.published(soon)
	if !w.sub.announced {
		testenv.Eventually(t, soon, "the events are acknowledged and skipped", func() bool {
			return w.metric(consume, "seahub_consumer_messages_total", map[string]string{"result": "skip"}) >= 20
		})
	}
	for _, id := range ids {
		require.NotEqual(t, w.sub.final, w.statusOf(id), "nobody polls yet, and the event path is off")
	}
	w.consumer("poll-1", "poll")
	w.awaitDone(soon, ids...)
	w.sub.onceEach(w, ids...)
	require.Zero(t, w.fallbackRuns())
	if w.sub.announced {
		require.Zero(t, w.count("SELECT COUNT(*) FROM outbox_event"), "the old job writes no events")
	}
	require.NoError(t, w.Redis.Kill())
	w.awaitDone(soon, w.some(5)...) // it takes no broker
	require.NoError(t, w.Redis.Restart(t.Context()))
}

func flipsUnderLoad(t *testing.T, w *world) {
	maps.Copy(w.Env, w.sub.patient)
	// Overdue is here what no flip explains: a row may wait for the lease of a path that
	// was just switched off, and for the provider's next second.
	w.Env["SEAHUB_PUSH_OVERDUE_BY"] = handOver.String()
	w.relay("relay-1")
	w.consumer("consume-1", "consume")
	w.consumer("consume-2", "consume")
	w.consumer("poll-1", "poll")
	w.consumer("poll-2", "poll")
	// A load that outruns the machine would be a failure of the event path, and rightly
	// be called one.
	stop := w.load(4, 20*time.Millisecond, w.sub.atMost)
	for _, percent := range []int{100, 0, 10, 100, 0, 100, 0} {
		w.sub.disturb(w) // work is put off, across the flip
		w.flag(percent, false)
		time.Sleep(4 * time.Second) // shorter than the hand-over: flips overlap
	}
	w.flag(100, true)
	if w.sub.announced { // from here on, events alone
		w.awaitDone(soon, w.some(5)...)
		require.Positive(t, w.count("SELECT COUNT(*) FROM outbox_event WHERE status = 'PUBLISHED'"))
	}
	stop()
	ids := w.all()
	w.awaitDone(soon, ids...)
	w.sub.onceEach(w, ids...)
	require.Zero(t, w.fallbackRuns(), "a flip is no failure of the event path")
	t.Logf("%d pieces of work over 8 changes", len(ids))
}

// fallback plays an event path that breaks and is mended. Without functions it is the
// handler that fails; then the poll, which does the same, is as helpless.
func fallback(breaks, mends func(w *world, consume *stack.Service)) func(t *testing.T, w *world) {
	helpless := breaks == nil
	if helpless {
		breaks = func(w *world, _ *stack.Service) { w.sub.fails(w) }
		mends = func(w *world, _ *stack.Service) { w.sub.mends(w) }
	}
	return func(t *testing.T, w *world) {
		// The poll must help within this time: overdue, seen by one look, and one pass
		// later; times three, since machines that run tests are busy.
		stepIn := 3 * (w.sub.overdueBy + 2*pollEvery)
		w.flagSince()
		w.relay("relay-1")
		consume := w.consumer("consume-1", "consume")
		poll := w.consumer("poll-1", "poll")
		w.awaitDone(soon, w.some(5)...)

		breaks(w, consume)
		stranded := w.some(10)
		testenv.Eventually(t, stepIn+soon, "the fallback is active", func() bool { return w.fallbackRuns() == 1 })
		testenv.Eventually(t, soon, "the gauge shows it", func() bool { return w.metric(poll, "seahub_task_fallback_active", nil) == 1 })
		if !helpless {
			w.awaitDone(stepIn+soon, stranded...)
		}
		mends(w, consume)
		testenv.Eventually(t, 3*soon, "the fallback has ended", func() bool {
			w.some(1) // a working event path shows itself by success
			time.Sleep(pollEvery)
			return w.count("SELECT COUNT(*) FROM mq_task_health WHERE fallback = 1") == 0
		})
		w.awaitDone(2*soon, w.all()...)
		w.sub.onceEach(w, w.all()...)
		require.Equal(t, 1, w.fallbackRuns(), "one activation, counted once")
		require.EqualValues(t, 1, w.metric(poll, "seahub_task_fallback_activations_total", nil))
		require.Zero(t, w.metric(poll, "seahub_task_poll_rows_total", map[string]string{"kind": "poll"}), "the poll worked on overdue rows only")
		text, err := os.ReadFile(poll.Log)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), "fallback: the poll works on overdue rows"), "said once")
		require.Equal(t, 1, strings.Count(string(text), "fallback ended"))
	}
}
