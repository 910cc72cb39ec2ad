package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// bench is a schema, an FCM and a dispatcher between them.
type bench struct {
	*dispatcher
	s   *testenv.Schema
	gdb *gorm.DB
	fcm *fcmfake.Server
	// owned is what the flag says.
	owned atomic.Bool
}

func testConfig() Config {
	return Config{
		FCMTimeout: 500 * time.Millisecond, FCMRate: 10_000, Lease: 5 * time.Second, MaxAttempts: 4,
		RetryBase: 20 * time.Millisecond, RetryMax: time.Second, MaxAge: 24 * time.Hour,
		PollEvery: 50 * time.Millisecond, PollBatch: 7, PollConcurrency: 4, OverdueBy: time.Second,
	}
}

func newBench(t *testing.T, change ...func(*Config)) *bench {
	t.Helper()
	return newBenchOn(t, testenv.MariaDB(t), change...)
}

func newBenchOn(t *testing.T, s *testenv.Schema, change ...func(*Config)) *bench {
	t.Helper()
	s.LoadApp(t)
	cfg := testConfig()
	for _, c := range change {
		c(&cfg)
	}
	gdb, err := db.Open(db.Config{DSN: s.DSN, TimeZone: "+07:00", MaxOpen: 16, DialTimeout: 2 * time.Second, IOTimeout: 10 * time.Second})
	require.NoError(t, err)
	pool, err := db.Pool(gdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	_, err = migrations.Up(t.Context(), pool)
	require.NoError(t, err)
	fake := startFCM(t)
	client, err := newFCM(fake.URL(), fake.KeyFile(), cfg.FCMTimeout)
	require.NoError(t, err)
	t.Cleanup(client.close)
	b := &bench{s: s, gdb: gdb, fcm: fake, dispatcher: newDispatcher(t, cfg, gdb, client)}
	b.eventOwns = func(string) bool { return b.owned.Load() }
	return b
}

func newDispatcher(t *testing.T, cfg Config, gdb *gorm.DB, fcm sender) *dispatcher {
	t.Helper()
	l := newLane(cfg.FCMRate)
	m, err := newMetrics(nil, l)
	require.NoError(t, err)
	return &dispatcher{cfg: cfg, store: store{gdb}, fcm: fcm, lane: l, metrics: m, instance: lease.NewOwner(),
		eventOwns: func(string) bool { return false }}
}

func startFCM(t *testing.T) *fcmfake.Server {
	t.Helper()
	fake, err := fcmfake.Start(fcmfake.Options{KeyFile: filepath.Join(t.TempDir(), "key.json")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	return fake
}

// push writes a push of a user of its own with n devices, which are there when a poll
// sees it; more are SQL assignments.
func (b *bench) push(t *testing.T, id string, devices int, more ...string) {
	t.Helper()
	for i := range devices {
		b.s.Exec(t, "INSERT INTO user_devices (id, user_id, platform, push_token) VALUES (?, ?, 'android', ?)",
			fmt.Sprintf("dev-%s-%d", id, i), "user-"+id, token(id, i))
	}
	b.s.Exec(t, "INSERT INTO push_messages (id, user_id, title, body, data_json, due_at, created_at) VALUES (?, ?, 'Halo 👋🏽', 'kupon', '{\"big\":9007199254740993}', UTC_TIMESTAMP(3) + INTERVAL 7 HOUR, UTC_TIMESTAMP(3) + INTERVAL 7 HOUR)", id, "user-"+id)
	for _, set := range more {
		b.s.Exec(t, "UPDATE push_messages SET "+set+" WHERE id = ?", id)
	}
}

func token(id string, device int) string { return fmt.Sprintf("token-%s-%d", id, device) }

// now is the database's time in the app's zone, for SQL of the test's own handle.
const now = "UTC_TIMESTAMP(3) + INTERVAL 7 HOUR"

func delivery(t *testing.T, id string, attempt int) eventbus.Delivery {
	t.Helper()
	e, err := event.PushDispatched(id)
	require.NoError(t, err)
	return eventbus.Delivery{
		Message: eventbus.Message{Topic: eventbus.Topic("id"), Tag: string(e.Type), Key: e.EventID, Body: e.Payload},
		Attempt: attempt,
	}
}

func (b *bench) handle(t *testing.T, id string, attempt int) eventbus.Outcome {
	t.Helper()
	return b.Handle(t.Context(), id, delivery(t, id, attempt))
}

func (b *bench) status(t *testing.T, id string) string {
	t.Helper()
	return b.text(t, "SELECT status FROM push_messages WHERE id = ?", id)
}

func (b *bench) text(t *testing.T, query string, args ...any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var v string
	require.NoError(t, b.s.DB.QueryRowContext(ctx, query, args...).Scan(&v), query)
	return v
}
