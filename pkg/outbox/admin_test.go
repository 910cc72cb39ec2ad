package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

var act = outbox.Act{Who: "ops", Reason: "broker was cleared"}

// failAll makes every row FAILED, as a relay would have.
func (b *box) failAll(t testing.TB) {
	b.Exec(t, "UPDATE outbox_event SET status = 'FAILED', retry_count = 10, last_error = 'refused: x', available_at = NOW(3)")
}

func TestRequeueSendsTheSameEventAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		store := outbox.NewStore(b.pool)
		b.append(t, events("e", 700)...)
		b.failAll(t)
		b.append(t, someEvent("pending"))
		all := outbox.Filter{Status: outbox.StatusFailed, All: true}

		count, err := store.Count(t.Context(), all)
		require.NoError(t, err)
		require.Equal(t, outbox.Count{N: 700}, count)
		rows, err := store.List(t.Context(), all, 10)
		require.NoError(t, err)
		require.Len(t, rows, 10)
		require.Equal(t, "refused: x", rows[0].LastError)
		require.WithinDuration(t, time.Now(), rows[0].CreatedAt, time.Minute)

		var progress int64
		withProgress := act
		withProgress.Progress = func(n int64) { progress += n }
		n, err := store.Requeue(t.Context(), all, withProgress)
		require.NoError(t, err)
		require.EqualValues(t, 700, n)
		require.EqualValues(t, 700, progress)
		require.EqualValues(t, 700, b.QueryInt(t, `SELECT COUNT(*) FROM outbox_event WHERE status = 'PENDING'
			AND retry_count = 0 AND published_at IS NULL AND available_at IS NULL AND requeued_at IS NOT NULL`))
		require.EqualValues(t, 1, b.QueryInt(t, `SELECT COUNT(*) FROM mq_audit
			WHERE who = 'ops' AND action = 'requeue' AND affected = 700 AND reason = 'broker was cleared'`))

		m := newMemory()
		b.startRelay(t, quick(), m)
		b.allPublished(t, soon)
		_, sent := m.count("e:000699")
		require.Equal(t, 1, sent, "under its old event_id")

		n, err = store.Requeue(t.Context(), outbox.Filter{Status: outbox.StatusPublished, EventID: "e:000007"}, act)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		testenv.Eventually(t, soon, "it is sent again", func() bool { _, sent := m.count("e:000007"); return sent == 2 })
	})
}

func TestRequeueSelects(t *testing.T) {
	b := newBox(t, testenv.MySQL(t), "+07:00")
	store := outbox.NewStore(b.pool)
	evs := events("e", 6)
	evs[1].Type = event.CouponExpire
	evs[2].AggregateType, evs[2].AggregateID = "user_coupon", "7"
	b.append(t, evs...)
	b.failAll(t)
	b.Exec(t, "UPDATE outbox_event SET created_at = created_at - INTERVAL 2 DAY WHERE event_id = 'e:000003'")
	var id string
	require.NoError(t, b.pool.QueryRow("SELECT id FROM outbox_event WHERE event_id = 'e:000004'").Scan(&id))
	for name, f := range map[string]outbox.Filter{
		"e:000001": {Type: event.CouponExpire},
		"e:000002": {AggregateType: "user_coupon", AggregateID: "7"},
		"e:000003": {From: time.Now().Add(-72 * time.Hour), To: time.Now().Add(-24 * time.Hour)},
		"e:000004": {ID: id},
		"e:000005": {EventID: "e:000005"},
	} {
		f.Status = outbox.StatusFailed
		n, err := store.Requeue(t.Context(), f, act)
		require.NoError(t, err, name)
		require.EqualValues(t, 1, n, name)
		require.EqualValues(t, 1, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE event_id = ? AND status = 'PENDING'", name), name)
	}
	for _, f := range []outbox.Filter{
		{Status: outbox.StatusFailed}, {All: true}, {Status: outbox.StatusPending, All: true}, {Status: "'; --", All: true},
	} {
		_, err := store.Requeue(t.Context(), f, act)
		require.ErrorIs(t, err, outbox.ErrNoFilter)
	}
	_, err := store.Requeue(t.Context(), outbox.Filter{Status: outbox.StatusFailed, All: true}, outbox.Act{Who: "ops"})
	require.ErrorIs(t, err, outbox.ErrNoReason)
	require.EqualValues(t, 1, b.countStatus(t, "FAILED"))
}

// Two people requeue the same rows while a relay sends them: each row goes out once.
func TestConcurrentRequeuesRequeueEachRowOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		store := outbox.NewStore(b.pool)
		b.fill(t, "e", 2000)
		b.failAll(t)
		m := newMemory()
		b.startRelay(t, quick(), m)
		var wg sync.WaitGroup
		var total atomic.Int64
		for range 3 {
			wg.Go(func() {
				n, err := store.Requeue(t.Context(), outbox.Filter{Status: outbox.StatusFailed, All: true}, act)
				if err != nil {
					t.Errorf("requeue: %v", err)
				}
				total.Add(n)
			})
		}
		wg.Wait()
		require.EqualValues(t, 2000, total.Load())
		b.allPublished(t, soon)
		require.Len(t, m.sent, 2000)
		require.EqualValues(t, 2000, b.QueryInt(t, "SELECT SUM(affected) FROM mq_audit"))
	})
}

