package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestRelayPublishesWhatWasAppendedAndMarksIt(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		m := newMemory()
		ctx := event.WithTrace(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "req-1")
		require.NoError(t, db.InTx(ctx, b.gorm, func(tx *gorm.DB) error {
			_, err := outbox.Append(ctx, tx, someEvent("push:1"))
			return err
		}))
		r, stop := b.startRelay(t, quick(), m)
		b.allPublished(t, soon)
		rec := m.record("push:1")
		require.Equal(t, `{"pushId":"1"}`, string(rec.Payload))
		require.Equal(t, "req-1", rec.RequestID)
		require.NotEmpty(t, rec.Traceparent)
		require.WithinDuration(t, time.Now(), rec.CreatedAt, time.Minute, "created_at is an instant, whatever the zone")
		require.Less(t, rec.Age, time.Minute)
		require.EqualValues(t, 1, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE published_at IS NOT NULL"))
		ok, reason := r.Ready()
		require.True(t, ok, reason)
		require.Equal(t, 0, r.Snapshot().Slot)

		b.append(t, events("tail", 1200)...)
		b.allPublished(t, soon)
		stop()
		require.Equal(t, -1, r.Snapshot().Slot)
		for i := range 1200 {
			_, n := m.count(fmt.Sprintf("tail:%06d", i))
			require.Equal(t, 1, n)
		}
	})
}

// What another program writes: the seed's columns, whole seconds, its own collation.
func TestRelayTakesRowsThatTheAppInsertsByItself(t *testing.T) {
	t.Parallel()
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		for _, zone := range []string{"+00:00", "+07:00"} {
			t.Run(zone, func(t *testing.T) {
				s := testenv.NewSchema(t, s.Server)
				s.Exec(t, `CREATE TABLE outbox_event (
					id VARCHAR(64) PRIMARY KEY, event_id VARCHAR(64) NOT NULL, event_type VARCHAR(64) NOT NULL,
					aggregate_type VARCHAR(32) NOT NULL, aggregate_id VARCHAR(64) NOT NULL, payload_json TEXT NOT NULL,
					status VARCHAR(16) NOT NULL DEFAULT 'PENDING', retry_count INT NOT NULL DEFAULT 0,
					created_at DATETIME NOT NULL, published_at DATETIME NULL,
					UNIQUE KEY uk_event_id (event_id), KEY idx_status_created (status, created_at))`)
				seed := func(id, created string) {
					// The app's session is in the app's zone.
					tx, err := s.DB.Conn(t.Context())
					require.NoError(t, err)
					defer func() { _ = tx.Close() }()
					_, err = tx.ExecContext(t.Context(), "SET time_zone = '"+zone+"'")
					require.NoError(t, err)
					_, err = tx.ExecContext(t.Context(), `INSERT INTO outbox_event
						(id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at)
						VALUES (?, ?, 'PUSH_DISPATCH', 'push_task', '1', '{"pushId":"1"}', `+created+`)`, "obe"+id, id)
					require.NoError(t, err)
					_, err = tx.ExecContext(t.Context(), "SET time_zone = '+00:00'")
					require.NoError(t, err)
				}
				seed("before", "NOW() - INTERVAL 1 DAY")
				b := newBox(t, s, zone)
				m := newMemory()
				b.startRelay(t, quick(), m)
				b.allPublished(t, soon)
				seed("now", "NOW()")
				seed("late", "NOW() - INTERVAL 1 HOUR")   // below the tail
				seed("future", "NOW() + INTERVAL 7 HOUR") // above it
				seed("far", "'2099-01-01 00:00:00'")
				b.allPublished(t, soon)
				require.WithinDuration(t, time.Now(), m.record("now").CreatedAt, time.Minute)
			})
		}
	})
}

// Business transactions never wait for the relay, wherever in the queue it holds rows.
func TestInsertsDoNotWaitForAClaim(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		for _, waiting := range []int{0, 3, 700} {
			t.Run(fmt.Sprint(waiting), func(t *testing.T) {
				b.Exec(t, "DELETE FROM outbox_event")
				b.fill(t, "w", waiting)
				gate := make(chan struct{})
				holding := make(chan struct{}, 10)
				cfg := quick()
				cfg.PassTimeout, cfg.PublishTimeout, cfg.LeaseTTL = 20*time.Second, 10*time.Second, 30*time.Second
				_, stop := b.startRelay(t, cfg, blocking{gate, holding})
				if waiting > 0 {
					<-holding
				}
				for i := range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					tx, err := b.pool.BeginTx(ctx, nil)
					require.NoError(t, err)
					_, err = tx.ExecContext(ctx, "SET SESSION innodb_lock_wait_timeout = 1")
					require.NoError(t, err)
					_, err = outbox.AppendSQL(ctx, tx, someEvent(fmt.Sprintf("x%d:%d", waiting, i)), someEvent("w:000000"))
					require.NoError(t, err, "an INSERT must not wait for the relay")
					require.NoError(t, tx.Commit())
					cancel()
				}
				close(gate)
				b.allPublished(t, soon)
				stop()
			})
		}
	})
}

