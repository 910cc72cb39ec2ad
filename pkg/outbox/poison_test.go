package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// breaking is a broker whose connection breaks at certain events: neither they nor what
// is sent with them is confirmed.
type breaking struct {
	*memory
	breaks func(id string) bool
	broken atomic.Int64
}

func (p *breaking) PublishBatch(ctx context.Context, recs []outbox.Record) []outbox.Outcome {
	for _, r := range recs {
		if p.breaks(r.EventID) {
			p.broken.Add(1)
			outs := make([]outbox.Outcome, len(recs))
			for i := range outs {
				outs[i].Err = errors.New("connection reset by peer")
			}
			return outs
		}
	}
	return p.memory.PublishBatch(ctx, recs)
}

// Events that are the oldest and take the connection down with whatever is sent with
// them look like an outage. They end FAILED, and the others go out meanwhile.
func TestAnEventThatBreaksTheConnectionIsIsolated(t *testing.T) {
	t.Parallel()
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	b.insertAt(t, "poison", 2, "NOW(3) - INTERVAL 2 HOUR + INTERVAL # SECOND")
	b.insertAt(t, "middle", 600, "NOW(3) - INTERVAL 1 HOUR + INTERVAL # SECOND")
	b.insertAt(t, "poisonlate", 1, "NOW(3) - INTERVAL 1 HOUR + INTERVAL 300 SECOND")
	p := &breaking{memory: newMemory(), breaks: func(id string) bool { return strings.HasPrefix(id, "poison") }}
	reg := prometheus.NewRegistry()
	b.startRelayOn(t, reg, quick(), p)
	testenv.Eventually(t, 2*soon, "the others are out and the poisonous ones FAILED", func() bool {
		b.append(t, someEvent(fmt.Sprint("beat:", time.Now().UnixNano()))) // traffic goes on
		return b.countStatus(t, "FAILED") == 3 && b.countStatus(t, "PENDING") <= 2
	})
	b.allPublishedBut(t, 3)
	require.EqualValues(t, 0, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'FAILED' AND event_id NOT LIKE 'poison%'"))
	require.EqualValues(t, 0, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE event_id NOT LIKE 'poison%' AND retry_count > 0"),
		"nobody else paid for it")
	require.EqualValues(t, quick().MaxAttempts, b.QueryInt(t, "SELECT retry_count FROM outbox_event WHERE event_id = 'poison0'"))
	require.Equal(t, 1, p.mostCalls(), "what was confirmed was sent once")
	testenv.Eventually(t, soon, "the alarm ends", func() bool {
		return gauge(t, reg, "seahub_outbox_publish_failing", "unavailable") == 0
	})
	t.Logf("%d sends broke", p.broken.Load())
}

func (b *box) allPublishedBut(t testing.TB, n int64) {
	t.Helper()
	testenv.Eventually(t, soon, "all others are PUBLISHED", func() bool {
		return b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status <> 'PUBLISHED'") == n
	})
}

// An event that breaks the connection while nothing else is there may as well be an
// outage: it is not touched.
func TestALoneEventIsNotToBlame(t *testing.T) {
	t.Parallel()
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	p := &breaking{memory: newMemory(), breaks: func(id string) bool { return id == "lone" }}
	b.startRelay(t, quick(), p)
	b.append(t, someEvent("before"))
	b.allPublished(t, soon)
	b.append(t, someEvent("lone"))
	testenv.Eventually(t, soon, "it was tried again and again", func() bool { return p.broken.Load() > 10 })
	require.Zero(t, b.QueryInt(t, "SELECT MAX(retry_count) FROM outbox_event"))
	require.EqualValues(t, 1, b.countStatus(t, "PENDING"))
}

// One event that the broker always refuses and a page of backed-off ones among many: all
// others go out.
func TestAPoisonousEventAndAPageOfBackedOffOnesAmongMany(t *testing.T) {
	t.Parallel()
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	n := testenv.Scale(4000, 20_000)
	b.insertAt(t, "off", 1000, "NOW(3) - INTERVAL 2 HOUR")
	b.Exec(t, "UPDATE outbox_event SET available_at = NOW(3) + INTERVAL 1 DAY")
	b.insertAt(t, "poison", 1, "NOW(3) - INTERVAL 1 HOUR")
	b.insertAt(t, "other", n, "NOW(3) - INTERVAL 59 MINUTE + INTERVAL (# * 10000) MICROSECOND")
	m := newMemory()
	m.answers(func(r outbox.Record) outbox.Outcome {
		if r.EventID == "poison0" {
			return outbox.Outcome{Class: outbox.Failed, Err: errors.New("not this one")}
		}
		return outbox.Outcome{Class: outbox.Confirmed}
	})
	b.startRelay(t, quick(), m)
	b.allPublishedBut(t, 1001)
	require.Len(t, m.sent, n)
	require.EqualValues(t, 1000, b.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'PENDING' AND retry_count = 0"))
}