func TestRequeueKeepsToItsRateAndCanBeInterrupted(t *testing.T) {
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	store := outbox.NewStore(b.pool)
	b.fill(t, "e", 600)
	b.failAll(t)
	slow := act
	slow.Rate = 200
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	n, err := store.Requeue(ctx, outbox.Filter{Status: outbox.StatusFailed, All: true}, slow)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Positive(t, n)
	require.LessOrEqual(t, n, int64(240), "a second at 200 a second, and the batch in hand")
	require.Equal(t, n, b.countStatus(t, "PENDING"))
	require.Equal(t, n, b.QueryInt(t, "SELECT affected FROM mq_audit"), "the audit tells what really happened")
}

func TestDiscardArchivesWithWhoAndWhy(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		store := outbox.NewStore(b.pool)
		b.append(t, events("e", 450)...)
		b.failAll(t)
		b.append(t, someEvent("pending"))
		_, err := store.Discard(t.Context(), outbox.Filter{Status: outbox.StatusPending, All: true}, act)
		require.ErrorIs(t, err, outbox.ErrNoFilter, "only FAILED rows may be discarded")
		n, err := store.Discard(t.Context(), outbox.Filter{Status: outbox.StatusFailed, Type: event.PushDispatch}, act)
		require.NoError(t, err)
		require.EqualValues(t, 450, n)
		require.EqualValues(t, 1, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"))
		require.EqualValues(t, 450, b.QueryInt(t, `SELECT COUNT(*) FROM mq_outbox_archive
			WHERE archived_by = 'ops' AND reason = 'broker was cleared' AND payload_json = '{"pushId":"1"}' AND status = 'FAILED'`))
		require.EqualValues(t, 450, b.QueryInt(t, "SELECT affected FROM mq_audit WHERE action = 'discard'"))
	})
}

