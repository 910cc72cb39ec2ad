package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestAppendCommitsAndRollsBackWithTheBusinessTransaction(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		b.Exec(t, "CREATE TABLE orders (id INT PRIMARY KEY)")
		errBusiness := errors.New("business failure")
		err := db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
			require.NoError(t, tx.Exec("INSERT INTO orders VALUES (1)").Error)
			_, err := outbox.Append(t.Context(), tx, someEvent("push:1"))
			require.NoError(t, err)
			return errBusiness
		})
		require.ErrorIs(t, err, errBusiness)
		require.Zero(t, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"))

		ctx := event.WithTrace(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "req-1")
		require.NoError(t, db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
			require.NoError(t, tx.Exec("INSERT INTO orders VALUES (1)").Error)
			got, err := outbox.Append(ctx, tx, someEvent("push:1"))
			require.Equal(t, outbox.Appended{New: []string{"push:1"}}, got)
			return err
		}))
		var id, status, traceparent, request, payload string
		var retries, age int64
		require.NoError(t, b.pool.QueryRow(`SELECT id, status, retry_count, traceparent, request_id, payload_json,
			TIMESTAMPDIFF(SECOND, created_at, NOW(3)) FROM outbox_event`).
			Scan(&id, &status, &retries, &traceparent, &request, &payload, &age))
		require.Regexp(t, "^obe[0-9a-z]{20}$", id)
		require.Equal(t, "PENDING", status)
		require.Zero(t, retries)
		require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", traceparent)
		require.Equal(t, "req-1", request)
		require.Equal(t, `{"pushId":"1"}`, payload)
		require.Less(t, age, int64(60), "created_at is NOW in the session's zone")
		require.GreaterOrEqual(t, age, int64(0))
	})
}

func TestAppendRefusesAHandleThatWouldNotWriteInTheTransaction(t *testing.T) {
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	ctx := t.Context()
	_, err := outbox.Append(ctx, nil, someEvent("e"))
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	_, err = outbox.Append(ctx, b.gorm, someEvent("e"))
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	_, err = outbox.AppendAfter(ctx, b.gorm, time.Second, someEvent("e"))
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	_, err = outbox.AppendAt(ctx, b.gorm, time.Now(), someEvent("e"))
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	_, err = outbox.AppendSQL(ctx, nil, someEvent("e"))
	require.ErrorIs(t, err, outbox.ErrNoTransaction)

	tx := b.gorm.Begin()
	defer tx.Rollback()
	_, err = outbox.Append(ctx, tx.Session(&gorm.Session{DryRun: true}), someEvent("e"))
	require.ErrorIs(t, err, outbox.ErrDryRun)
	broken := tx.Exec("INSERT INTO no_such_table VALUES (1)")
	require.Error(t, broken.Error)
	_, err = outbox.Append(ctx, broken, someEvent("e"))
	require.ErrorIs(t, err, outbox.ErrHandle)
	require.ErrorIs(t, err, broken.Error)

	committed := b.gorm.Begin()
	require.NoError(t, committed.Commit().Error)
	_, err = outbox.Append(ctx, committed, someEvent("e"))
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	done, err := b.pool.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, done.Rollback())
	_, err = outbox.AppendSQL(ctx, done, someEvent("e"))
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	require.Zero(t, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"))
}

func TestAppendIgnoresWhatClingsToTheHandle(t *testing.T) {
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	require.NoError(t, db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
		for i, handle := range []*gorm.DB{
			tx.Where("1 = 0"), tx.Table("elsewhere"), tx.Model(&struct{ ID int }{}).Limit(0),
			tx.Session(&gorm.Session{PrepareStmt: true}),
		} {
			got, err := outbox.Append(t.Context(), handle, someEvent(fmt.Sprint("e", i)))
			require.NoError(t, err)
			require.Len(t, got.New, 1)
		}
		return nil
	}))
	require.EqualValues(t, 4, b.countStatus(t, "PENDING"))
}

