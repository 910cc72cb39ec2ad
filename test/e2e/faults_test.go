package e2e

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

func containsAny(text string, parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(strings.ToLower(text), strings.ToLower(p)) {
			return true
		}
	}
	return false
}

// logLines counts what a service has written.
func logLines(t *testing.T, s *stack.Service) int {
	t.Helper()
	text, err := os.ReadFile(s.Log)
	require.NoError(t, err)
	return strings.Count(string(text), "\n")
}

// holding makes one push whose request hangs in FCM and returns when it does. FCM
// accepts it all the same.
func (w *world) holding() (id string) {
	w.t.Helper()
	user := w.user(1)
	w.FCM.BehaveFor(token(user, 0), fcmfake.Behaviour{Kind: fcmfake.AmbiguousLate, Delay: 30 * time.Second, Times: 1})
	id = w.push(user, 0)
	testenv.Eventually(w.t, soon, "the request is with FCM", func() bool { return len(w.FCM.Accepted(id)) == 1 })
	return id
}

// sameCollapseID demands at least n accepted requests for a push, all of which a
// device would show as one.
func (w *world) sameCollapseID(id string, atLeast, atMost int) {
	w.t.Helper()
	accepted := w.FCM.Accepted(id) // found by their collapse id
	require.GreaterOrEqual(w.t, len(accepted), atLeast)
	require.LessOrEqual(w.t, len(accepted), atMost)
	for _, r := range accepted {
		require.Equal(w.t, id, r.Tag)
	}
}

func TestKillOfAConsumerInMidSend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flagSince()
	w.relay("relay-1")
	victim := w.consumer("consume-1", "consume", "SEAHUB_FCM_TIMEOUT", "1400ms")
	id := w.holding()
	require.NoError(t, victim.Kill())
	w.consumer("consume-2", "consume")
	w.awaitSent(pushLease+soon, id)
	w.sameCollapseID(id, 2, 2)
	require.Zero(t, w.fallbackRuns(), "nobody polls: the event path did it")
}

func TestAFrozenHolderIsReplacedAndChangesNothingAfterwards(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flagSince()
	w.relay("relay-1")
	victim := w.consumer("consume-1", "consume", "SEAHUB_FCM_TIMEOUT", "1400ms")
	id := w.holding()
	require.NoError(t, victim.Freeze())
	w.consumer("consume-2", "consume")
	w.awaitSent(pushLease+soon, id)
	attempt := w.count("SELECT attempt FROM push_messages WHERE id = ?", id)
	require.NoError(t, victim.Thaw())
	marker := w.pushes(20)
	w.awaitSent(soon, marker...)
	require.Equal(t, "SENT", w.status(id))
	require.Equal(t, attempt, w.count("SELECT attempt FROM push_messages WHERE id = ?", id), "the thawed worker changed nothing")
	w.sameCollapseID(id, 2, 2)
	require.NoError(t, victim.Kill())
}

func TestRandomKillsLoseNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flagSince()
	relays := map[string]*stack.Service{"relay-1": w.relay("relay-1"), "relay-2": w.relay("relay-2")}
	consumers := map[string]*stack.Service{"consume-1": w.consumer("consume-1", "consume"), "consume-2": w.consumer("consume-2", "consume")}
	stop := w.load(4, 15*time.Millisecond, math.MaxInt)
	for round := range 4 {
		time.Sleep(1500 * time.Millisecond)
		for name, r := range relays {
			require.NoError(t, r.Kill())
			relays[name] = w.relay(name)
			break
		}
		for name, c := range consumers {
			require.NoError(t, c.Kill())
			consumers[name] = w.consumer(name, "consume")
			break
		}
		if round == 1 {
			require.NoError(t, w.Redis.Restart(t.Context()))
		}
		if round == 2 {
			require.NoError(t, w.MariaDB.Restart(t.Context()))
		}
	}
	stop()
	ids := w.all()
	w.published(3 * soon)
	w.awaitSent(3*soon, ids...)
	duplicates := 0
	for _, id := range ids {
		accepted := len(w.FCM.Accepted(id))
		require.GreaterOrEqual(t, accepted, 1, "push %s was lost", id)
		duplicates += accepted - 1
	}
	// A consumer that dies with requests at FCM leaves answers unknown; they are
	// repeated under the same collapse id. Nothing else may send twice.
	unknown := w.count("SELECT COUNT(*) FROM mq_push_attempts WHERE state = 'UNKNOWN'")
	require.LessOrEqual(t, duplicates, unknown)
	t.Logf("%d pushes, %d sent again after a kill (%d answers were unknown)", len(ids), duplicates, unknown)
}