func TestDeadLetters(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		ctx := t.Context()
		store := outbox.NewDeadLetterStore(b.pool)
		dl := event.DeadLetter{
			Group: "GID_id_push_dispatch", Topic: "beex-id-events", Tag: "PUSH_DISPATCH", EventID: "push:1",
			Body: []byte("{\"pushId\":\"1\"}\x00\xff"), Headers: map[string]string{event.HeaderRequestID: "r"},
			Attempts: 5, Reason: "attempts used up", LastError: "timeout",
		}
		require.NoError(t, store.StoreDeadLetter(ctx, dl))
		require.NoError(t, store.StoreDeadLetter(ctx, dl), "the ack may be lost and the letter come again")
		other := dl
		other.Group = "GID_id_other"
		require.NoError(t, store.StoreDeadLetter(ctx, other))
		keyless := event.DeadLetter{Group: dl.Group, Topic: dl.Topic, Tag: "X", Body: nil}
		require.NoError(t, store.StoreDeadLetter(ctx, keyless))

		list, err := store.List(ctx, outbox.DeadLetterFilter{Status: outbox.DeadOpen, Group: dl.Group, Tag: dl.Tag})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, 2, list[0].Deaths)
		id := list[0].ID

		errAway := errors.New("away")
		err = store.Replay(ctx, id, act, func(context.Context, event.DeadLetter) outbox.Outcome {
			return outbox.Outcome{Class: outbox.Unavailable, Err: errAway}
		})
		require.ErrorIs(t, err, outbox.ErrNotConfirmed)
		require.ErrorIs(t, err, errAway)

		var sent []event.DeadLetter
		var mu sync.Mutex
		confirm := func(_ context.Context, dl event.DeadLetter) outbox.Outcome {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, dl)
			return outbox.Outcome{Class: outbox.Confirmed}
		}
		var wg sync.WaitGroup
		var done atomic.Int64
		for range 4 {
			wg.Go(func() {
				if err := store.Replay(ctx, id, act, confirm); err == nil {
					done.Add(1)
				} else if !errors.Is(err, outbox.ErrNotFound) {
					t.Errorf("replay: %v", err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, done.Load())
		require.Len(t, sent, 1, "replays at a time send it once")
		require.Equal(t, dl.Body, sent[0].Body)
		require.Equal(t, dl.Headers, sent[0].Headers)
		require.Equal(t, "push:1", sent[0].EventID)

		require.NoError(t, store.StoreDeadLetter(ctx, dl), "it dies again after the replay")
		row, err := store.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, outbox.DeadOpen, row.Status)
		require.Equal(t, 3, row.Deaths)
		require.NoError(t, store.Discard(ctx, id, act))
		require.ErrorIs(t, store.Discard(ctx, id, act), outbox.ErrNotFound)
		_, err = store.Get(ctx, 999)
		require.ErrorIs(t, err, outbox.ErrNotFound)
		require.EqualValues(t, 2, b.QueryInt(t, "SELECT COUNT(*) FROM mq_audit WHERE target = 'mq_dead_letter'"))
	})
}

func TestStatusTellsWhatIsThere(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		store := outbox.NewStore(b.pool)
		st, err := store.Status(t.Context())
		require.NoError(t, err)
		require.Zero(t, st.Pending.N)
		require.False(t, st.Zone.Known)

		b.append(t, events("e", 7)...)
		b.Exec(t, "UPDATE outbox_event SET status = 'FAILED' WHERE event_id = 'e:000000'")
		b.Exec(t, "UPDATE outbox_event SET status = 'PUBLISHED', published_at = NOW(3) + INTERVAL 8 HOUR WHERE event_id = 'e:000001'")
		b.Exec(t, "UPDATE outbox_event SET available_at = NOW(3) + INTERVAL 1 DAY WHERE event_id = 'e:000002'")
		b.Exec(t, "UPDATE outbox_event SET created_at = created_at - INTERVAL 10 MINUTE WHERE event_id = 'e:000003'")
		require.NoError(t, db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
			_, err := outbox.AppendAfter(t.Context(), tx, time.Hour, someEvent("d"))
			return err
		}))
		st, err = store.Status(t.Context())
		require.NoError(t, err)
		require.Equal(t, outbox.Count{N: 5}, st.Pending)
		require.Equal(t, outbox.Count{N: 1}, st.Failed)
		require.Equal(t, outbox.Count{N: 1}, st.BackedOff)
		require.Equal(t, outbox.Count{N: 1}, st.Delayed)
		require.Equal(t, outbox.Count{N: 1}, st.PublishedLastMinute)
		require.InDelta(t, 600, st.OldestPending.Seconds(), 60)
		require.InDelta(t, 3600, st.NextDelayed.Seconds(), 60)
		require.NotNil(t, st.OldestPublished)
		require.True(t, st.Zone.Known)
		require.Zero(t, st.Zone.Suspect)
	})
}

func TestAZoneMismatchIsSuspected(t *testing.T) {
	for name, c := range map[string]struct {
		shift   string
		suspect time.Duration
	}{
		"ahead": {"+ INTERVAL 7 HOUR", 7 * time.Hour}, "half": {"+ INTERVAL 330 MINUTE", 330 * time.Minute},
		"behind": {"- INTERVAL 7 HOUR", -7 * time.Hour}, "idle": {"- INTERVAL 200 MINUTE", 0}, "skew": {"+ INTERVAL 1 MINUTE", 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, testenv.MariaDB(t), "+00:00")
			b.append(t, someEvent("e"))
			b.Exec(t, "UPDATE outbox_event SET created_at = created_at "+c.shift)
			z, err := outbox.NewStore(b.pool).CheckStart(t.Context())
			require.NoError(t, err)
			require.Equal(t, c.suspect, z.Suspect)
			require.Equal(t, c.suspect != 0, z.Hint != "")
		})
	}
}

