package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// TestPushOnRocketMQ is the push faults on the production broker, small and in a row on
// one system, since a broker takes seconds to start.
func TestPushOnRocketMQ(t *testing.T) {
	began := time.Now().Add(-time.Second)
	w := newWorld(t, func(o *stack.Options) { o.Provider = stack.RocketMQ })
	w.flagSince()
	relay := w.relay("relay-1")
	victim := w.consumer("consume-1", "consume", "SEAHUB_FCM_TIMEOUT", "1400ms")
	id := w.holding()
	require.NoError(t, victim.Kill()) // in the middle of a send
	consumer := w.consumer("consume-2", "consume")
	w.awaitSent(pushLease+3*soon, id)

	outage := func(name string, begin, end func() error) {
		start, marks := time.Now(), map[*stack.Service]int{relay: len(w.logged(relay)), consumer: len(w.logged(consumer))}
		before := w.pushes(20)
		require.NoError(t, begin(), name)
		during := w.pushes(50)
		time.Sleep(4 * time.Second)
		status, body, err := relay.Get(t.Context(), "/livez")
		require.NoError(t, err)
		require.Equal(t, 200, status, "%s: %s", name, body)
		require.NoError(t, end(), name)
		after := w.pushes(20)
		w.published(3 * soon)
		for _, ids := range [][]string{before, during, after} {
			w.awaitSent(3*soon, ids...)
		}
		require.Zero(t, w.count("SELECT COUNT(*) FROM outbox_event WHERE status = 'FAILED' OR retry_count > 0"), name)
		for service, mark := range marks {
			w.loggedLittle(name, service, mark, time.Since(start))
		}
	}
	outage("the broker is killed", w.RocketMQ.Broker.Kill, func() error { return w.RocketMQ.Broker.Start(t.Context()) })
	outage("the name server is stopped", w.RocketMQ.NameServer.Kill, func() error { return w.RocketMQ.NameServer.Start(t.Context()) })
	consumer = w.repairs(consumer, began)
	for _, sent := range w.all() {
		if sent != id {
			require.Len(t, w.FCM.Accepted(sent), 1, "push %s", sent)
		}
	}
	require.Zero(t, w.fallbackRuns(), "nobody polls: the event path did it")

	// What a consumer lacks is in its readiness, while the poll of its service goes on.
	require.NoError(t, consumer.Kill())
	poll := w.consumer("poll-1", "all", "SEAHUB_ROCKETMQ_SECRET_KEY", "of another")
	w.saysAndPolls("key", poll, "SEAHUB_ROCKETMQ_SECRET_KEY")
	require.NoError(t, poll.Kill())
	leave := w.wantOthers()
	poll = w.consumer("poll-2", "all")
	w.saysAndPolls("second subscription", poll, "another subscription", "OPS_COUNTER", "PUSH_DISPATCH")
	leave()
	testenv.Eventually(t, 3*soon, "with the other gone it is served", func() bool {
		_, body, err := poll.Get(t.Context(), "/readyz")
		return err == nil && !strings.Contains(body, "another subscription")
	})
}
