package outbox_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
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

// accounts makes a business table; a unit of the tests changes a row of it and appends.
func (b *box) accounts(t testing.TB) {
	t.Helper()
	b.Exec(t, "CREATE TABLE accounts (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
	var rows []string
	for i := range 100 {
		rows = append(rows, fmt.Sprintf("(%d, 0)", i))
	}
	b.Exec(t, "INSERT INTO accounts VALUES "+strings.Join(rows, ", "))
}

const ofThisSchema = ` FROM information_schema.innodb_trx t
	JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id WHERE p.db = ?`

// noneOpen waits until no transaction of the schema is open.
func (b *box) noneOpen(t testing.TB) {
	t.Helper()
	testenv.Eventually(t, soon, "no transaction is open", func() bool {
		return b.QueryInt(t, "SELECT COUNT(*)"+ofThisSchema, b.Name) == 0
	})
}

// A unit loses a deadlock, at a business statement or at Append. By itself it is gone as
// a whole, even if the caller then commits: Append does not try its statement again in
// what the server takes for a new transaction. In db.InTx it runs again, as a whole.
func TestADeadlockLeavesBothOrNeither(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		b.accounts(t)
		for i, at := range []string{"update", "append", "update in InTx", "append in InTx"} {
			t.Run(at, func(t *testing.T) {
				d := duel{box: b, atAppend: strings.HasPrefix(at, "append"), event: someEvent(fmt.Sprint("duel:", i))}
				if strings.HasSuffix(at, "InTx") {
					runs := 0
					require.NoError(t, db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
						runs++
						return d.unit(t, runs == 1, func(q string) error { return tx.Exec(q).Error }, func() error {
							_, err := outbox.Append(t.Context(), tx, d.event)
							return err
						})
					}))
					require.Equal(t, 2, runs, "it was the victim once")
					d.check(t, 1)
					return
				}
				tx, err := b.pool.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				err = d.unit(t, true, func(q string) error { _, err := tx.ExecContext(t.Context(), q); return err }, func() error {
					_, err := outbox.AppendSQL(t.Context(), tx, d.event)
					return err
				})
				require.True(t, db.IsRetryable(err), "the caller is told: %v", err)
				_ = tx.Commit() // as a careless caller would
				d.check(t, 0)
			})
		}
	})
}

// duel is a unit and a heavier rival that lock the same rows in opposite order.
type duel struct {
	*box
	atAppend bool
	event    outboxEvent
	rival    chan error
}

// unit changes accounts 1 and 2 and appends. With a rival it loses at its last but one
// statement, or at Append.
func (d *duel) unit(t *testing.T, withRival bool, exec func(string) error, add func() error) error {
	if err := exec("UPDATE accounts SET n = n + 1 WHERE id = 1"); err != nil {
		return err
	}
	if withRival && !d.atAppend {
		d.challenge(t, "UPDATE accounts SET n = n + 100 WHERE id = 2")
	}
	if err := exec("UPDATE accounts SET n = n + 1 WHERE id = 2"); err != nil {
		return err
	}
	if withRival && d.atAppend {
		d.challenge(t, "")
	}
	return add()
}

// challenge lets the rival take what the unit wants next and then wait for the unit. It
// has changed more rows, so that the server gives up the unit.
func (d *duel) challenge(t *testing.T, first string) {
	t.Helper()
	tx, err := d.pool.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "UPDATE accounts SET n = n + 100 WHERE id >= 10")
	require.NoError(t, err)
	if first == "" {
		_, err = outbox.AppendSQL(t.Context(), tx, d.event)
	} else {
		_, err = tx.ExecContext(t.Context(), first)
	}
	require.NoError(t, err)
	d.rival = make(chan error, 1)
	go func() {
		_, err := tx.ExecContext(context.WithoutCancel(t.Context()), "UPDATE accounts SET n = n + 100 WHERE id = 1")
		d.rival <- errors.Join(err, tx.Rollback())
	}()
	testenv.Eventually(t, soon, "the rival waits", func() bool {
		return d.QueryInt(t, "SELECT COUNT(*)"+ofThisSchema+" AND t.trx_state = 'LOCK WAIT'", d.Name) == 1
	})
}