func TestStartNamesAMissingColumn(t *testing.T) {
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	b.Exec(t, "ALTER TABLE outbox_event DROP COLUMN available_at")
	_, err := outbox.NewStore(b.pool).CheckStart(t.Context())
	require.ErrorContains(t, err, "relay migrate")
	require.ErrorContains(t, err, "available_at")
	b.Exec(t, "DROP TABLE mq_lease")
	_, err = outbox.NewStore(b.pool).CheckStart(t.Context())
	require.ErrorContains(t, err, "mq_lease")
	require.ErrorContains(t, err, "available_at", "all of them at once")
}

// A server without SKIP LOCKED takes every statement but the claim. The proxy makes the
// server answer as one that does not know it.
func TestStartNamesAServerThatCannotSkipLockedRows(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		proxy := newStepProxy(t, b.Server.Addr())
		through := b.through(t, proxy.addr)
		_, err := outbox.NewStore(through.pool).CheckStart(t.Context())
		require.NoError(t, err)
		proxy.replace("SKIP LOCKED", "SKIP LOCKEX")
		testenv.Eventually(t, soon, "start-up says it", func() bool {
			_, err = outbox.NewStore(through.pool).CheckStart(t.Context())
			return err != nil && strings.Contains(err.Error(), "MariaDB 10.6 or MySQL 8.0.1 is the oldest that does")
		})
		require.ErrorIs(t, err, outbox.ErrServerTooOld)
		require.NotContains(t, err.Error(), "relay migrate", "that would not help")
	})
}

// A writer in another zone is noticed while the relay runs, too.
func TestARunningRelaySuspectsALateZone(t *testing.T) {
	t.Parallel()
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	reg := prometheus.NewRegistry()
	m := newMemory()
	r, _ := b.startRelayOn(t, reg, quick(), m)
	testenv.Eventually(t, soon, "a clean sweep", func() bool { return !r.Snapshot().LastPass.IsZero() })
	b.append(t, someEvent("first"))
	b.allPublished(t, soon)
	time.Sleep(100 * time.Millisecond)
	b.Exec(t, `INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at)
		VALUES ('obe1', 'late', 'T', 'a', '1', '{}', NOW(3) - INTERVAL 7 HOUR)`)
	b.allPublished(t, soon)
	require.Equal(t, -7*time.Hour.Seconds(), gauge(t, reg, "seahub_outbox_zone_skew_seconds"))
}

// The statements of the hot path are served by the index, in its order, on both servers.
func TestTheIndexServesTheClaim(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		b.fill(t, "e", 4000)
		b.Exec(t, "UPDATE outbox_event SET created_at = NOW(3) - INTERVAL 1 DAY + INTERVAL (10000 * CAST(SUBSTR(event_id, 3) AS UNSIGNED)) MICROSECOND")
		b.Exec(t, "UPDATE outbox_event SET status = 'PUBLISHED', published_at = NOW(3) WHERE event_id < 'e:002000'")
		b.fill(t, "tail", 20)
		b.Exec(t, "ANALYZE TABLE outbox_event")
		var at time.Time
		require.NoError(t, b.pool.QueryRow("SELECT created_at FROM outbox_event WHERE event_id = 'e:002500'").Scan(&at))
		for name, query := range outbox.ClaimSQL(at) {
			plan := b.Explain(t, b.pool, query[0].(string), query[1:]...)[0]
			require.Equal(t, "idx_status_created", plan["key"], "%s: %v", name, plan)
			require.NotContains(t, plan["Extra"], "filesort", "%s: %v", name, plan)
			if !strings.Contains(name, "sweep") {
				require.Equal(t, "range", plan["type"], "%s: %v", name, plan)
			}
		}
	})
}
