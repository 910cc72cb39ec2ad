package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestFlagOffNeedsNoBroker(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world) []string{
		"not configured": func(*world) []string { return []string{"SEAHUB_MQ_PROVIDER", ""} },
		"wrong address":  func(*world) []string { return []string{"SEAHUB_REDIS_ADDRESSES", "127.0.0.1:1"} },
		"down":           func(w *world) []string { require.NoError(w.t, w.Redis.Kill()); return nil },
		"silent":         func(w *world) []string { require.NoError(w.t, w.Redis.Freeze()); return nil },
	}
	for name, broken := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
