package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// bench is a schema with an expirer on it.
type bench struct {
	*expirer
	s   *testenv.Schema
	gdb *gorm.DB
}

// now is the database's time in the app's zone, for SQL of the test's own handle.
const now = "UTC_TIMESTAMP(3) + INTERVAL 7 HOUR"

func newBench(t testing.TB, s *testenv.Schema, change ...func(*Config)) *bench {
	t.Helper()
	s.LoadApp(t)
	gdb := openDB(t, s, 16)
	pool, err := db.Pool(gdb)
	require.NoError(t, err)
	_, err = migrations.Up(t.Context(), pool)
	require.NoError(t, err)
	return &bench{expirer: newExpirer(t, gdb, change...), s: s, gdb: gdb}
}

func openDB(t testing.TB, s *testenv.Schema, maxOpen int) *gorm.DB {
	t.Helper()
	gdb, err := db.Open(db.Config{DSN: s.DSN, TimeZone: "+07:00", MaxOpen: maxOpen, DialTimeout: 2 * time.Second, IOTimeout: 30 * time.Second})
	require.NoError(t, err)
	pool, err := db.Pool(gdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return gdb
}

// newExpirer is one process's worth.
func newExpirer(t testing.TB, gdb *gorm.DB, change ...func(*Config)) *expirer {
	t.Helper()
	cfg := Config{ScanDelayMS: 300_000, OverdueScans: 2, ScanBatch: 7, ScanLease: 5 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	pool, err := db.Pool(gdb)
	require.NoError(t, err)
	m, err := newMetrics(nil)
	require.NoError(t, err)
	return &expirer{cfg: cfg, store: store{gdb}, leases: lease.New(pool), metrics: m}
}

// coupon writes one whose time is `due` (an SQL expression), with further columns set
// by SQL.
func (b *bench) coupon(t testing.TB, id, due string, more ...string) {
	t.Helper()
	b.s.Exec(t, "INSERT INTO user_coupons (id, user_id, coupon_id, status, expires_at, created_at, updated_at) VALUES (?, ?, 'c1', 'ISSUED', "+due+", "+now+" - INTERVAL 30 DAY, "+now+" - INTERVAL 30 DAY)", id, "u-"+id)
	for _, set := range more {
		b.s.Exec(t, "UPDATE user_coupons SET "+set+" WHERE id = ?", id)
	}
}

// many writes n coupons; row makes the values of the i-th, id excepted, as SQL.
func (b *bench) many(t testing.TB, n int, row func(i int) (status, due string)) {
	t.Helper()
	const rows = 2000
	for from := 0; from < n; from += rows {
		values := make([]string, 0, rows)
		for i := from; i < min(n, from+rows); i++ {
			status, due := row(i)
			values = append(values, fmt.Sprintf("('%s', 'u%d', 'c1', '%s', %s)", manyID(i), i%1000, status, due))
		}
		b.s.Exec(t, "INSERT INTO user_coupons (id, user_id, coupon_id, status, expires_at) VALUES "+strings.Join(values, ","))
	}
}

// manyID does not grow with i, as ids of an app need not.
func manyID(i int) string { return fmt.Sprintf("uc%02d%07d", i*37%100, i) }

func delivery(t testing.TB, userID, id string, attempt int) eventbus.Delivery {
	t.Helper()
	e, err := event.CouponExpired(userID, id)
	require.NoError(t, err)
	return eventbus.Delivery{
		Message: eventbus.Message{Topic: eventbus.Topic("id"), Tag: string(e.Type), Key: e.EventID, Body: e.Payload},
		Attempt: attempt,
	}
}

func (b *bench) handle(t testing.TB, id string) eventbus.Outcome {
	t.Helper()
	return b.Handle(t.Context(), id, delivery(t, "u-"+id, id, 1))
}

// poll scans once with an owner's rule.
func (b *bench) poll(t testing.TB, owns func(id string, at time.Time) bool) task.Result {
	t.Helper()
	r, err := b.Poll(t.Context(), task.Scope{Owns: owns})
	require.NoError(t, err)
	return r
}

func all(string, time.Time) bool  { return true }
func none(string, time.Time) bool { return false }

func (b *bench) status(t testing.TB, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var v string
	require.NoError(t, b.s.DB.QueryRowContext(ctx, "SELECT status FROM user_coupons WHERE id = ?", id).Scan(&v))
	return v
}

func (b *bench) count(t testing.TB, where string, args ...any) int {
	t.Helper()
	return int(b.s.QueryInt(t, "SELECT COUNT(*) FROM "+where, args...))
}