func TestRedisOutagesFailNoEvent(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct{ begin, end func(w *world) error }{
		"stopped": {func(w *world) error { return w.Redis.Kill() }, func(w *world) error { return w.Redis.Restart(w.t.Context()) }},
		"silent":  {func(w *world) error { return w.Redis.Freeze() }, func(w *world) error { return w.Redis.Thaw() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.flagSince()
			relay := w.relay("relay-1")
			w.consumer("consume-1", "consume")
			require.NoError(t, fault.begin(w))
			ids := w.pushes(100)
			// Longer than every retry budget: attempts × longest wait of the relay's own.
			time.Sleep(12 * time.Second)
			require.Zero(t, w.count("SELECT COUNT(*) FROM outbox_event WHERE status = 'FAILED' OR retry_count > 0 OR available_at IS NOT NULL"))
			require.Less(t, logLines(t, relay), 60, "log lines of an outage are bounded")
			status, body, err := relay.Get(t.Context(), "/livez")
			require.NoError(t, err)
			require.Equal(t, 200, status, body)
			require.NoError(t, fault.end(w))
			w.published(2 * soon)
			w.awaitSent(2*soon, ids...)
			w.onceEach(ids...)
			require.Zero(t, w.count("SELECT COUNT(*) FROM outbox_event WHERE status = 'FAILED' OR retry_count > 0"))
		})
	}
}

func TestDevicesTokensAndRollbacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flagSince()
	w.relay("relay-1")
	w.consumer("consume-1", "consume")
	three, dead, partly := w.user(3), w.user(1), w.user(2)
	w.FCM.BehaveFor(token(dead, 0), fcmfake.Behaviour{Kind: fcmfake.Unregistered})
	w.FCM.BehaveFor(token(partly, 1), fcmfake.Behaviour{Kind: fcmfake.Unregistered})
	toThree, toDead, toPartly, later := w.push(three, 0), w.push(dead, 0), w.push(partly, 0), w.push(three, 2*time.Second)
	w.awaitSent(soon, toThree, toPartly, later)
	testenv.Eventually(t, soon, "a push without a live device is FAILED", func() bool { return w.status(toDead) == "FAILED" })
	require.Len(t, w.FCM.Accepted(toThree), 3)
	require.Len(t, w.FCM.Accepted(later), 3)
	require.Len(t, w.FCM.Accepted(toPartly), 1)
	require.Empty(t, w.FCM.Accepted(toDead))
	require.Equal(t, 2, w.count("SELECT COUNT(*) FROM user_devices WHERE active = 0"))
	require.Equal(t, 2, w.count("SELECT COUNT(*) FROM user_devices WHERE active = 0 AND push_token IN (?, ?)", token(dead, 0), token(partly, 1)))

	tx := w.gorm.Begin()
	require.NoError(t, w.writePush(tx, "rolled-back", three, 0))
	require.NoError(t, tx.Rollback().Error)
	marker := w.push(three, 0)
	w.awaitSent(soon, marker)
	require.Zero(t, w.count("SELECT COUNT(*) FROM outbox_event WHERE event_id = 'push:rolled-back'"))
	require.Empty(t, w.FCM.Accepted("rolled-back"))
}

// TestTheAppsOwnTableInItsOwnZone: the app's DDL with whole seconds, its zone, and rows
// that name only its own columns.
func TestTheAppsOwnTableInItsOwnZone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *stack.Options) { o.TimeZone, o.SeedTable = "+07:00", appTable })
	w.flagSince()
	w.relay("relay-1")
	w.consumer("consume-1", "consume")
	user := w.user(1)
	var ids []string
	for i := range 20 {
		id := fmt.Sprintf("java%d", i)
		w.exec("INSERT INTO push_messages (id, user_id, title, body, due_at, created_at, updated_at) VALUES (?, ?, 'hello', 'x', NOW(), NOW(), NOW())", id, user)
		w.exec(`INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at)
			VALUES (?, ?, 'PUSH_DISPATCH', 'push_task', ?, ?, NOW())`, "obe"+id, "push:"+id, id, fmt.Sprintf(`{"pushId":%q}`, id))
		ids = append(ids, id)
	}
	w.awaitSent(soon, ids...)
	w.onceEach(ids...)
	require.Zero(t, w.count("SELECT COUNT(*) FROM outbox_event WHERE status <> 'PUBLISHED'"))
}

const appTable = `CREATE TABLE outbox_event (
  id VARCHAR(64) PRIMARY KEY,
  event_id VARCHAR(64) NOT NULL,
  event_type VARCHAR(64) NOT NULL,
  aggregate_type VARCHAR(32) NOT NULL,
  aggregate_id VARCHAR(64) NOT NULL,
  payload_json TEXT NOT NULL,
  status VARCHAR(16) NOT NULL DEFAULT 'PENDING',
  retry_count INT NOT NULL DEFAULT 0,
  created_at DATETIME NOT NULL,
  published_at DATETIME NULL,
  UNIQUE KEY uk_event_id (event_id),
  KEY idx_status_created (status, created_at)
)`

func TestADatabaseThatIsAwayMakesAServiceUnreadyNotDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := w.consumer("all-1", "all")
	require.NoError(t, all.AwaitReady(t.Context()))
	require.NoError(t, w.MariaDB.Kill())
	testenv.Eventually(t, soon, "/readyz is 503 and names the database", func() bool {
		status, body, err := all.Get(t.Context(), "/readyz")
		return err == nil && status == 503 && containsAny(body, "database")
	})
	status, body, err := all.Get(t.Context(), "/livez")
	require.NoError(t, err)
	require.Equal(t, 200, status, body)
	require.NoError(t, w.MariaDB.Restart(t.Context()))
	require.NoError(t, all.AwaitReady(t.Context()))
	w.awaitSent(soon, w.pushes(3)...)
}