// blocking is a broker that answers when the gate opens.
type blocking struct {
	gate    chan struct{}
	holding chan struct{}
}

func (p blocking) PublishBatch(ctx context.Context, recs []outbox.Record) []outbox.Outcome {
	select {
	case p.holding <- struct{}{}:
	default:
	}
	select {
	case <-p.gate:
	case <-ctx.Done():
		return make([]outbox.Outcome, len(recs))
	}
	outs := make([]outbox.Outcome, len(recs))
	for i := range outs {
		outs[i].Class = outbox.Confirmed
	}
	return outs
}

func TestAnOutageOfAnyClassTouchesNoRow(t *testing.T) {
	for _, class := range []outbox.Class{outbox.Unavailable, outbox.Throttled, outbox.Failed} {
		t.Run(class.String(), func(t *testing.T) {
			b := newBox(t, testenv.MariaDB(t), "+00:00")
			m := newMemory()
			m.answers(func(outbox.Record) outbox.Outcome { return outbox.Outcome{Class: class, Err: errors.New("away")} })
			b.append(t, events("e", 40)...)
			reg := prometheus.NewRegistry()
			r, _ := b.startRelayOn(t, reg, quick(), m)
			testenv.Eventually(t, soon, "more passes than an event has attempts", func() bool {
				return m.mostCalls() > 2*quick().MaxAttempts
			})
			require.EqualValues(t, 40, b.QueryInt(t, `SELECT COUNT(*) FROM outbox_event
				WHERE status = 'PENDING' AND retry_count = 0 AND available_at IS NULL AND last_error IS NULL`))
			require.Equal(t, class.String(), r.Snapshot().Failing)
			require.Equal(t, 1.0, gauge(t, reg, "seahub_outbox_publish_failing", class.String()))
			_, reason := r.Ready()
			require.Contains(t, reason, class.String())
			m.answers(nil)
			b.allPublished(t, soon)
			testenv.Eventually(t, soon, "the alarm ends", func() bool { return r.Snapshot().Failing == "" })
			require.Zero(t, gauge(t, reg, "seahub_outbox_publish_failing", class.String()))
		})
	}
}

func TestRefusedAndPoisonousEventsBlockNobody(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		m := newMemory()
		secret := `{"pushId":"secret"}`
		m.answers(func(r outbox.Record) outbox.Outcome {
			switch {
			case r.EventID == "refused":
				return outbox.Outcome{Class: outbox.Refused, Err: errors.New("too large\nby far" + strings.Repeat(" é", 400))}
			case strings.HasPrefix(r.EventID, "poison"):
				return outbox.Outcome{Class: outbox.Failed, Err: errors.New("not this one")}
			}
			return outbox.Outcome{Class: outbox.Confirmed}
		})
		evs := append([]outboxEvent{someEvent("refused"), someEvent("poison:1"), someEvent("poison:2")}, events("good", 600)...)
		evs[0].Payload = []byte(secret)
		b.append(t, evs...)
		b.startRelay(t, quick(), m)
		testenv.Eventually(t, soon, "the good ones are out", func() bool { return b.countStatus(t, "PUBLISHED") >= 600 })
		// Others keep passing, so the poisonous ones use up their attempts and no more.
		for i := 0; b.countStatus(t, "PENDING") > 0 && i < 200; i++ {
			b.append(t, someEvent(fmt.Sprint("beat:", i)))
			time.Sleep(50 * time.Millisecond)
		}
		require.EqualValues(t, 3, b.countStatus(t, "FAILED"))
		for id, want := range map[string]int{"refused": 1, "poison:1": 3, "poison:2": 3} {
			calls, _ := m.count(id)
			require.Equal(t, want, calls, id)
			require.EqualValues(t, want, b.QueryInt(t, "SELECT retry_count FROM outbox_event WHERE event_id = ?", id), id)
		}
		var lastError string
		require.NoError(t, b.pool.QueryRow("SELECT last_error FROM outbox_event WHERE event_id = 'refused'").Scan(&lastError))
		require.True(t, strings.HasPrefix(lastError, "refused: too large by far"), lastError)
		require.Len(t, []rune(lastError), 512)
		require.NotContains(t, lastError, "secret")
	})
}

func TestAPublisherThatPanicsOrMiscountsConfirmsNothing(t *testing.T) {
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	b.append(t, someEvent("e"))
	p := &clumsy{memory: newMemory()}
	b.startRelay(t, quick(), p)
	b.allPublished(t, soon)
	require.EqualValues(t, 0, b.QueryInt(t, "SELECT MAX(retry_count) FROM outbox_event"))
}

type clumsy struct {
	*memory
	turn int
}

func (c *clumsy) PublishBatch(ctx context.Context, recs []outbox.Record) []outbox.Outcome {
	c.turn++
	switch c.turn {
	case 1:
		panic("a bug")
	case 2:
		return nil
	}
	return c.memory.PublishBatch(ctx, recs)
}

