package outbox_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// begin opens a transaction that waits for no lock longer than a second.
func (b *box) begin(t testing.TB) *sql.Tx {
	t.Helper()
	tx, err := b.pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.ExecContext(t.Context(), "SET SESSION innodb_lock_wait_timeout = 1")
	require.NoError(t, err)
	return tx
}

// claimOpen claims in a transaction that stays open, and returns how many rows it locks.
func (b *box) claimOpen(t testing.TB, from time.Time, limit int) (tx *sql.Tx, ids []string, locked int64) {
	t.Helper()
	tx = b.begin(t)
	ids, err := outbox.Claim(t.Context(), tx, from, limit)
	require.NoError(t, err)
	var thread int64
	require.NoError(t, tx.QueryRow("SELECT CONNECTION_ID()").Scan(&thread))
	time.Sleep(200 * time.Millisecond) // MariaDB shows what it read a moment ago
	return tx, ids, b.QueryInt(t, "SELECT COALESCE(MAX(trx_rows_locked), 0) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = ?", thread)
}

// A claim locks its batch and no more, at the head of a full queue and of an empty one,
// whatever else is in the table: another claim gets other rows at once, and neither
// writers nor marks wait.
func TestAClaimLocksItsBatchAndNoMore(t *testing.T) {
	t.Parallel()
	const batch, due = 50, 2000
	onBoth(t, func(t *testing.T, b *box) {
		for _, done := range []int{10, testenv.Scale(20_000, 1_000_000)} {
			for _, part := range []string{"sweep", "backlog"} {
				t.Run(fmt.Sprint(part, " beside ", done), func(t *testing.T) {
					b.Exec(t, "TRUNCATE TABLE outbox_event")
					b.sow(t, "done", done, "PUBLISHED", "NOW(3) - INTERVAL 1 DAY + INTERVAL i SECOND")
					b.sow(t, "due", due, "PENDING", "NOW(3) - INTERVAL 10 MINUTE + INTERVAL (i * 1000) MICROSECOND")
					var from time.Time
					if part == "backlog" {
						require.NoError(t, b.pool.QueryRow("SELECT MIN(created_at) FROM outbox_event WHERE status = 'PENDING'").Scan(&from))
					}
					// The marks before have left their entries at the head of the index.
					b.mark(t, from, 500)

					one, first, locked := b.claimOpen(t, from, batch)
					two, second, lockedToo := b.claimOpen(t, from, batch)
					require.Len(t, first, batch)
					require.Len(t, second, batch)
					require.Empty(t, common(first, second))
					t.Logf("%d and %d locks", locked, lockedToo)
					require.LessOrEqual(t, max(locked, lockedToo), int64(5*batch), "an entry of the index and the row for each, and what is passed over")
					b.appendsWaitForNobody(t, "full")
					b.mark(t, from, batch)
					require.NoError(t, one.Rollback())
					require.NoError(t, two.Rollback())

					b.Exec(t, "UPDATE outbox_event SET status = 'PUBLISHED', published_at = NOW(3) WHERE status = 'PENDING'")
					empty, none, locked := b.claimOpen(t, from, batch)
					require.Empty(t, none)
					require.LessOrEqual(t, locked, int64(batch))
					b.appendsWaitForNobody(t, "empty")
					require.NoError(t, empty.Rollback())
				})
			}
		}
	})
}

// mark claims and marks n rows.
func (b *box) mark(t testing.TB, from time.Time, n int) {
	t.Helper()
	tx := b.begin(t)
	ids, err := outbox.Claim(t.Context(), tx, from, n)
	require.NoError(t, err)
	require.Len(t, ids, n)
	for _, id := range ids {
		_, err = tx.ExecContext(t.Context(), "UPDATE outbox_event SET status = 'PUBLISHED', published_at = NOW(3) WHERE id = ? AND status = 'PENDING'", id)
		require.NoError(t, err, "a mark must not wait")
	}
	require.NoError(t, tx.Commit())
}

func (b *box) appendsWaitForNobody(t testing.TB, prefix string) {
	t.Helper()
	for i := range 5 {
		tx := b.begin(t)
		_, err := outbox.AppendSQL(t.Context(), tx, someEvent(fmt.Sprint(prefix, ":", i)))
		require.NoError(t, err, "an INSERT must not wait for a claim")
		require.NoError(t, tx.Commit())
	}
}

func common(a, b []string) (both []string) {
	in := map[string]bool{}
	for _, s := range a {
		in[s] = true
	}
	for _, s := range b {
		if in[s] {
			both = append(both, s)
		}
	}
	return both
}

