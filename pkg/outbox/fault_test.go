package outbox_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// Nobody knows whether a COMMIT took effect whose answer was lost: at most the batch in
// hand is sent again, and nothing is lost.
func TestCommitAnswerLost(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBox(t, s, "+00:00")
		b.fill(t, "e", 2000)
		var cuts atomic.Int64
		cuts.Store(3)
		through := *b
		through.cfg.DSN = strings.Replace(b.DSN, b.Server.Addr(), newCuttingProxy(t, b.Server.Addr(), commitRequest, &cuts), 1)
		m := newMemory()
		through.startRelay(t, quick(), m)
		b.allPublished(t, soon)
		require.LessOrEqual(t, cuts.Load(), int64(0), "the answers were cut off")
		require.Len(t, m.recs, 2000)
		t.Logf("%d duplicates", len(m.sent)-2000)
		require.LessOrEqual(t, len(m.sent)-2000, 3*500)
		require.Zero(t, b.QueryInt(t, "SELECT MAX(retry_count) FROM outbox_event"))
	})
}

// newCuttingProxy forwards TCP to target. A request that contains the word is passed on
// and its answer is not: the connection is cut instead, as long as cuts is positive.
func newCuttingProxy(t testing.TB, target, word string, cuts *atomic.Int64) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	serve := func(client net.Conn) {
		server, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.Close()
			return
		}
		done := context.AfterFunc(ctx, func() { _ = client.Close(); _ = server.Close() })
		var muted atomic.Bool
		wg.Go(func() {
			defer done()
			defer func() { _ = client.Close(); _ = server.Close() }()
			buf := make([]byte, 64<<10)
			for {
				n, err := client.Read(buf)
				if err != nil {
					return
				}
				cut := bytes.Contains(buf[:n], []byte(word)) && cuts.Add(-1) >= 0
				muted.Store(cut)
				if _, err := server.Write(buf[:n]); err != nil {
					return
				}
				if cut {
					time.Sleep(100 * time.Millisecond) // the server commits
					return
				}
			}
		})
		wg.Go(func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := server.Read(buf)
				if err != nil || muted.Load() {
					return
				}
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
		})
	}
	wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			serve(c)
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		cancel()
		wg.Wait()
	})
	return listener.Addr().String()
}

// A server that takes no writes any more (a demoted primary) would have the relay send
// the same batch for ever: it sends it once at most, and then makes sure before it sends.
func TestAServerThatTurnsReadOnlyCausesNoStorm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		schema   func(t testing.TB, options ...testenv.Options) *testenv.Schema
		readOnly string
	}{
		{"mariadb", testenv.PrivateMariaDB, "read_only"}, {"mysql", testenv.PrivateMySQL, "super_read_only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.schema(t)
			b := newBox(t, s, "+00:00")
			b.Exec(t, "CREATE USER relay@'%' IDENTIFIED BY 'secret'") // root is above read_only
			b.Exec(t, "GRANT ALL ON "+b.Name+".* TO relay@'%'")
			asUser := *b
			asUser.cfg.DSN = strings.Replace(b.DSN, "root@", "relay:secret@", 1)
			m := newMemory()
			cfg := quick()
			cfg.LeaseTTL, cfg.PassTimeout = 30*time.Second, 5*time.Second // or the end of the lease would end the storm
			asUser.startRelay(t, cfg, m)
			b.append(t, someEvent("before"))
			b.allPublished(t, soon)

			b.Exec(t, `INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at, available_at)
				VALUES ('obe1', 'later', 'T', 'a', '1', '{}', NOW(3), NOW(3) + INTERVAL 1 SECOND)`)
			b.Exec(t, "SET GLOBAL "+c.readOnly+" = 1")
			time.Sleep(5 * time.Second)
			calls, _ := m.count("later")
			t.Logf("sent %d times while the server was read-only", calls)
			require.LessOrEqual(t, calls, 1)
			b.Exec(t, "SET GLOBAL "+c.readOnly+" = 0")
			b.Exec(t, "SET GLOBAL read_only = 0")
			b.allPublished(t, soon)
		})
	}
}

// The same for marks that fail for whatever other reason: a full disk, a trigger.
func TestMarksThatFailCauseNoStorm(t *testing.T) {
	t.Parallel()
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	b.append(t, events("e", 50)...)
	b.Exec(t, "CREATE TRIGGER broken BEFORE UPDATE ON outbox_event FOR EACH ROW SIGNAL SQLSTATE '45000'")
	m := newMemory()
	r, _ := b.startRelay(t, quick(), m)
	testenv.Eventually(t, soon, "the relay says so", func() bool { return r.Snapshot().DatabaseError != nil })
	time.Sleep(2 * time.Second)
	require.Equal(t, 1, m.mostCalls(), "a batch that could not be marked is not sent again until marks work")
	b.Exec(t, "DROP TRIGGER broken")
	b.allPublished(t, soon)
	require.Equal(t, 2, m.mostCalls())
}

// Stopped at any moment, again and again, a relay leaves no transaction behind.
func TestStopsLeaveNoTransactionOpen(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBox(t, s, "+00:00")
		b.fill(t, "e", 8000)
		m := newMemory()
		cfg := quick()
		cfg.BatchRows = 40
		for i := range 30 {
			_, stop := b.startRelay(t, cfg, m)
			time.Sleep(time.Duration(i) * time.Millisecond)
			stop()
		}
		testenv.Eventually(t, 5*time.Second, "no transaction of a stopped relay is open", func() bool {
			return b.QueryInt(t, "SELECT COUNT(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id WHERE p.db = ?", b.Name) == 0
		})
		require.Equal(t, b.countStatus(t, "PUBLISHED"), int64(len(m.recs)), "what was confirmed is marked")
		require.Len(t, m.sent, len(m.recs), "a stop causes no repeat")
	})
}

// The lease is taken away while a batch is on its way: the pass is given up, the row
// locks have kept others off, and the relay works again once it has the lease.
func TestTheLeaseIsTakenAway(t *testing.T) {
	t.Parallel()
	b := newBox(t, testenv.MariaDB(t), "+00:00")
	b.append(t, events("e", 10)...)
	gate, holding := make(chan struct{}), make(chan struct{}, 100)
	r, _ := b.startRelay(t, quick(), blocking{gate, holding})
	<-holding
	b.Exec(t, "DELETE FROM mq_lease")
	_, err := lease.New(b.pool).Acquire(t.Context(), outbox.LeasePrefix+"0", lease.NewOwner(), 4*time.Second)
	require.NoError(t, err)
	testenv.Eventually(t, soon, "it notices", func() bool { return r.Snapshot().Slot == -1 })
	require.EqualValues(t, 10, b.countStatus(t, "PENDING"))
	close(gate)
	b.allPublished(t, soon)
}

// With neither guard events do go out twice: otherwise the tests of the guards would
// prove nothing.
func TestWithoutAnyGuardEventsGoOutTwice(t *testing.T) {
	s := newStage(t, testenv.MariaDB(t))
	s.spec.NoLease, s.spec.NoLocks = true, true
	s.fill(t, "a", 5000)
	startChild(t, s.named("one"))
	startChild(t, s.named("two"))
	for round := 0; ; round++ {
		s.allPublished(t, time.Minute)
		perEvent, _ := s.sent(t)
		if duplicates(perEvent) > 0 {
			return
		}
		require.Less(t, round, 5, "two unguarded relays never met")
		s.fill(t, strings.Repeat("b", round+1), 5000)
	}
}