func TestAppendValidatesBeforeItWrites(t *testing.T) {
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	tooLarge := someEvent("large")
	tooLarge.Payload = json.RawMessage(`"` + strings.Repeat("€", 22_000) + `"`)
	spaced := someEvent("push 1")
	err := db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
		_, err := outbox.Append(t.Context(), tx, someEvent("good"), tooLarge, spaced)
		require.ErrorIs(t, err, event.ErrInvalid)
		require.ErrorContains(t, err, `"large"`)
		require.ErrorContains(t, err, `"push 1"`, "all invalid ones are named")
		require.NotContains(t, err.Error(), "€€", "no payload in an error")
		return nil // commit all the same: nothing may have been written
	})
	require.NoError(t, err)
	require.Zero(t, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"))
}

func TestAppendTellsNewFromExistingAndLosesNone(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		all := events("e", 450) // three INSERTs
		existing := map[string]bool{}
		for _, i := range []int{0, 7, 199, 200, 201, 449} {
			existing[all[i].EventID] = true
			b.append(t, all[i])
		}
		got := b.append(t, append(all, all[3])...) // one of them twice in the call
		require.Len(t, got.New, 444)
		require.Len(t, got.Existing, 7)
		for _, id := range got.New {
			require.False(t, existing[id], id)
		}
		require.Equal(t, all[3].EventID, got.Existing[6])
		require.EqualValues(t, 450, b.QueryInt(t, "SELECT COUNT(DISTINCT event_id) FROM outbox_event"))

		got = b.append(t, all...)
		require.Empty(t, got.New)
		require.Len(t, got.Existing, 450)
	})
}

func TestAppendSQLSeesDuplicatesThroughAnOldSnapshot(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		tx, err := b.pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		var n int
		require.NoError(t, tx.QueryRow("SELECT COUNT(*) FROM outbox_event").Scan(&n)) // the snapshot
		b.append(t, someEvent("e1"))
		got, err := outbox.AppendSQL(t.Context(), tx, someEvent("e1"), someEvent("e2"))
		require.NoError(t, err)
		require.Equal(t, outbox.Appended{New: []string{"e2"}, Existing: []string{"e1"}}, got)
		require.NoError(t, tx.Commit())
		require.EqualValues(t, 2, b.countStatus(t, "PENDING"))
	})
}

func TestAppendNamesIDsThatTheAppsCollationTakesForEqual(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		b.append(t, someEvent("push:x"))
		require.Equal(t, []string{"push:X"}, b.append(t, someEvent("push:X")).New, "in a table of ours they differ")
		b.Exec(t, "DELETE FROM outbox_event")
		b.Exec(t, "ALTER TABLE outbox_event MODIFY event_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL")
		b.append(t, someEvent("push:A"))
		err := db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
			_, err := outbox.Append(t.Context(), tx, someEvent("push:a"))
			return err
		})
		require.ErrorIs(t, err, outbox.ErrIDClash, "an event that is not stored is never called existing")
	})
}

// A repeated append must not wait for the broker: the relay holds the row of the first
// one while it publishes.
func TestADuplicateDoesNotWaitForARowThatTheRelayHolds(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		b.append(t, someEvent("e1"))
		held, err := b.pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = held.Rollback() }()
		var id string
		require.NoError(t, held.QueryRow("SELECT id FROM outbox_event WHERE status = 'PENDING' ORDER BY created_at, id LIMIT 1 FOR UPDATE SKIP LOCKED").Scan(&id))
		_, err = held.Exec("UPDATE outbox_event SET status = 'PUBLISHED', published_at = NOW(3) WHERE id = ?", id)
		require.NoError(t, err)

		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		tx, err := b.pool.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		got, err := outbox.AppendSQL(ctx, tx, someEvent("e1"), someEvent("e2"))
		require.NoError(t, err)
		require.Equal(t, outbox.Appended{New: []string{"e2"}, Existing: []string{"e1"}}, got)
		require.NoError(t, tx.Commit())
	})
}

