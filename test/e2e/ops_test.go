package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
	"github.com/seahub/seahub-mq/pkg/testenv/feishufake"
)

// ops starts an ops-consumer that sweeps every half second, with thresholds scaled down
// as everything else here, and sends to the fake.
func (w *world) ops(instance string, fake *feishufake.Server, more ...string) *stack.Service {
	env := map[string]string{
		"SEAHUB_FEISHU_HOOK": fake.Hook(), "SEAHUB_FEISHU_SECRET": fake.Secret(), "SEAHUB_ALERT_SECOND_HOOK": fake.Plain(),
		"SEAHUB_FEISHU_TIMEOUT": "2s", "SEAHUB_OPS_SWEEP_EVERY": "500ms", "SEAHUB_ALERT_SEND_EVERY": "100ms", "SEAHUB_ALERT_SEND_BACKOFF_MAX": "1s",
		"SEAHUB_ALERT_FOR": "1s", "SEAHUB_ALERT_CLEAR_FOR": "1s", "SEAHUB_ALERT_UNKNOWN_FOR": "1h",
		"SEAHUB_OPS_THRESHOLD_OUTBOX_AGE": "6s", "SEAHUB_OPS_THRESHOLD_PUBLISH_SILENCE": "6s", "SEAHUB_OPS_THRESHOLD_RELAY_PASS": "30s",
		"SEAHUB_OPS_THRESHOLD_GROUP_AGE": "6s", "SEAHUB_ALERT_DATABASE_AFTER": "2s",
	}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return w.service("ops-consumer", instance, env)
}

