package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// The database's clock jumps by minutes, forth and back, under the running relay. Nothing
// sets a server's clock without root, so the sessions of the relay are moved: a proxy
// changes their zone by minutes and ends the old ones. To the relay, its lease and its
// windows, that is the same.
func TestTheDatabasesClockJumps(t *testing.T) {
	t.Parallel()
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	proxy := newStepProxy(t, b.Server.Addr())
	through := b.through(t, proxy.addr)
	m := newMemory()
	through.startRelay(t, quick(), m)
	n := 0
	for _, zone := range []string{"+00:00", "+00:05", "-00:05", "+00:59", "+00:00"} {
		proxy.replace("time_zone = '+00:00'", "time_zone = '"+zone+"'")
		each := testenv.Scale(200, 4000)
		wait := b.write(t, fmt.Sprint("e", n), each)
		n += each
		wait()
		began := time.Now()
		b.allPublished(t, soon)
		t.Logf("at %s: all were out %s after the last was written", zone, time.Since(began).Round(time.Millisecond))
	}
	require.Len(t, m.recs, n)
	require.LessOrEqual(t, len(m.sent)-n, 5*quick().BatchRows, "each jump ends the sessions, with a batch in hand at most")
	require.Zero(t, b.QueryInt(t, "SELECT MAX(retry_count) FROM outbox_event"))
}

// through is the same schema, reached by another address.
func (b *box) through(t testing.TB, addr string) *box {
	t.Helper()
	c := *b
	c.cfg.DSN = strings.Replace(b.DSN, b.Server.Addr(), addr, 1)
	g := openBox(t, &testenv.Schema{Server: b.Server, Name: b.Name, DSN: c.cfg.DSN, DB: b.DB}, b.cfg.TimeZone)
	c.pool = g.pool
	return &c
}

// The server gives up conflicts: marks fail now and then by deadlock and by lock timeout.
func TestDeadlocksAndLockTimeoutsLoseNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *box) {
		const batch = 50
		n := testenv.Scale(2000, 20_000)
		b.Exec(t, `CREATE TRIGGER conflict BEFORE UPDATE ON outbox_event FOR EACH ROW
			BEGIN
				IF RAND() < 0.003 THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'; END IF;
				IF RAND() < 0.003 THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1205, MESSAGE_TEXT = 'Lock wait timeout exceeded'; END IF;
			END`)
		cfg := quick()
		cfg.BatchRows, cfg.OutageMax = batch, 100*time.Millisecond
		m, reg := newMemory(), prometheus.NewRegistry()
		wait := b.write(t, "e", n)
		b.startRelayOn(t, reg, cfg, m)
		wait()
		b.allPublished(t, 2*soon)
		failures := int(gauge(t, reg, "seahub_outbox_database_errors_total"))
		t.Logf("%d statements failed, %d duplicates", failures, len(m.sent)-n)
		require.Len(t, m.recs, n)
		require.LessOrEqual(t, len(m.sent)-n, failures*batch)
		require.Zero(t, b.QueryInt(t, "SELECT MAX(retry_count) FROM outbox_event"))
	})
}

// slowly is a broker that takes its time for each event and gives no answer for those
// that it has not come to.
type slowly struct {
	*memory
	each time.Duration
}

func (p slowly) PublishBatch(ctx context.Context, recs []outbox.Record) []outbox.Outcome {
	done := 0
	for done < len(recs) && ctx.Err() == nil {
		time.Sleep(p.each)
		done++
	}
	return append(p.memory.PublishBatch(ctx, recs[:done]), make([]outbox.Outcome, len(recs)-done)...)
}

// A broker that cannot take a batch in its time gets smaller ones and is no outage for ever.
func TestASlowBrokerIsWorkedWith(t *testing.T) {
	t.Parallel()
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	cfg := quick()
	cfg.PublishTimeout = 200 * time.Millisecond
	b.fill(t, "e", 800)
	m := newMemory()
	b.startRelay(t, cfg, slowly{m, time.Millisecond})
	b.allPublished(t, soon)
	require.Len(t, m.recs, 800)
	require.Zero(t, b.QueryInt(t, "SELECT MAX(retry_count) FROM outbox_event"))
}