func (d *duel) check(t *testing.T, want int64) {
	t.Helper()
	require.NoError(t, <-d.rival, "the rival was not the victim")
	require.EqualValues(t, 2*want, d.QueryInt(t, "SELECT SUM(n) FROM accounts"), "business rows")
	require.EqualValues(t, want, d.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE event_id = ?", d.event.EventID), "events")
	d.Exec(t, "UPDATE accounts SET n = 0")
}

// Whether a COMMIT took effect whose answer was lost nobody knows. It is not repeated by
// itself; the caller repeats the request, and the event's id tells that it was done.
func TestARequestWhoseCommitIsUnknownIsRepeated(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBox(t, s, "+00:00")
		b.accounts(t)
		var cuts atomic.Int64
		through := b.through(t, newCuttingProxy(t, b.Server.Addr(), commitRequest, &cuts))
		g, err := db.Gorm(through.pool)
		require.NoError(t, err)
		const requests = 20
		for i := range requests {
			runs := 0
			request := func() error {
				return db.InTx(t.Context(), g, func(tx *gorm.DB) error {
					runs++
					got, err := outbox.Append(t.Context(), tx, someEvent(fmt.Sprint("request:", i)))
					if err != nil || len(got.New) == 0 {
						return err
					}
					return tx.Exec("UPDATE accounts SET n = n + 1 WHERE id = 1").Error
				})
			}
			cuts.Store(int64(i % 2))
			if err := request(); i%2 == 1 {
				require.True(t, db.IsUnavailable(err), "%v", err)
				require.Equal(t, 1, runs, "InTx repeats no unit that may have been committed")
				require.NoError(t, request())
			} else {
				require.NoError(t, err)
			}
		}
		require.EqualValues(t, requests, b.QueryInt(t, "SELECT n FROM accounts WHERE id = 1"), "each request took effect once")
		m := newMemory()
		b.startRelay(t, quick(), m)
		b.allPublished(t, soon)
		require.Len(t, m.sent, requests)
	})
}

// A context that ends at any moment of a unit leaves both or neither, no open transaction
// and no lock, also where the pool is small.
func TestAUnitThatIsCancelledIsWholeOrGone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		b.accounts(t)
		g, err := db.Open(b.cfg, db.WithPool(2))
		require.NoError(t, err)
		pool, err := db.Pool(g)
		require.NoError(t, err)
		defer func() { _ = pool.Close() }()
		unit := func(ctx context.Context, i int) error {
			return db.InTx(ctx, g, func(tx *gorm.DB) error {
				if err := tx.Exec("UPDATE accounts SET n = n + 1 WHERE id = ?", i%4).Error; err != nil {
					return err
				}
				_, err := outbox.Append(ctx, tx, someEvent(fmt.Sprint("unit:", i)))
				return err
			})
		}
		require.NoError(t, unit(t.Context(), 1000), "the first opens the connection")
		began := time.Now()
		require.NoError(t, unit(t.Context(), 1001))
		usual := time.Since(began)
		const units = 200
		done := 2
		for i := range units {
			ctx, cancel := context.WithCancel(t.Context())
			stop := time.AfterFunc(usual*time.Duration(2*i)/units, cancel)
			if err := unit(ctx, i); err == nil {
				done++
			}
			stop.Stop()
			cancel()
		}
		b.noneOpen(t)
		require.Zero(t, pool.Stats().InUse)
		changed, events := b.QueryInt(t, "SELECT SUM(n) FROM accounts"), b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event")
		require.Equal(t, changed, events, "business change and event go together")
		require.GreaterOrEqual(t, events, int64(done))
		t.Logf("%d units: %d took effect, %d of them without an error", units+2, events, done)
		require.NoError(t, unit(t.Context(), 2000))
	})
}

