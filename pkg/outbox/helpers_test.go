package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		os.Exit(runChild(spec)) // this binary again, as a relay to be killed
	}
	testenv.Main(m, testenv.IgnoreLeaks(
		// gorm's statement cache, made by the test with a PrepareStmt handle, never ends.
		goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"),
	))
}

// soon bounds a wait for something that takes milliseconds on an idle machine.
const soon = 20 * time.Second

// box is a migrated schema with the handles that tests use.
type box struct {
	*testenv.Schema
	cfg  db.Config
	gorm *gorm.DB
	pool *sql.DB
}

func newBox(t testing.TB, s *testenv.Schema, zone string) *box {
	t.Helper()
	_, err := migrations.Up(t.Context(), s.DB)
	require.NoError(t, err)
	return openBox(t, s, zone)
}

func openBox(t testing.TB, s *testenv.Schema, zone string) *box {
	t.Helper()
	cfg := db.Config{DSN: s.DSN, TimeZone: zone, MaxOpen: 16, DialTimeout: 5 * time.Second, IOTimeout: 30 * time.Second}
	g, err := db.Open(cfg)
	require.NoError(t, err)
	pool, err := db.Pool(g)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return &box{Schema: s, cfg: cfg, gorm: g, pool: pool}
}

// onBoth runs a test on both servers, in the zones of UTC and of the app.
func onBoth(t *testing.T, test func(t *testing.T, b *box)) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		zone := "+00:00"
		if s.Kind == testenv.KindMySQL {
			zone = "+07:00"
		}
		t.Run(zone, func(t *testing.T) { test(t, newBox(t, s, zone)) })
	})
}

func someEvent(id string) event.Event {
	return event.Event{
		EventID: id, Type: event.PushDispatch, AggregateType: "push_task", AggregateID: "1",
		Payload: json.RawMessage(`{"pushId":"1"}`),
	}
}

func events(prefix string, n int) []event.Event {
	out := make([]event.Event, n)
	for i := range out {
		out[i] = someEvent(fmt.Sprintf("%s:%06d", prefix, i))
	}
	return out
}

func (b *box) append(t testing.TB, evs ...event.Event) outbox.Appended {
	t.Helper()
	var got outbox.Appended
	require.NoError(t, db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
		var err error
		got, err = outbox.Append(t.Context(), tx, evs...)
		return err
	}))
	return got
}

// fill appends n events in transactions of a few hundred.
func (b *box) fill(t testing.TB, prefix string, n int) {
	t.Helper()
	all := events(prefix, n)
	for len(all) > 0 {
		k := min(400, len(all))
		b.append(t, all[:k]...)
		all = all[k:]
	}
}

func (b *box) countStatus(t testing.TB, status string) int64 {
	t.Helper()
	return b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = ?", status)
}

func (b *box) allPublished(t testing.TB, bound time.Duration) {
	t.Helper()
	testenv.Eventually(t, bound, "all events are PUBLISHED", func() bool {
		return b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status <> 'PUBLISHED'") == 0
	})
}

// quick is a relay configuration whose bounds a test can wait for.
func quick() outbox.Config {
	return outbox.Config{
		Slots: 1, LeaseTTL: 3 * time.Second, PassTimeout: 1500 * time.Millisecond, PublishTimeout: time.Second,
		BatchRows: 500, BatchBytes: 4 << 20, MaxAttempts: 3, RetryMin: 20 * time.Millisecond, RetryMax: 100 * time.Millisecond,
		OutageMax: 300 * time.Millisecond, DelayedEvery: 50 * time.Millisecond,
		Retention: 336 * time.Hour, PurgeEvery: time.Hour,
	}
}

// memory is a broker whose answers a test scripts. It records what it confirmed.
type memory struct {
	mu     sync.Mutex
	answer func(r outbox.Record) outbox.Outcome
	sent   []string
	calls  map[string]int
	recs   map[string]outbox.Record
}

func newMemory() *memory {
	return &memory{calls: map[string]int{}, recs: map[string]outbox.Record{}}
}

func (m *memory) PublishBatch(_ context.Context, recs []outbox.Record) []outbox.Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	outs := make([]outbox.Outcome, len(recs))
	for i, r := range recs {
		m.calls[r.EventID]++
		outs[i] = outbox.Outcome{Class: outbox.Confirmed}
		if m.answer != nil {
			outs[i] = m.answer(r)
		}
		if outs[i].Class == outbox.Confirmed {
			m.sent = append(m.sent, r.EventID)
			m.recs[r.EventID] = r
		}
	}
	return outs
}

func (m *memory) answers(f func(r outbox.Record) outbox.Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = f
}

func (m *memory) count(id string) (calls, confirmed int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sent {
		if s == id {
			confirmed++
		}
	}
	return m.calls[id], confirmed
}

// mostCalls is how often the event that was sent most often was sent.
func (m *memory) mostCalls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := 0
	for _, n := range m.calls {
		most = max(most, n)
	}
	return most
}

func (m *memory) record(id string) outbox.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.recs[id]
}

// startRelay runs a relay in this process until the test ends or stop is called.
func (b *box) startRelay(t testing.TB, cfg outbox.Config, p outbox.Publisher) (r *outbox.Relay, stop func()) {
	t.Helper()
	return b.startRelayOn(t, nil, cfg, p)
}

type outboxEvent = event.Event

// startRelayOn is startRelay with a registry of the test's own.
func (b *box) startRelayOn(t testing.TB, reg prometheus.Registerer, cfg outbox.Config, p outbox.Publisher) (*outbox.Relay, func()) {
	t.Helper()
	pool, err := outbox.OpenPool(b.cfg, cfg)
	require.NoError(t, err)
	r, err := outbox.NewRelay(cfg, outbox.Deps{Pool: pool, Leases: lease.New(b.pool), Publisher: p, Metrics: reg})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
		_ = pool.Close()
	})
	t.Cleanup(stop)
	return r, stop
}

// gauge reads one metric; label, when given, is the value of its only label.
func gauge(t testing.TB, reg *prometheus.Registry, name string, label ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if len(label) == 0 || m.GetLabel()[0].GetValue() == label[0] {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s %v", name, label)
	return 0
}