// Somebody else has all connections: those of the pool that the lease is renewed on, and
// those of the server. The relay loses its lease, says so, and works again afterwards.
func TestNoConnectionIsLeft(t *testing.T) {
	t.Parallel()
	b := newBox(t, testenv.PrivateMariaDB(t), "+00:00")
	m := newMemory()
	r, stop := b.startRelay(t, quick(), m)
	testenv.Eventually(t, soon, "it works", func() bool { return r.Snapshot().Slot == 0 })
	var held []*sql.Conn
	for range b.cfg.MaxOpen {
		c, err := b.pool.Conn(t.Context())
		require.NoError(t, err)
		held = append(held, c)
	}
	testenv.Eventually(t, soon, "it cannot renew its lease and stops", func() bool { return r.Snapshot().Slot == -1 })
	for _, c := range held {
		require.NoError(t, c.Close())
	}
	b.append(t, someEvent("after-the-pool"))
	b.allPublished(t, soon)

	stop()
	other, err := sql.Open("mysql", b.DSN)
	require.NoError(t, err)
	defer func() { _ = other.Close() }()
	b.fill(t, "e", 300)
	b.Exec(t, "SET GLOBAL max_connections = 40")
	held = nil
	for {
		c, err := other.Conn(t.Context())
		if err != nil {
			require.ErrorContains(t, err, "1040")
			break
		}
		held = append(held, c)
	}
	// A relay that starts now finds no connection.
	late, _ := b.startRelay(t, quick(), m)
	testenv.Eventually(t, soon, "it says so", func() bool { return late.Snapshot().DatabaseError != nil })
	require.NoError(t, other.Close())
	for _, c := range held {
		_ = c.Close()
	}
	b.append(t, someEvent("after-the-server"))
	b.allPublished(t, soon)
	require.Len(t, m.recs, 302)
	require.Len(t, m.sent, 302)
}

// A slot's holder loses its lease by hand while N relays work: the others never stop.
func TestOneRelaysLossStopsNoOther(t *testing.T) {
	t.Parallel()
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	cfg := quick()
	cfg.Slots, cfg.BatchRows = 2, 20
	m := newMemory()
	first, _ := b.startRelay(t, cfg, m)
	second, _ := b.startRelay(t, cfg, m)
	testenv.Eventually(t, soon, "both work", func() bool { return first.Snapshot().Slot+second.Snapshot().Slot == 1 })
	loser, other := first, second
	if second.Snapshot().Slot == 0 {
		loser, other = second, first
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	stopped := false
	wg.Go(func() {
		for ctx.Err() == nil {
			stopped = stopped || other.Snapshot().Slot < 0
			time.Sleep(5 * time.Millisecond)
		}
	})
	wait := b.write(t, "e", 400)
	b.Exec(t, "DELETE FROM mq_lease WHERE name = '"+outbox.LeasePrefix+"0'")
	held, err := lease.New(b.pool).Acquire(t.Context(), outbox.LeasePrefix+"0", lease.NewOwner(), time.Minute)
	require.NoError(t, err)
	testenv.Eventually(t, soon, "the loser stands by", func() bool { return loser.Snapshot().Slot == -1 })
	wait()
	b.allPublished(t, soon)
	require.NoError(t, lease.New(b.pool).Release(t.Context(), held))
	testenv.Eventually(t, soon, "the loser works again", func() bool { return loser.Snapshot().Slot == 0 })
	cancel()
	wg.Wait()
	require.False(t, stopped, "the other one went on all the time")
	require.Len(t, m.recs, 400)
	require.LessOrEqual(t, len(m.sent), 400+2*cfg.BatchRows, "what was under way when the lease was lost is sent again")
}
