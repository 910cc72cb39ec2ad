package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

// appsWriter commits pushes as the app does: its ten columns, whole seconds.
func appsWriter(w *world) func(context.Context) {
	user := w.user(1)
	return func(ctx context.Context) {
		id := fmt.Sprintf("j%d", w.ids.Add(1))
		tx, err := w.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err == nil {
			_, err = tx.ExecContext(ctx, "INSERT INTO push_messages (id, user_id, title, body, due_at, created_at, updated_at) VALUES (?, ?, 'hello', 'x', NOW(), NOW(), NOW())", id, user)
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, insertAsTheApp, "obe"+id, "push:"+id, id, `{"pushId":"`+id+`"}`)
		}
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			if tx != nil {
				_ = tx.Rollback()
			}
			w.t.Errorf("the app's own transaction: %v", err)
			return
		}
		w.remember(id)
	}
}

const insertAsTheApp = `INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at)
	VALUES (?, ?, 'PUSH_DISPATCH', 'push_task', ?, ?, NOW())`

// appsDatabase is a database whose outbox has been in use, without anything of ours.
func (w *world) appsDatabase() {
	w.t.Helper()
	const columns = "INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, status, retry_count, created_at, published_at) VALUES "
	rows := []string{
		columns + "('obeold1', 'push:old1', 'PUSH_DISPATCH', 'push_task', 'old1', '{\"pushId\":\"old1\"}', 'PUBLISHED', 0, NOW() - INTERVAL 1 DAY, NOW() - INTERVAL 1 DAY)",
		columns + "('obeold2', 'push:old2', 'PUSH_DISPATCH', 'push_task', 'old2', '{\"pushId\":\"old2\"}', 'FAILED', 5, NOW() - INTERVAL 1 DAY, NULL)",
	}
	user := w.user(1)
	for i := range 30 {
		id := fmt.Sprintf("waiting%d", i)
		w.exec("INSERT INTO push_messages (id, user_id, title, body, due_at, created_at, updated_at) VALUES (?, ?, 'hello', 'x', NOW(), NOW() - INTERVAL 1 HOUR, NOW())", id, user)
		rows = append(rows, columns+fmt.Sprintf("('obe%s', 'push:%s', 'PUSH_DISPATCH', 'push_task', '%s', '{\"pushId\":\"%s\"}', 'PENDING', 1, NOW() - INTERVAL 1 HOUR, NULL)", id, id, id, id))
		w.remember(id)
	}
	w.withSchema("", rows...)
}

// TestBesideTheAppsOwnRelayAndPoll plays docs/takeover.md: the app's database with rows
// in its outbox, our tables added while the app works, both relays for a while, then
// both the app's poll and our consume role, then ours alone.
func TestBesideTheAppsOwnRelayAndPoll(t *testing.T) {
	for name, unlocked := range map[string]bool{"its relay locks rows": false, "its relay trusts in a lock of its own": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sub := pushSubject()
			sub.writer = appsWriter
			w := newWorldOf(t, sub)
			java := newJavaApp(w)
			java.unlocked = unlocked
			w.appsDatabase()
			stopLoad := w.load(2, 20*time.Millisecond, 60)
			stopRelay := java.start(200*time.Millisecond, java.relayOnce)
			stopPoll := java.start(200*time.Millisecond, java.pollOnce)
			testenv.Eventually(t, soon, "the app does its work", func() bool { return java.total() > 20 })

			// 1. Our tables and columns come while the app writes and publishes. What would
			// wait for a lock gives up and is run again, as a person would.
			testenv.Eventually(t, soon, "the schema is there", func() bool {
				_, code, err := w.Command(t.Context(), "relay", nil, "migrate")
				require.NoError(t, err)
				return code == 0
			})

			// 2. Both relays, with nothing but row locks between them.
			w.relay("relay-1")
			consume := w.consumer("consume-1", "consume")
			ours := java.published.Load()
			testenv.Eventually(t, 2*soon, "both relays publish", func() bool {
				return java.published.Load() > ours+20 && w.sentToBroker() > int(java.published.Load())+20
			})
			java.crash.Store(true)
			testenv.Eventually(t, soon, "a pass of its relay died half-way", func() bool { return !java.crash.Load() })

			// 3. The app's relay is stopped.
			stopRelay()

			// 4. The flag is off: our consumer skips, the app's poll does everything.
			testenv.Eventually(t, soon, "events are skipped", func() bool {
				return w.metric(consume, "seahub_consumer_messages_total", map[string]string{"result": "skip"}) > 20
			})
			require.Empty(t, w.FCM.Requests())

			// 5. All rows to events. The app's poll goes on until its own flag is set, too.
			w.flag(100, false)
			testenv.Eventually(t, 2*soon, "events do work", func() bool { return len(w.FCM.Requests()) > 20 })
			stopPoll()
			stopLoad()
			ids := w.all()
			w.published(2 * soon)
			w.awaitSent(2*soon, ids...)

			require.Zero(t, w.effectsOf(ids, java.sentTo), "one effect each, whoever did it")
			require.Equal(t, 1, w.count("SELECT COUNT(*) FROM outbox_event WHERE id = 'obeold1' AND status = 'PUBLISHED' AND requeued_at IS NULL"))
			require.Equal(t, 1, w.count("SELECT COUNT(*) FROM outbox_event WHERE status = 'FAILED' AND id = 'obeold2' AND retry_count = 5"), "what had failed waits for a person")
			events := w.count("SELECT COUNT(*) FROM outbox_event WHERE id NOT LIKE 'obeold%'")
			repeated := w.sentToBroker() - events
			require.Positive(t, repeated, "the pass that died was published again")
			t.Logf("%d pushes: %d sent by the app, %d by us; %d of %d events published twice; the app's jobs met %d deadlocks",
				len(ids), java.total(), len(w.FCM.Requests()), repeated, events, java.deadlocks.Load())
		})
	}
}

// TestAGroupIsHandedOver: the app's consumer is stopped, then ours is started in the
// same group: it goes on where the other stopped, with what that had not acknowledged.
func TestAGroupIsHandedOver(t *testing.T) {
	sub := pushSubject()
	sub.writer = appsWriter
	w := newWorldOf(t, sub)
	w.flagSince()
	w.relay("relay-1")
	java := newJavaApp(w)
	commit := appsWriter(w)
	for range 40 {
		commit(t.Context())
	}
	stop := java.start(10*time.Millisecond, func(ctx context.Context) error { return java.consumeOnce(ctx, false) })
	testenv.Eventually(t, soon, "the app's consumer works", func() bool { return java.total() >= 40 })
	stop()
	for range 40 {
		commit(t.Context())
	}
	w.published(soon)
	require.NoError(t, java.consumeOnce(t.Context(), true), "it dies with ten events in hand")

	w.consumer("consume-1", "consume")
	ids := w.all()
	w.awaitSent(2*soon, ids...)
	require.Zero(t, w.effectsOf(ids, java.sentTo))
	require.Equal(t, 40, java.total())
	require.Len(t, w.FCM.Requests(), 40, "what the other group member had done was not delivered again")
}