// Two transactions append the same events in opposite orders again and again: whoever
// is told "deadlock" runs again as a whole, and in the end each event is there once.
func TestConcurrentAppendsOfTheSameEvents(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		fresh := map[string]int{}
		for range 8 {
			wg.Go(func() {
				for i := range 25 {
					var got outbox.Appended
					err := db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
						var err error
						got, err = outbox.Append(t.Context(), tx, someEvent(fmt.Sprint("a", i)), someEvent(fmt.Sprint("b", i)))
						return err
					})
					if err != nil {
						t.Errorf("append: %v", err)
						return
					}
					mu.Lock()
					for _, id := range got.New {
						fresh[id]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Len(t, fresh, 50)
		for id, n := range fresh {
			require.Equal(t, 1, n, "%s was new to one caller", id)
		}
		require.EqualValues(t, 50, b.countStatus(t, "PENDING"))
	})
}

func TestAppendOnWholeSecondColumns(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		b.Exec(t, "ALTER TABLE outbox_event MODIFY created_at DATETIME NOT NULL, MODIFY published_at DATETIME NULL")
		b.append(t, events("e", 10)...)
		m := newMemory()
		b.startRelay(t, quick(), m)
		b.allPublished(t, soon)
	})
}

func TestDelayedEventsBecomeDueByTheDatabasesClock(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		m := newMemory()
		b.startRelay(t, quick(), m)
		require.NoError(t, db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
			if _, err := outbox.AppendAfter(t.Context(), tx, time.Hour, someEvent("later")); err != nil {
				return err
			}
			if _, err := outbox.AppendAt(t.Context(), tx, time.Now().Add(2*time.Hour), someEvent("later:at")); err != nil {
				return err
			}
			if _, err := outbox.AppendAt(t.Context(), tx, time.Now().Add(-time.Hour), someEvent("past")); err != nil {
				return err
			}
			got, err := outbox.AppendAfter(t.Context(), tx, time.Minute, someEvent("later"))
			require.Equal(t, []string{"later"}, got.Existing)
			return err
		}))
		testenv.Eventually(t, soon, "the past one is sent", func() bool { _, n := m.count("past"); return n == 1 })
		require.EqualValues(t, 2, b.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event"))
		require.EqualValues(t, 1, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"), "what is not due is not in the hot table")
		due := b.QueryInt(t, "SELECT TIMESTAMPDIFF(MINUTE, UTC_TIMESTAMP(3), due_at) FROM mq_delayed_event WHERE event_id = 'later:at'")
		zone := int64(0)
		if b.cfg.TimeZone == "+07:00" {
			zone = 7 * 60
		}
		require.InDelta(t, zone+120, due, 2, "an instant is stored in the session's zone")

		b.append(t, someEvent("later")) // it is appended in the meantime: the delayed one is dropped when due
		_, err := b.pool.Exec("UPDATE mq_delayed_event SET due_at = NOW(3)")
		require.NoError(t, err)
		testenv.Eventually(t, soon, "no delayed event is left", func() bool {
			return b.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event") == 0
		})
		b.allPublished(t, soon)
		_, n := m.count("later")
		require.Equal(t, 1, n)
		_, n = m.count("later:at")
		require.Equal(t, 1, n)
	})
}

func TestDelaysOutOfRangeAreRefused(t *testing.T) {
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	err := db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
		_, err := outbox.AppendAfter(t.Context(), tx, outbox.MaxDelay+time.Second, someEvent("e"))
		require.ErrorIs(t, err, outbox.ErrDue)
		_, err = outbox.AppendAt(t.Context(), tx, time.Now().Add(outbox.MaxDelay+time.Hour), someEvent("e"))
		require.ErrorIs(t, err, outbox.ErrDue)
		_, err = outbox.AppendAt(t.Context(), tx, time.Time{}, someEvent("e"))
		return err
	})
	require.ErrorIs(t, err, outbox.ErrDue)
}

// One delayed event that outbox_event does not take keeps nobody waiting.
func TestADelayedEventThatCannotBeMovedIsPutAside(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		b.Exec(t, "ALTER TABLE outbox_event MODIFY aggregate_id VARCHAR(3) NOT NULL") // the app's own idea
		bad := someEvent("bad")
		bad.AggregateID = "12345"
		require.NoError(t, db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
			_, err := outbox.AppendAfter(t.Context(), tx, 0, append(events("good", 300), bad)...)
			return err
		}))
		m := newMemory()
		b.startRelay(t, quick(), m)
		testenv.Eventually(t, soon, "the good ones are out", func() bool { return b.countStatus(t, "PUBLISHED") == 300 })
		testenv.Eventually(t, soon, "the bad one is kept for a person", func() bool {
			return b.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event WHERE event_id = 'bad' AND due_at > created_at + INTERVAL 30 MINUTE") == 1
		})
	})
}
