package outbox_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// counted calls before at each send, with the number of sends since it was reset.
type counted struct {
	*memory
	calls  atomic.Int64
	before func(n int64)
}

func (p *counted) PublishBatch(ctx context.Context, recs []outbox.Record) []outbox.Outcome {
	p.before(p.calls.Add(1))
	return p.memory.PublishBatch(ctx, recs)
}

// While a COMMIT is on its way the next batch is sent, and no further one. When the COMMIT
// fails, or its answer is lost, nothing is lost, and two batches at most are sent again.
func TestACommitThatFailsBesideTheNextSend(t *testing.T) {
	t.Parallel()
	const rows, batch, cuts = 6000, 100, 6
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	b.insertAt(t, "e", rows, "NOW(3) - INTERVAL 1 HOUR + INTERVAL (# * 1000) MICROSECOND")
	proxy := newStepProxy(t, b.Server.Addr())
	through := *b
	through.cfg.DSN = strings.Replace(b.DSN, b.Server.Addr(), proxy.addr, 1)
	var answerLost atomic.Bool
	held := make(chan (<-chan struct{}), 1)
	m := &counted{memory: newMemory()}
	m.before = func(n int64) {
		if n == 3 { // a burst is under way, in which batches overlap
			held <- proxy.arm(commitRequest, answerLost.Load())
		}
	}
	cfg := quick()
	cfg.BatchRows = batch
	through.startRelay(t, cfg, m)

	open := func() int {
		marked := int(b.countStatus(t, "PUBLISHED")) // before the sends: what it finds too few is harmless
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.recs) - marked
	}
	beside := 0
	for cut := range cuts {
		<-<-held
		most := 0
		for until := time.Now().Add(200 * time.Millisecond); most < 2*batch && time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			most = max(most, open())
		}
		time.Sleep(20 * time.Millisecond) // time to do wrong
		most = max(most, open())
		require.LessOrEqual(t, most, 2*batch, "sent and not committed")
		if !answerLost.Load() && most == 2*batch {
			beside++
		}
		answerLost.Store(cut%2 == 0)
		if m.calls.Store(0); cut == cuts-1 {
			m.calls.Store(3) // hold no more
		}
		proxy.cutAll()
	}
	b.allPublished(t, soon)
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Len(t, m.recs, rows, "none is lost")
	t.Logf("%d times the next batch was sent beside a COMMIT; %d duplicates", beside, len(m.sent)-rows)
	require.Positive(t, beside)
	require.LessOrEqual(t, len(m.sent)-rows, 2*batch*cuts)
}
