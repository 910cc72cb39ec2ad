package main

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/budget"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/eventbus/redisstreams"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/service"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/feishufake"
)

// zone is the app's in all tests: a mistake of a zone shows as seven hours.
const zone = "+07:00"

// bench is a schema with everything in it, and a sweeper on it.
type bench struct {
	*sweeper
	s    *testenv.Schema
	pool *sql.DB
}

func testConfig() Config {
	return Config{
		Base: service.Base{Env: "id-test", Country: "id"},
		MQ:   provider.Config{Provider: provider.RedisStreams, Redis: redisstreams.Config{MaxLen: 2_000_000}},
		Sweep: SweepConfig{
			Every: 200 * time.Millisecond, Budget: 30 * time.Second, StatementTimeout: 10 * time.Second, Window: time.Hour, Lateness: time.Hour,
			KeepIDs: 96 * time.Hour, RecountEvery: 15 * time.Minute, RecountSettle: 2 * time.Minute, Agreements: 4, Retention: 72 * time.Hour,
		},
		Alert: AlertConfig{
			For: 0, UnknownFor: 0, ClearFor: 0, Repeat: time.Hour, RepeatCritical: time.Hour, RetellAfter: 0, Runbooks: "https://example.test/runbooks",
			MemoryAfter: time.Second, MemoryRepeat: time.Hour, Keep: 720 * time.Hour, SendTimeout: time.Second, SendEvery: 20 * time.Millisecond,
			SendBackoffMax: 500 * time.Millisecond,
		},
		Thresholds: Thresholds{
			OutboxAge: 5 * time.Minute, PublishSilence: time.Minute, RelayPass: time.Minute, GroupBacklog: 1000, GroupAge: 5 * time.Minute,
			InHandAge: 15 * time.Minute, LeaseHeld: 30 * time.Minute, CountedApart: 100, AlertsWaiting: 2 * time.Minute, MQEvents: 1000, MQWait: 30 * time.Second,
			PushOverdue: 500, PushOldestWait: time.Hour, WAInboundBacklog: 100, WAOutboundBacklog: 100, WebhookBacklog: 10, CommissionOverdue: 50,
			PushFailed: 1_000_000, WAFailed: 50, CommissionNew: 20_000, RiskNew: 100,
		},
	}
}

func newBench(t *testing.T, s *testenv.Schema, change ...func(*Config)) *bench {
	t.Helper()
	s.LoadApp(t)
	cfg := testConfig()
	for _, c := range change {
		c(&cfg)
	}
	dbc := db.Config{DSN: s.DSN, TimeZone: zone, MaxOpen: 16, DialTimeout: 2 * time.Second, IOTimeout: time.Minute}
	pool, err := db.OpenSQL(dbc)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	_, err = migrations.Up(t.Context(), pool)
	require.NoError(t, err)
	main, err := db.Gorm(pool)
	require.NoError(t, err)
	return &bench{sweeper: newSweeper(t, cfg, dbc), s: s, pool: mustPool(t, main.Statement.ConnPool)}
}

func mustPool(t *testing.T, p any) *sql.DB {
	t.Helper()
	pool, ok := p.(*sql.DB)
	require.True(t, ok)
	return pool
}

// newSweeper is a process of its own on the same schema.
func newSweeper(t *testing.T, cfg Config, dbc db.Config) *sweeper {
	t.Helper()
	main, err := db.Open(dbc)
	require.NoError(t, err)
	mainPool, err := db.Pool(main)
	require.NoError(t, err)
	sweep, err := db.OpenSQL(dbc, db.WithPool(sweepConns))
	require.NoError(t, err)
	t.Cleanup(func() { _ = sweep.Close(); _ = mainPool.Close() })
	st, err := newStore(main, sweep, cfg.Base.Country)
	require.NoError(t, err)
	m, err := newMetrics(nil)
	require.NoError(t, err)
	fl, err := flags.New(mainPool, flags.Config{Refresh: 100 * time.Millisecond}, cfg.Base.Country, nil)
	require.NoError(t, err)
	require.NoError(t, fl.Refresh(t.Context()))
	s := &sweeper{cfg: cfg, store: st, leases: lease.New(mainPool), flags: fl, metrics: m}
	s.rules, err = loadRules(cfg.Thresholds.byName())
	require.NoError(t, err)
	return s
}

