package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// repairs takes from the broker what it confirmed last, as a power cut may under
// ASYNC_FLUSH, and brings it back by a requeue of all since a time, which changes nothing
// for what was not lost. It returns the consumer that runs afterwards.
func (w *world) repairs(consumer *stack.Service, began time.Time) *stack.Service {
	t := w.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	require.NoError(t, consumer.Stop(ctx)) // else it would have had them before the loss
	broker := w.RocketMQ.Broker
	store := broker.Dir() + "/store"
	restart := func(meanwhile func() error) {
		t.Helper()
		require.NoError(t, broker.Kill())
		require.NoError(t, meanwhile())
		require.NoError(t, broker.Start(t.Context()))
	}
	restart(func() error { return os.CopyFS(store+"-on-disk", os.DirFS(store)) })
	earlier := w.stored()
	lost := w.pushes(40)
	w.published(3 * soon)
	require.Equal(t, earlier+len(lost), w.stored())
	span := []string{"requeue", "--status", "PUBLISHED", "--from", began.UTC().Format(time.RFC3339Nano), "--to", time.Now().UTC().Format(time.RFC3339Nano)}
	published := w.eventsWith("PUBLISHED")
	restart(func() error {
		if err := os.RemoveAll(store); err != nil {
			return err
		}
		return os.Rename(store+"-on-disk", store)
	})
	require.Equal(t, earlier, w.stored(), "the broker has lost them")

	consumer = w.consumer("consume-3", "consume")
	w.awaitSent(3*soon, w.push(w.user(1), 0))
	for _, id := range lost {
		require.Equal(t, "PENDING", w.status(id), "it never reached a consumer")
	}
	ids := w.eventIDs()
	require.Contains(t, w.command("relay", append(span, "--dry-run")...), fmt.Sprintf("%d events", published))
	w.command("relay", append(span, "--rate", "500", "--reason", "a power cut")...)
	w.awaitSent(3*soon, lost...)
	w.published(soon)
	require.Equal(t, ids, w.eventIDs(), "events keep their ids")
	ask := w.RocketMQ.Client(t)
	testenv.Eventually(t, 3*soon, "the others have come again as well", func() bool {
		b, err := ask.Backlog(t.Context(), eventbus.Topic("id"), eventbus.Group("id", "push_dispatch"))
		return err == nil && b.Waiting.Known && b.Waiting.N == 0
	})
	keys := map[string]int{}
	for _, m := range regexp.MustCompile(`KEYS=push:(\w+)`).FindAllStringSubmatch(w.RocketMQ.AdminTool(t, "printMsg", "-n", w.RocketMQ.Addr(), "-t", eventbus.Topic("id")), -1) {
		keys[m[1]]++
	}
	for _, id := range lost {
		require.Equal(t, 1, keys[id], "the broker has %s once, under its event's id", id)
	}
	require.Zero(t, w.count("SELECT COUNT(*) FROM mq_dead_letter"))
	return consumer
}

// stored counts what the broker has of the topic, once that is at rest: it confirms a
// message before its queue shows it.
func (w *world) stored() int {
	w.t.Helper()
	client := w.RocketMQ.Client(w.t)
	total, last := int64(0), int64(-1)
	for ; total != last; time.Sleep(500 * time.Millisecond) {
		last, total = total, 0
		queues, err := client.Route(w.t.Context(), eventbus.Topic("id"))
		require.NoError(w.t, err)
		for _, q := range queues {
			n, err := client.MaxOffset(w.t.Context(), q)
			require.NoError(w.t, err)
			total += n
		}
	}
	return int(total)
}

// eventIDs is one number for all rows of the outbox and the ids of their events.
func (w *world) eventIDs() int {
	w.t.Helper()
	return w.count("SELECT CAST(SUM(CRC32(CONCAT(id, ' ', event_id))) AS SIGNED) FROM outbox_event")
}

// logged is what a service has logged so far, without what is not the log's (the race
// detector writes to the same file).
func (w *world) logged(s *stack.Service) (lines []string) {
	w.t.Helper()
	text, err := os.ReadFile(s.Log)
	require.NoError(w.t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "{") {
			lines = append(lines, line)
		}
	}
	return lines
}

// loggedLittle demands that a service told of an outage in few lines, however many
// events it met, and that none has an event's body, as text or as the encoding of bytes.
func (w *world) loggedLittle(outage string, s *stack.Service, mark int, took time.Duration) {
	w.t.Helper()
	lines := w.logged(s)[mark:]
	w.t.Logf("%s: %s logged %d lines in %s", outage, s.Name, len(lines), took.Round(time.Second))
	require.LessOrEqual(w.t, len(lines), 10+int(took.Seconds()), "%s: lines of %s:\n%s", outage, s.Name, strings.Join(lines, ""))
	encoded := base64.StdEncoding.EncodeToString([]byte(`{"pushId":"p`))
	for _, line := range lines {
		require.NotContains(w.t, line, "pushId")
		require.NotContains(w.t, line, encoded)
	}
}