func TestAStoppedRelayFinishesItsBatchAndFreesItsSlot(t *testing.T) {
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	b.append(t, events("e", 10)...)
	gate, holding := make(chan struct{}), make(chan struct{}, 10)
	_, stop := b.startRelay(t, quick(), blocking{gate, holding})
	<-holding
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	time.Sleep(50 * time.Millisecond)
	close(gate)
	<-stopped
	require.EqualValues(t, 10, b.countStatus(t, "PUBLISHED"), "the batch in hand needs no repeat")
	list, err := lease.New(b.pool).List(t.Context(), outbox.LeasePrefix)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.False(t, list[0].Held)
}

func TestStandbyTakesASlotThatComesFree(t *testing.T) {
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	m := newMemory()
	first, stopFirst := b.startRelay(t, quick(), m)
	testenv.Eventually(t, soon, "the first works", func() bool { return first.Snapshot().Slot == 0 })
	second, _ := b.startRelay(t, quick(), m)
	testenv.Eventually(t, soon, "the second asked", func() bool { return !second.Snapshot().LastPass.IsZero() })
	ok, reason := second.Ready()
	require.True(t, ok)
	require.Contains(t, reason, "standing by")
	stopFirst()
	b.append(t, someEvent("e"))
	b.allPublished(t, soon)
	require.Equal(t, 0, second.Snapshot().Slot)
}

func TestBatchesAreBoundedInBytes(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		evs := events("big", 60)
		for i := range evs {
			evs[i].Payload = []byte(`{"x":"` + strings.Repeat("a", 60_000) + `"}`)
		}
		b.append(t, evs...)
		cfg := quick()
		cfg.BatchBytes = 300_000
		p := &sizes{memory: newMemory()}
		b.startRelay(t, cfg, p)
		b.allPublished(t, soon)
		require.LessOrEqual(t, p.most, 5)
		require.Greater(t, p.most, 1)
	})
}

type sizes struct {
	*memory
	most int
}

func (s *sizes) PublishBatch(ctx context.Context, recs []outbox.Record) []outbox.Outcome {
	s.most = max(s.most, len(recs))
	return s.memory.PublishBatch(ctx, recs)
}

func TestTheDatabaseAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := testenv.PrivateMariaDB(t)
	b := newBox(t, s, "+00:00")
	m := newMemory()
	r, _ := b.startRelay(t, quick(), m)
	b.append(t, someEvent("before"))
	b.allPublished(t, soon)
	require.NoError(t, s.Server.Stop(t.Context()))
	testenv.Eventually(t, soon, "the relay notices", func() bool {
		_, reason := r.Ready()
		return strings.Contains(reason, "database")
	})
	require.NoError(t, s.Server.Start(t.Context()))
	b.append(t, someEvent("after"))
	b.allPublished(t, soon)
}

func TestPublishedRowsArePurgedAndOthersNever(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		b.append(t, events("old", 1200)...)
		b.Exec(t, `UPDATE outbox_event SET created_at = NOW(3) - INTERVAL 20 DAY, published_at = NOW(3) - INTERVAL 20 DAY, status = 'PUBLISHED'`)
		b.append(t, events("other", 5)...)
		b.Exec(t, "UPDATE outbox_event SET created_at = NOW(3) - INTERVAL 20 DAY WHERE event_id LIKE 'other%'")
		b.Exec(t, "UPDATE outbox_event SET status = 'FAILED' WHERE event_id = 'other:000001'")
		b.Exec(t, "UPDATE outbox_event SET status = 'PUBLISHED', published_at = NOW(3) WHERE event_id = 'other:000002'")
		b.Exec(t, "UPDATE outbox_event SET status = 'PUBLISHED', published_at = NULL WHERE event_id = 'other:000003'")
		store := outbox.NewStore(b.pool)
		_, err := store.Purge(t.Context(), outbox.PurgeRequest{})
		require.ErrorIs(t, err, outbox.ErrNoFilter)
		ctx, cancel := context.WithCancel(t.Context())
		first, err := store.Purge(ctx, outbox.PurgeRequest{OlderThan: 14 * 24 * time.Hour, Progress: func(int64) { cancel() }})
		require.ErrorIs(t, err, context.Canceled, "it was ended half way")
		require.EqualValues(t, 500, first, "one batch")
		n, err := store.Purge(t.Context(), outbox.PurgeRequest{OlderThan: 14 * 24 * time.Hour})
		require.NoError(t, err)
		require.EqualValues(t, 1201, first+n, "and the one that another relay published without a time")
		require.EqualValues(t, 4, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"))

		b.append(t, events("older", 10)...)
		b.Exec(t, `UPDATE outbox_event SET created_at = NOW(3) - INTERVAL 20 DAY, published_at = NOW(3) - INTERVAL 20 DAY, status = 'PUBLISHED' WHERE event_id LIKE 'older%'`)
		b.startRelay(t, quick(), newMemory())
		testenv.Eventually(t, soon, "the holder of slot 0 purges", func() bool {
			return b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE event_id LIKE 'older%'") == 0
		})
	})
}
