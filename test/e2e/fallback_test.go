package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

// stepIn is the bound within which the poll must help: overdue, seen by one look, and
// one pass later; times three, since machines that run tests are busy.
const stepIn = 3 * (overdueBy + 2*pollEvery)

func TestThePollStepsInAndBack(t *testing.T) {
	tests := map[string]struct {
		// breaks the event path; mends puts it right.
		breaks, mends func(w *world, consume *stack.Service)
	}{
		"all consume processes are killed": {
			func(w *world, consume *stack.Service) { require.NoError(w.t, consume.Kill()) },
			func(w *world, _ *stack.Service) { w.consumer("consume-2", "consume") },
		},
		"all consume processes are frozen": {
			func(w *world, consume *stack.Service) { require.NoError(w.t, consume.Freeze()) },
			func(w *world, consume *stack.Service) { require.NoError(w.t, consume.Thaw()) },
		},
		"the broker is down": {
			func(w *world, _ *stack.Service) { require.NoError(w.t, w.Redis.Kill()) },
			func(w *world, _ *stack.Service) { require.NoError(w.t, w.Redis.Restart(w.t.Context())) },
		},
		"the handler fails": {
			func(w *world, _ *stack.Service) { w.exec("RENAME TABLE mq_push_attempts TO mq_push_attempts_gone") },
			func(w *world, _ *stack.Service) { w.exec("RENAME TABLE mq_push_attempts_gone TO mq_push_attempts") },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.flagSince()
			w.relay("relay-1")
			consume := w.consumer("consume-1", "consume")
			poll := w.consumer("poll-1", "poll")
			w.awaitSent(soon, w.pushes(5)...)

			tt.breaks(w, consume)
			stranded := w.pushes(10)
			testenv.Eventually(t, stepIn+soon, "the fallback is active", func() bool { return w.fallbackRuns() == 1 })
			require.EqualValues(t, 1, w.metric(poll, "seahub_task_fallback_active", nil))
			if name != "the handler fails" { // where the table is gone, the poll is as helpless
				w.awaitSent(stepIn+soon, stranded...)
			}
			tt.mends(w, consume)
			testenv.Eventually(t, 3*soon, "the fallback has ended", func() bool {
				w.push(w.user(1), 0) // a working event path shows itself by success
				time.Sleep(pollEvery)
				return w.count("SELECT COUNT(*) FROM mq_task_health WHERE fallback = 1") == 0
			})
			w.awaitSent(2*soon, w.all()...)
			w.onceEach(w.all()...)
			require.Equal(t, 1, w.fallbackRuns(), "one activation, counted once")
			require.EqualValues(t, 1, w.metric(poll, "seahub_task_fallback_activations_total", nil))
			require.Zero(t, w.metric(poll, "seahub_task_poll_rows_total", map[string]string{"kind": "poll"}), "the poll worked on overdue rows only")
			text, err := os.ReadFile(poll.Log)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), "fallback: the poll works on overdue rows"), "said once")
			require.Equal(t, 1, strings.Count(string(text), "fallback ended"))
		})
	}
}

func TestFCMBeingDownTripsNoFallback(t *testing.T) {
	w := newWorld(t)
	w.flagSince()
	w.relay("relay-1")
	w.consumer("consume-1", "consume")
	w.consumer("poll-1", "poll")
	w.FCM.Behave(fcmfake.Behaviour{Kind: fcmfake.Unavailable, For: 3 * overdueBy})
	ids := w.pushes(20)
	time.Sleep(3 * overdueBy)
	require.Zero(t, w.fallbackRuns())
	w.awaitSent(soon, ids...)
	w.onceEach(ids...)
	require.Zero(t, w.fallbackRuns())
}