func newFeishu(t *testing.T) *feishufake.Server {
	t.Helper()
	fake, err := feishufake.Start(feishufake.Options{Secret: "feishu-secret"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	return fake
}

// told waits until people read of a rule, and demands that it is once so far.
func told(t *testing.T, fake *feishufake.Server, word, rule string, bound time.Duration) feishufake.Message {
	t.Helper()
	title := "[" + word + "][id] " + rule
	testenv.Eventually(t, bound, title, func() bool { return len(fake.Shown(title)) > 0 })
	shown := fake.Shown(title)
	require.Len(t, shown, 1, "%s: %v", title, shown)
	for _, part := range []string{stack.Env, "task: ", "value: ", "threshold ", "since: ", "runbook"} {
		require.Contains(t, shown[0].Text, part)
	}
	require.True(t, strings.Contains(shown[0].Text, "trace: ") || strings.Contains(shown[0].Text, "request: "), shown[0].Text)
	return shown[0]
}

// The outbox alert: the relay is stopped, and later is back. An ops-consumer that is
// killed between deciding and sending loses nothing and tells nothing twice.
func TestOutboxBacklogReachesFeishu(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flagSince()
	fake := newFeishu(t)
	relay := w.relay("relay-1")
	w.consumer("push-1", "all")
	ops := w.ops("ops-1", fake)
	w.awaitSent(soon, w.pushes(3)...)
	require.NoError(t, relay.Kill())

	fake.Behave(feishufake.Behaviour{Kind: feishufake.Internal}) // so that the alert is decided and not sent
	w.pushes(2)
	testenv.Eventually(t, soon, "it is decided", func() bool {
		return w.count("SELECT COUNT(*) FROM mq_alert_message WHERE rule = 'OutboxBacklog'") == 1
	})
	require.NoError(t, ops.Kill())
	fake.Behave()
	require.Empty(t, fake.Shown("OutboxBacklog"))
	w.ops("ops-2", fake)
	told(t, fake, "critical", "OutboxBacklog", 30*time.Second)
	out := w.command("ops-consumer", "alerts")
	require.Contains(t, out, "OutboxBacklog")
	require.Contains(t, out, "FIRING")
	out = w.command("ops-consumer", "figures")
	require.Contains(t, out, "outbox_overdue")
	require.Contains(t, out, "push_overdue")

	w.relay("relay-2")
	told(t, fake, "resolved", "OutboxBacklog", 30*time.Second)
	require.Len(t, fake.Shown("[critical][id] OutboxBacklog"), 1)
}

// The publish alerts: a poison event turns FAILED; and the broker is down.
func TestPublishFailureReachesFeishu(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flagSince()
	fake := newFeishu(t)
	w.relay("relay-1")
	w.consumer("push-1", "all")
	w.ops("ops-1", fake, "SEAHUB_OPS_THRESHOLD_OUTBOX_AGE", "1h")
	w.awaitSent(soon, w.push(w.user(1), 0))

	// A tag that no broker takes: the relay refuses it for good.
	w.exec(`INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at, request_id)
		VALUES ('obepoison', 'poison:1', 'NOT A TAG', 'x', 'x', '{}', NOW(3), 'req-poison')`)
	testenv.Eventually(t, soon, "it is FAILED", func() bool { return w.count("SELECT COUNT(*) FROM outbox_event WHERE status = 'FAILED'") == 1 })
	m := told(t, fake, "warning", "OutboxFailed", 30*time.Second)
	require.Contains(t, m.Text, "NOT A TAG")
	require.Contains(t, m.Text, "request: req-poison")
	w.command("relay", "discard", "--event-id=poison:1", "--reason=test")
	told(t, fake, "resolved", "OutboxFailed", 30*time.Second)

	require.NoError(t, w.Redis.Stop(t.Context()))
	w.push(w.user(1), 0)
	told(t, fake, "critical", "PublishSilent", 40*time.Second)
	require.NoError(t, w.Redis.Start(t.Context()))
	told(t, fake, "resolved", "PublishSilent", 40*time.Second)
	require.Zero(t, w.count("SELECT COUNT(*) FROM outbox_event WHERE status = 'FAILED'"), "an outage fails nothing")
}

// The consumer's alert: it is stopped, and what waits for it grows old.
func TestConsumerLagReachesFeishu(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flagSince()
	fake := newFeishu(t)
	w.relay("relay-1")
	consumer := w.consumer("push-1", "consume")
	w.ops("ops-1", fake)
	w.awaitSent(soon, w.push(w.user(1), 0))
	require.NoError(t, consumer.Stop(t.Context()))
	late := w.push(w.user(1), 0)
	m := told(t, fake, "critical", "ConsumerLag", 40*time.Second)
	require.Contains(t, m.Text, "GID_id_push_dispatch")
	require.Contains(t, m.Text, "task: push-dispatch")
	w.consumer("push-2", "consume")
	w.awaitSent(soon, late)
	told(t, fake, "resolved", "ConsumerLag", 40*time.Second)
}

// MySQL goes away: the alert needs no MySQL.
func TestDatabaseOutageReachesFeishu(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fake := newFeishu(t)
	w.ops("ops-1", fake)
	testenv.Eventually(t, soon, "a sweep", func() bool { return w.count("SELECT COUNT(*) FROM mq_ops_figure") > 12 })
	require.NoError(t, w.MariaDB.Stop(t.Context()))
	told(t, fake, "critical", "DatabaseUnreachable", 40*time.Second)
	require.NoError(t, w.MariaDB.Start(t.Context()))
	told(t, fake, "resolved", "DatabaseUnreachable", 40*time.Second)
}

// A push that fails for good is counted by an event, and the six polled figures need
// neither broker nor events.
func TestAFailedPushIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flagSince()
	w.exec("INSERT INTO mq_feature_flag SELECT 'ops-snapshot', country, enabled, rollout_bp, salt, version, effective_at, updated_by, reason, updated_at FROM mq_feature_flag WHERE flag = 'push-dispatch'")
	fake := newFeishu(t)
	w.relay("relay-1")
	w.consumer("push-1", "all")
	w.ops("ops-1", fake)
	user := w.user(1)
	w.FCM.BehaveFor(token(user, 0), fcmfake.Behaviour{Kind: fcmfake.Unregistered})
	id := w.push(user, 0)
	testenv.Eventually(t, soon, "it fails", func() bool { return w.status(id) == "FAILED" })
	testenv.Eventually(t, soon, "it is counted", func() bool {
		return w.count("SELECT SUM(n) FROM mq_ops_bucket WHERE metric = 'push_failed'") == 1
	})
	require.Equal(t, 1, w.count(`SELECT COUNT(*) FROM mq_ops_bucket b JOIN push_messages p ON p.id = ?
		WHERE b.minute = p.updated_at - INTERVAL SECOND(p.updated_at) SECOND - INTERVAL MICROSECOND(p.updated_at) MICROSECOND`, id), "in the minute of the row")
	require.NoError(t, w.Redis.Stop(t.Context()))
	w.exec("INSERT INTO wa_inbound_messages (id, created_at) VALUES ('m', NOW(3) - INTERVAL 2 MINUTE)")
	testenv.Eventually(t, soon, "the polled figure moves", func() bool {
		return w.count("SELECT MAX(value) FROM mq_ops_figure WHERE name = 'wa_inbound_backlog'") == 1
	})
}
