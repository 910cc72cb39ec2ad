package outbox_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// sow makes n rows fast: one INSERT … SELECT per 10,000. created is an expression over i.
func (b *box) sow(t testing.TB, prefix string, n int, status, created string) {
	t.Helper()
	digits := "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
	for from := 0; from < n; from += 10_000 {
		_, err := b.pool.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO outbox_event
				(id, event_id, event_type, aggregate_type, aggregate_id, payload_json, status, created_at, published_at)
			SELECT CONCAT('obe%[1]s', i), CONCAT('%[1]s:', i), IF(i %% 100 = 0, 'RARE', 'PUSH_DISPATCH'), 'push_task', i, '{}', '%[2]s', %[3]s,
				IF('%[2]s' = 'PUBLISHED', NOW(3), NULL)
			FROM (SELECT %[4]d + a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS i FROM %[5]s a, %[5]s b, %[5]s c, %[5]s e) n WHERE i < %[6]d`,
			prefix, status, created, from, digits, n))
		require.NoError(t, err)
	}
}

// The index serves filter and order of every statement on a large table, nothing is
// sorted, and the rows examined are of the order of the batch.
func TestTheIndexServesEveryStatementOnALargeTable(t *testing.T) {
	t.Parallel()
	for name, shape := range map[string]struct{ published, pending int }{
		"99 % published": {testenv.Scale(39_600, 990_000), testenv.Scale(400, 10_000)},
		"all pending":    {0, testenv.Scale(20_000, 500_000)},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, b *box) {
				b.sow(t, "old", shape.published, "PUBLISHED", "NOW(3) - INTERVAL 20 DAY + INTERVAL i SECOND")
				b.sow(t, "new", shape.pending, "PENDING", "NOW(3) - INTERVAL 1 DAY + INTERVAL (i * 1000) MICROSECOND")
				b.Exec(t, "ANALYZE TABLE outbox_event")
				var at time.Time
				require.NoError(t, b.pool.QueryRow("SELECT created_at FROM outbox_event WHERE event_id = ?", fmt.Sprint("new:", shape.pending/2)).Scan(&at))
				conn, err := b.pool.Conn(t.Context())
				require.NoError(t, err)
				defer func() { _ = conn.Close() }()
				for name, query := range outbox.AllSQL(at) {
					plan := b.Explain(t, b.pool, query[0].(string), query[1:]...)[0]
					want := "idx_status_created"
					if strings.HasPrefix(name, "mark") {
						want = "PRIMARY"
					}
					require.Equal(t, want, plan["key"], "%s: %v", name, plan)
					require.NotContains(t, plan["Extra"], "filesort", "%s: %v", name, plan)
					require.NotContains(t, plan["Extra"], "temporary", "%s: %v", name, plan)
					for _, ranged := range []string{"tail", "tip", "backlog", "mark"} {
						if strings.HasSuffix(name, ranged) {
							require.Equal(t, "range", plan["type"], "%s: %v", name, plan)
						}
					}
					rows, _ := strconv.Atoi(plan["rows"])
					_, examined := testenv.Reads(t, conn, query[0].(string), query[1:]...)
					t.Logf("%s: type %s, %d rows estimated, %d examined", name, plan["type"], rows, examined)
					require.LessOrEqual(t, examined, 2500, "%s", name)
				}
			})
		})
	}
}

// What lies where the window does not look is found by the sweep, and the tail goes on
// as ever beside it.
func TestWhateverIsWrittenIsFound(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *box) {
		b.sow(t, "backlog", testenv.Scale(3000, 100_000), "PENDING", "NOW(3) - INTERVAL 1 HOUR + INTERVAL (i * 1000) MICROSECOND")
		b.sow(t, "requeued", testenv.Scale(1000, 10_000), "PUBLISHED", "NOW(3) - INTERVAL 3 DAY + INTERVAL i SECOND")
		b.insertAt(t, "far", 1, "'2099-01-01'")
		n := testenv.Scale(2000, 100_000)
		b.delay(t, n, "NOW(3) + INTERVAL 1 DAY")
		m := newMemory()
		b.startRelay(t, quick(), m)
		requeued := make(chan error, 1)
		go func() {
			_, err := outbox.NewStore(b.pool).Requeue(t.Context(), outbox.Filter{Status: outbox.StatusPublished, To: time.Now().Add(-48 * time.Hour)}, act)
			requeued <- err
		}()
		for i := range 20 {
			b.insertAt(t, fmt.Sprint("late", i, "x"), 2, fmt.Sprintf("NOW(3) - INTERVAL %d MICROSECOND", i*100_000)) // committed 0 to 2 s late
			b.insertAt(t, fmt.Sprint("whole", i, "x"), 2, "CAST(NOW() AS DATETIME)")
			b.insertAt(t, fmt.Sprint("ahead", i, "x"), 2, "NOW(3) + INTERVAL 7 HOUR")
			b.insertAt(t, fmt.Sprint("behind", i, "x"), 2, "NOW(3) - INTERVAL 7 HOUR")
			b.append(t, someEvent(fmt.Sprint("ordinary:", i)))
			time.Sleep(20 * time.Millisecond)
		}
		require.NoError(t, <-requeued)
		b.allPublished(t, 2*soon)
		require.Equal(t, 1, m.mostCalls())
		require.Len(t, m.sent, testenv.Scale(3000, 100_000)+testenv.Scale(1000, 10_000)+1+20*9)
		require.EqualValues(t, n, b.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event"), "none of these is due")
	})
}

// delay writes n delayed events.
func (b *box) delay(t testing.TB, n int, due string) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		var values []string
		for i := from; i < min(n, from+1000); i++ {
			values = append(values, fmt.Sprintf("('obed%d', 'delayed:%d', 'T', 'a', '1', '{}', %s, NOW(3))", i, i, due))
		}
		_, err := b.pool.ExecContext(t.Context(), `INSERT INTO mq_delayed_event
			(id, event_id, event_type, aggregate_type, aggregate_id, payload_json, due_at, created_at) VALUES `+strings.Join(values, ","))
		require.NoError(t, err)
	}
}

// 10,000 FAILED rows are requeued at a rate, twice at the same time, while a relay sends
// them: each goes out once, under its event_id, and the audit adds up.
func TestRequeueOfTenThousandTwiceAtOnce(t *testing.T) {
	t.Parallel()
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	const n = 10_000
	b.sow(t, "e", n, "FAILED", "NOW(3) - INTERVAL 1 DAY + INTERVAL i SECOND")
	m := newMemory()
	b.startRelay(t, quick(), m)
	var wg sync.WaitGroup
	for _, who := range []string{"one", "two"} {
		wg.Go(func() {
			a := outbox.Act{Who: who, Reason: "broker was cleared", Rate: testenv.Scale(4000, 500)}
			if _, err := outbox.NewStore(b.pool).Requeue(t.Context(), outbox.Filter{Status: outbox.StatusFailed, All: true}, a); err != nil {
				t.Errorf("requeue of %s: %v", who, err)
			}
		})
	}
	wg.Wait()
	b.allPublished(t, 2*soon)
	require.Len(t, m.sent, n)
	require.Len(t, m.recs, n)
	require.EqualValues(t, n, b.QueryInt(t, "SELECT SUM(affected) FROM mq_audit WHERE action = 'requeue' AND reason = 'broker was cleared'"))
	require.EqualValues(t, 2, b.QueryInt(t, "SELECT COUNT(DISTINCT who) FROM mq_audit"))
	require.EqualValues(t, n, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE event_id LIKE 'e:%'"))
}

// The seed's own table gets what it lacks while four writers insert: none waits longer
// than a second.
func TestMigrationOfALargeTableHoldsNoWriterUp(t *testing.T) {
	t.Parallel()
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		s = testenv.NewSchema(t, s.Server)
		s.Exec(t, `CREATE TABLE outbox_event (
			id VARCHAR(64) PRIMARY KEY, event_id VARCHAR(64) NOT NULL, event_type VARCHAR(64) NOT NULL,
			aggregate_type VARCHAR(32) NOT NULL, aggregate_id VARCHAR(64) NOT NULL, payload_json TEXT NOT NULL,
			status VARCHAR(16) NOT NULL DEFAULT 'PENDING', retry_count INT NOT NULL DEFAULT 0,
			created_at DATETIME NOT NULL, published_at DATETIME NULL,
			UNIQUE KEY uk_event_id (event_id), KEY idx_status_created (status, created_at))`)
		b := openBox(t, s, "+00:00")
		b.sow(t, "old", testenv.Scale(200_000, 1_000_000), "PUBLISHED", "NOW() - INTERVAL 10 DAY + INTERVAL i SECOND")
		var mu sync.Mutex
		var longest time.Duration
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for writer := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					case <-time.After(2 * time.Millisecond):
					}
					began := time.Now()
					_, err := b.pool.ExecContext(t.Context(), `INSERT INTO outbox_event
						(id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at)
						VALUES (?, ?, 'T', 'a', '1', '{}', NOW())`, fmt.Sprint("w", writer, "-", i), fmt.Sprint("w", writer, ":", i))
					if err != nil {
						t.Errorf("insert: %v", err)
						return
					}
					mu.Lock()
					longest = max(longest, time.Since(began))
					mu.Unlock()
				}
			})
		}
		time.Sleep(200 * time.Millisecond)
		began := time.Now()
		_, err := migrations.Up(t.Context(), s.DB)
		took := time.Since(began)
		time.Sleep(200 * time.Millisecond)
		close(stop)
		wg.Wait()
		require.NoError(t, err)
		t.Logf("migrated in %s; the longest insert took %s", took.Round(time.Millisecond), longest.Round(time.Millisecond))
		require.Less(t, longest, 3*time.Second, "promised is one second")
	})
}