// A unit needs one connection and no second one, also with gorm's cache of prepared
// statements: pools of any size serve many units at once.
func TestAUnitNeedsOneConnection(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		b.accounts(t)
		const units = 50
		for size := 1; size <= 3; size++ {
			for name, prepare := range map[string]bool{"plain": false, "prepared": true} {
				g, err := db.Open(b.cfg, db.WithPool(size))
				require.NoError(t, err)
				pool, err := db.Pool(g)
				require.NoError(t, err)
				handle := g.Session(&gorm.Session{PrepareStmt: prepare})
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				var wg sync.WaitGroup
				for i := range units {
					wg.Go(func() {
						err := db.InTx(ctx, handle, func(tx *gorm.DB) error {
							if err := tx.Exec("UPDATE accounts SET n = n + 1 WHERE id = ?", i%10).Error; err != nil {
								return err
							}
							_, err := outbox.Append(ctx, tx, someEvent(fmt.Sprint(name, size, ":", i)))
							return err
						})
						if err != nil {
							t.Errorf("%s, %d connections: %v", name, size, err)
						}
					})
				}
				wg.Wait()
				cancel()
				require.False(t, t.Failed())
				require.Zero(t, pool.Stats().InUse)
				require.NoError(t, pool.Close())
			}
		}
		require.EqualValues(t, 6*units, b.QueryInt(t, "SELECT SUM(n) FROM accounts"))
		require.EqualValues(t, 6*units, b.countStatus(t, "PENDING"))
	})
}

// Payloads reach the broker byte for byte as they were appended, up to the largest one:
// no server counts, sorts, rounds or cuts anything in them.
func TestPayloadsComeOutAsTheyWentIn(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		fit := func(text string) string {
			return `{"x":"` + text + strings.Repeat("x", 65_535-len(`{"x":""}`)-len(text)) + `"}`
		}
		payloads := map[string]string{
			"numbers":  `{"z":1.0,"a":1e3,"id":9007199254740993,"max":9223372036854775807,"huge":1E400,"minus":-0,"money":100.00}`,
			"signs":    `{"t":"🎁 👩‍👩‍👧‍👦 🇮🇩 مرحبا ` + "\u2028" + ` \u0000 \ud83d \ud83d\ude00 \\ \/ ' \" %s ? :a"}`,
			"spaces":   " \n{ \"b\" : 1 ,\t\"a\":[ ] }\r\n ",
			"deep":     `{"a":` + strings.Repeat("[", 101) + strings.Repeat("]", 101) + `}`,
			"largest":  fit(""),
			"largest€": fit(strings.Repeat("€", 21_000)),
		}
		for id, p := range payloads {
			e := someEvent(hex.EncodeToString([]byte(id)))
			e.Payload = []byte(p)
			b.append(t, e)
		}
		m := newMemory()
		b.startRelay(t, quick(), m)
		b.allPublished(t, soon)
		for id, p := range payloads {
			require.Equal(t, p, string(m.record(hex.EncodeToString([]byte(id))).Payload), id)
		}

		// A column of the app's that cannot hold a sign says so, and does not write another.
		b.Exec(t, "DELETE FROM outbox_event")
		b.Exec(t, "ALTER TABLE outbox_event MODIFY payload_json TEXT CHARACTER SET utf8mb3 NOT NULL")
		e := someEvent("gift")
		e.Payload = []byte(`{"t":"🎁"}`)
		err := db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
			_, err := outbox.Append(t.Context(), tx, e)
			return err
		})
		require.ErrorContains(t, err, "insert 1 rows")
		require.NotContains(t, err.Error(), "🎁")
		require.Zero(t, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE event_id = 'gift'"))
	})
}