// Twenty writers with business rows, with ordered and with random ids, three relays, two
// purges and a person who requeues, all at once: conflicts hit whole units that run again,
// nobody is told of them, and nothing is lost.
func TestAThrongOfWritersRelaysAndPurges(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *box) {
		b.accounts(t)
		b.pool.SetMaxOpenConns(40)
		cfg := quick()
		cfg.Slots, cfg.BatchRows = 3, 50
		m := newMemory()
		for range cfg.Slots {
			b.startRelay(t, cfg, m)
		}
		store := outbox.NewStore(b.pool)
		var units, runs, purged, requeued atomic.Int64
		var throng, upkeep sync.WaitGroup
		ctx, end := context.WithTimeout(t.Context(), time.Duration(testenv.Scale(4, 300))*time.Second)
		defer end()
		for w := range 20 {
			throng.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					id := fmt.Sprintf("ordered:%d:%d", w, i)
					if w%2 == 0 {
						id = rand.Text()
					}
					err := db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
						runs.Add(1)
						if err := tx.Exec("UPDATE accounts SET n = n + 1 WHERE id = ?", (w*7+i)%100).Error; err != nil {
							return err
						}
						e := someEvent(id)
						if i%50 == 0 {
							e.AggregateID = "again"
						}
						_, err := outbox.Append(t.Context(), tx, e)
						return err
					})
					if err != nil {
						t.Errorf("a business caller was told: %v", err)
						return
					}
					units.Add(1)
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		every := func(pause time.Duration, total *atomic.Int64, f func() (int64, error)) {
			upkeep.Go(func() {
				for ctx.Err() == nil {
					n, err := f()
					if err != nil {
						t.Errorf("upkeep: %v", err)
						return
					}
					total.Add(n)
					time.Sleep(pause)
				}
			})
		}
		for range 2 {
			every(30*time.Millisecond, &purged, func() (int64, error) {
				return store.Purge(t.Context(), outbox.PurgeRequest{OlderThan: 300 * time.Millisecond})
			})
		}
		every(100*time.Millisecond, &requeued, func() (int64, error) {
			return store.Requeue(t.Context(), outbox.Filter{Status: outbox.StatusPublished, AggregateID: "again"}, act)
		})
		throng.Wait()
		upkeep.Wait()
		b.allPublished(t, 2*soon)
		require.Equal(t, units.Load(), b.QueryInt(t, "SELECT SUM(n) FROM accounts"))
		m.mu.Lock()
		defer m.mu.Unlock()
		t.Logf("%d units, %d of them ran again after a conflict; %d rows purged, %d requeued; %d sends", units.Load(), runs.Load()-units.Load(), purged.Load(), requeued.Load(), len(m.sent))
		require.Len(t, m.recs, int(units.Load()), "none is lost")
		require.Positive(t, purged.Load())
		require.Positive(t, requeued.Load())
		require.LessOrEqual(t, len(m.sent), int(units.Load()+requeued.Load()), "nothing but a requeue sends an event again")
	})
}

// hung is a broker that gives no answer until it is mended. It knows what is in flight.
type hung struct {
	*memory
	mended   atomic.Bool
	flying   map[string]bool
	senders  int
	together bool // two sends were in flight at once
	twice    []string
}

func (p *hung) PublishBatch(ctx context.Context, recs []outbox.Record) []outbox.Outcome {
	if p.mended.Load() {
		return p.memory.PublishBatch(ctx, recs)
	}
	p.fly(recs, +1)
	<-ctx.Done()
	p.fly(recs, -1)
	return make([]outbox.Outcome, len(recs))
}

func (p *hung) fly(recs []outbox.Record, change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.senders += change
	p.together = p.together || p.senders > 1
	for _, r := range recs {
		if change > 0 && p.flying[r.EventID] {
			p.twice = append(p.twice, r.EventID)
		}
		p.flying[r.EventID] = change > 0
	}
}

// While the broker gives no answer the relays hold rows, for a pass at longest. Writers do
// not wait for that, nor does a purge; another relay has other rows; the leases are renewed.
func TestASilentBrokerHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *box) {
		b.accounts(t)
		b.sow(t, "old", 1500, "PUBLISHED", "NOW(3) - INTERVAL 20 DAY")
		b.Exec(t, "UPDATE outbox_event SET published_at = created_at")
		b.fill(t, "e", 400)
		cfg := quick()
		cfg.Slots, cfg.BatchRows = 2, 50
		p := &hung{memory: newMemory(), flying: map[string]bool{}}
		for range cfg.Slots {
			b.startRelay(t, cfg, p)
		}
		testenv.Eventually(t, soon, "both hold rows", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.together
		})
		const fences = "SELECT SUM(fence) FROM mq_lease WHERE locked_until > NOW(3)"
		before := queryOf[int64](t, b, fences)
		n := 0
		seen := map[string]time.Time{}
		for end := time.Now().Add(2*cfg.LeaseTTL + time.Second); time.Now().Before(end); n++ {
			tx := b.begin(t)
			_, err := tx.ExecContext(t.Context(), "UPDATE accounts SET n = n + 1 WHERE id = 1")
			require.NoError(t, err)
			_, err = outbox.AppendSQL(t.Context(), tx, someEvent(fmt.Sprint("x:", n)), someEvent(fmt.Sprintf("e:%06d", n%400)))
			require.NoError(t, err, "an append must not wait for the broker")
			require.NoError(t, tx.Commit())
			b.noneOpenLongerThan(t, 5*time.Second, seen)
			time.Sleep(100 * time.Millisecond)
		}
		require.Zero(t, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE event_id LIKE 'old:%'"), "what is past its retention was purged meanwhile")
		require.Equal(t, before, queryOf[int64](t, b, fences), "both leases were renewed all the time")
		p.mended.Store(true)
		b.allPublished(t, soon)
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Empty(t, p.twice, "a relay takes no row that another one holds")
		require.Len(t, p.recs, 400+n)
		require.Zero(t, b.QueryInt(t, "SELECT MAX(retry_count) FROM outbox_event"))
	})
}

// noneOpenLongerThan remembers when it saw each transaction of the schema first.
func (b *box) noneOpenLongerThan(t testing.TB, bound time.Duration, seen map[string]time.Time) {
	t.Helper()
	rows, err := b.DB.QueryContext(t.Context(), "SELECT CONCAT(t.trx_mysql_thread_id, ' ', t.trx_started)"+ofThisSchema, b.Name)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var trx string
		require.NoError(t, rows.Scan(&trx))
		if first, ok := seen[trx]; !ok {
			seen[trx] = time.Now()
		} else {
			require.Less(t, time.Since(first), bound, "a transaction stayed open")
		}
	}
	require.NoError(t, rows.Err())
}

// queryOf reads one value in the box's own session zone.
func queryOf[T any](t testing.TB, b *box, query string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, b.pool.QueryRowContext(t.Context(), query, args...).Scan(&v), query)
	return v
}