// sweepNow makes a sweep, whatever the time since the last one.
func (b *bench) sweepNow(t *testing.T) {
	t.Helper()
	b.exec(t, "UPDATE mq_ops_figure SET measured_at = measured_at - INTERVAL 1 HOUR")
	_, err := b.Poll(t.Context(), task.Scope{})
	require.NoError(t, err)
}

// exec runs a statement in the app's session, where NOW(3) is the app's time.
func (b *bench) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	_, err := b.pool.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err, statement)
}

func (b *bench) text(t *testing.T, query string, args ...any) string {
	t.Helper()
	var v sql.NullString
	require.NoError(t, b.pool.QueryRowContext(t.Context(), query, args...).Scan(&v), query)
	return v.String
}

func (b *bench) number(t *testing.T, query string, args ...any) int {
	t.Helper()
	var v sql.NullInt64
	require.NoError(t, b.pool.QueryRowContext(t.Context(), query, args...).Scan(&v), query)
	return int(v.Int64)
}

// figure reads one figure of the last sweep; ok is false while it is unknown or absent.
func (b *bench) figure(t *testing.T, name, subject string) (v float64, ok bool) {
	t.Helper()
	var f sql.NullFloat64
	err := b.pool.QueryRowContext(t.Context(), "SELECT value FROM mq_ops_figure WHERE name = ? AND subject = ?", name, subject).Scan(&f)
	if err != nil {
		require.ErrorIs(t, err, sql.ErrNoRows)
	}
	return f.Float64, f.Valid
}

// messages lists the queue as "kind rule status", in the order of sending.
func (b *bench) messages(t *testing.T) []string {
	t.Helper()
	rows, err := b.pool.QueryContext(t.Context(), "SELECT CONCAT_WS(' ', kind, rule, status) FROM mq_alert_message ORDER BY severity_rank, id")
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	out := []string{}
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		out = append(out, line)
	}
	require.NoError(t, rows.Err())
	return out
}

// event writes a row of outbox_event of an age.
func (b *bench) event(t *testing.T, id, status string, age time.Duration, more ...string) {
	t.Helper()
	b.exec(t, `INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, status, created_at)
		VALUES (?, ?, 'PUSH_DISPATCH', 'push_task', ?, '{}', ?, NOW(3) - INTERVAL ? MICROSECOND)`, "obe"+id, "push:"+id, id, status, age.Microseconds())
	for _, set := range more {
		b.exec(t, "UPDATE outbox_event SET "+set+" WHERE id = ?", "obe"+id)
	}
}

// relayAlive says what a healthy relay says.
func (b *bench) relayAlive(t *testing.T, confirmAgo time.Duration) {
	t.Helper()
	b.exec(t, `REPLACE INTO mq_task_health (task, instance, country, role, last_pass_at, last_confirm_at, updated_at)
		VALUES ('outbox-relay', 'r1', 'id', 'relay', NOW(3), NOW(3) - INTERVAL ? MICROSECOND, NOW(3))`, confirmAgo.Microseconds())
}

// group says what a consumer says of its group; NULL is "NULL".
func (b *bench) group(t *testing.T, name, backlog, oldestMillis string, told time.Duration) {
	t.Helper()
	b.exec(t, fmt.Sprintf(`REPLACE INTO mq_task_health (task, instance, country, role, consumer_group, backlog, oldest_age_ms, in_hand_age_ms, updated_at)
		VALUES ('push-dispatch', 'c-%s', 'id', 'consume', '%s', %s, %s, 0, NOW(3) - INTERVAL %d MICROSECOND)`, name, name, backlog, oldestMillis, told.Microseconds()))
}

func startFeishu(t *testing.T, o feishufake.Options) *feishufake.Server {
	t.Helper()
	fake, err := feishufake.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	return fake
}

// startSender sends one route until the returned function is called.
func (b *bench) startSender(t *testing.T, route string, send func(context.Context, message, bool) answer, spec budget.Spec) (stop func()) {
	t.Helper()
	bu, err := budget.New(b.store.pool, spec)
	require.NoError(t, err)
	s := &sender{cfg: b.cfg.Alert, store: b.store, leases: b.leases, out: outlet{route: route, send: send, budget: bu}, metrics: b.metrics, beat: func() {}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	ended := false
	stop = func() {
		if !ended {
			ended = true
			cancel()
			require.NoError(t, <-done)
		}
	}
	t.Cleanup(stop)
	return stop
}
