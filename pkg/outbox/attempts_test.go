package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// send is one of an event that had failed so often before.
type send struct {
	at     time.Time
	before int
}

// An event that fails has its attempts and no more, as far apart as its backoff says,
// however many relays there are and although all of them are replaced in between. It is
// given up once, and one that passes in the end is not.
func TestAttemptsAreTheEventsOwnWhoeverMakesThem(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *box) {
		cfg := quick()
		cfg.Slots, cfg.MaxAttempts = 3, 5
		cfg.RetryMin, cfg.RetryMax = 800*time.Millisecond, 800*time.Millisecond
		var sends []send
		m := newMemory()
		m.answers(func(r outbox.Record) outbox.Outcome {
			switch r.EventID {
			case "poison":
				sends = append(sends, send{time.Now(), r.RetryCount})
				return outbox.Outcome{Class: outbox.Failed, Err: errors.New("not this one")}
			case "late":
				if r.RetryCount < 2 {
					return outbox.Outcome{Class: outbox.Failed, Err: errors.New("not yet")}
				}
			}
			return outbox.Outcome{Class: outbox.Confirmed}
		})
		reg := prometheus.NewRegistry()
		start := func() (stop func()) {
			var stops []func()
			for range cfg.Slots {
				_, stop := b.startRelayOn(t, reg, cfg, m)
				stops = append(stops, stop)
			}
			return func() {
				for _, stop := range stops {
					stop()
				}
			}
		}
		// Traffic goes on, or a failure may as well be an outage.
		ctx, end := context.WithCancel(t.Context())
		var traffic sync.WaitGroup
		traffic.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				b.append(t, someEvent(fmt.Sprint("beat:", i)))
				time.Sleep(30 * time.Millisecond)
			}
		})
		defer traffic.Wait()
		defer end()

		stop := start()
		b.append(t, someEvent("poison"), someEvent("late"))
		testenv.Eventually(t, soon, "two attempts", func() bool {
			return b.QueryInt(t, "SELECT retry_count FROM outbox_event WHERE event_id = 'poison'") >= 2
		})
		stop()
		start()
		testenv.Eventually(t, 2*soon, "it is given up", func() bool { return b.countStatus(t, "FAILED") == 1 })
		time.Sleep(2 * cfg.RetryMax) // time to do wrong
		m.mu.Lock()
		defer m.mu.Unlock()
		// A relay that has not seen the broker work yet takes a failure for an outage: its
		// send is no attempt, and shows by the count that it does not raise.
		uncounted := 0
		require.Zero(t, sends[0].before)
		for i := 1; i < len(sends); i++ {
			if sends[i].before == sends[i-1].before {
				uncounted++
				continue
			}
			require.Equal(t, sends[i-1].before+1, sends[i].before)
			require.GreaterOrEqual(t, sends[i].at.Sub(sends[i-1].at), cfg.RetryMin/2-5*time.Millisecond, "attempt %d", sends[i].before+1)
		}
		require.Equal(t, cfg.MaxAttempts-1, sends[len(sends)-1].before, "it was the last one")
		require.LessOrEqual(t, uncounted, 2*cfg.Slots)
		require.EqualValues(t, cfg.MaxAttempts, b.QueryInt(t, "SELECT retry_count FROM outbox_event WHERE event_id = 'poison' AND status = 'FAILED'"))
		require.EqualValues(t, 2, b.QueryInt(t, "SELECT retry_count FROM outbox_event WHERE event_id = 'late' AND status = 'PUBLISHED'"), "late")
		require.Equal(t, 1.0, gauge(t, reg, "seahub_outbox_failed_total", "attempts"), "told once")
	})
}

// However often an event has failed, its next attempt lies ahead and within the longest
// wait, and the count stays in its column.
func TestTheCountOfAttemptsSaturates(t *testing.T) {
	onBoth(t, func(t *testing.T, b *box) {
		cfg := quick()
		cfg.MaxAttempts, cfg.RetryMin, cfg.RetryMax = math.MaxInt, time.Hour, 2*time.Hour
		counts := []int64{0, 30, 40, 63, 64, 1000, math.MaxInt32 - 1, math.MaxInt32}
		for i, n := range counts {
			id := fmt.Sprint("failing:", i)
			b.append(t, someEvent(id))
			b.Exec(t, "UPDATE outbox_event SET retry_count = ? WHERE event_id = ?", n, id)
		}
		b.append(t, someEvent("good"))
		m := newMemory()
		m.answers(func(r outbox.Record) outbox.Outcome {
			if r.EventID != "good" {
				return outbox.Outcome{Class: outbox.Failed, Err: errors.New("not this one")}
			}
			return outbox.Outcome{Class: outbox.Confirmed}
		})
		b.startRelay(t, cfg, m)
		testenv.Eventually(t, soon, "all are put off", func() bool {
			return b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE available_at IS NOT NULL") == int64(len(counts))
		})
		for i, n := range counts {
			id := fmt.Sprint("failing:", i)
			require.Equal(t, min(n+1, math.MaxInt32), b.QueryInt(t, "SELECT retry_count FROM outbox_event WHERE event_id = ?", id))
			minutes := queryOf[int64](t, b, "SELECT TIMESTAMPDIFF(MINUTE, NOW(3), available_at) FROM outbox_event WHERE event_id = ?", id)
			require.GreaterOrEqual(t, minutes, int64(20), "after %d attempts", n)
			require.LessOrEqual(t, minutes, int64(120), "after %d attempts", n)
		}
		calls, _ := m.count("failing:7")
		require.Equal(t, 1, calls)
	})
}
