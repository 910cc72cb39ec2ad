package outbox_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// The tests of this file run relays as processes of their own, on a real database and
// a real broker.

type stage struct {
	*box
	stream
	spec childSpec
}

func newStage(t testing.TB, s *testenv.Schema) *stage {
	t.Helper()
	b := newBox(t, s, "+00:00")
	r := testenv.Redis(t)
	key := r.Namespace(t)
	return &stage{
		box: b, stream: stream{client: r.Client(t), key: key},
		spec: childSpec{DB: b.cfg, Relay: quick(), Redis: r.Addr, Stream: key},
	}
}

func (s *stage) named(name string) childSpec {
	spec := s.spec
	spec.Name = name
	return spec
}

// checkNoneTwice waits until everything is marked, then counts what the broker has.
func (s *stage) checkNoneTwice(t testing.TB, n int) (perSender map[string]int) {
	t.Helper()
	s.allPublished(t, time.Minute)
	perEvent, perSender := s.sent(t)
	require.Len(t, perEvent, n, "none is lost")
	require.Zero(t, duplicates(perEvent), "none is published twice")
	return perSender
}

func TestTwoRelaysPublishNoEventTwice(t *testing.T) {
	const n = 20_000
	for name, setUp := range map[string]func(spec *childSpec){
		"both guards":   func(spec *childSpec) { spec.Relay.Slots = 2 },
		"lease off":     func(spec *childSpec) { spec.NoLease = true },
		"row locks off": func(spec *childSpec) { spec.NoLocks = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, testenv.MariaDB(t))
			setUp(&s.spec)
			s.fill(t, "a", n/2)
			startChild(t, s.named("one"))
			startChild(t, s.named("two"))
			s.fill(t, "b", n/2) // while they work
			perSender := s.checkNoneTwice(t, n)
			t.Log("sent by:", perSender)
			if name != "row locks off" {
				require.Len(t, perSender, 2, "both of them worked, or the test says nothing")
			}
		})
	}
}

func TestTwoRelaysOnMySQL(t *testing.T) {
	s := newStage(t, testenv.MySQL(t))
	s.spec.NoLease = true
	s.fill(t, "a", 4000)
	startChild(t, s.named("one"))
	startChild(t, s.named("two"))
	s.fill(t, "b", 4000)
	t.Log("sent by:", s.checkNoneTwice(t, 8000))
}

func TestKilledInMidBatch(t *testing.T) {
	t.Parallel()
	testenv.SQLServers(t, func(t *testing.T, schema *testenv.Schema) {
		s := newStage(t, schema)
		first := s.named("first")
		first.StallAt = 3
		s.fill(t, "e", 3000)
		victim := startChild(t, first)
		batch := s.stalled(t)
		startChild(t, s.named("standby"))
		require.NoError(t, victim.Kill())
		killed := time.Now()
		testenv.Eventually(t, 3*s.spec.Relay.TakeoverBound(), "the standby works", func() bool {
			_, by := s.sent(t)
			return by["standby"] > 0
		})
		t.Logf("the standby worked %s after the kill, promised are %s", time.Since(killed).Round(time.Millisecond), s.spec.Relay.TakeoverBound())
		s.allPublished(t, soon)
		perEvent, _ := s.sent(t)
		require.Len(t, perEvent, 3000, "none is lost")
		t.Logf("%d duplicates of a batch of %d", duplicates(perEvent), batch)
		require.LessOrEqual(t, duplicates(perEvent), batch)
		require.Zero(t, s.QueryInt(t, "SELECT MAX(retry_count) FROM outbox_event"))
	})
}

func TestFrozenInMidBatch(t *testing.T) {
	t.Parallel()
	testenv.SQLServers(t, func(t *testing.T, schema *testenv.Schema) {
		s := newStage(t, schema)
		first := s.named("first")
		first.StallAt = 2
		s.fill(t, "e", 3000)
		victim := startChild(t, first)
		batch := s.stalled(t)
		startChild(t, s.named("standby"))
		require.NoError(t, victim.Freeze())
		frozen := time.Now()
		s.allPublished(t, 3*s.spec.Relay.TakeoverBound())
		t.Logf("its rows were delivered %s after the freeze, promised are %s", time.Since(frozen).Round(time.Millisecond), s.spec.Relay.TakeoverBound())

		before := s.checksum(t)
		perEvent, by := s.sent(t)
		already, sentBefore := duplicates(perEvent), by["first"]
		s.goOn(t)
		require.NoError(t, victim.Thaw())
		testenv.Eventually(t, soon, "the thawed relay ends its send", func() bool {
			_, by := s.sent(t)
			return by["first"] > sentBefore
		})
		time.Sleep(s.spec.Relay.PassTimeout) // time to do wrong
		perEvent, _ = s.sent(t)
		require.Len(t, perEvent, 3000)
		t.Logf("duplicates: %d before the thaw, %d after, of a batch of %d", already, duplicates(perEvent), batch)
		require.LessOrEqual(t, duplicates(perEvent), batch, "one batch at most, whichever half of it was sent when")
		require.Equal(t, before, s.checksum(t), "it marks nothing")

		s.append(t, someEvent("after"))
		s.allPublished(t, soon)
	})
}

// checksum changes with every status and every mark.
func (s *stage) checksum(t testing.TB) int64 {
	t.Helper()
	return s.QueryInt(t, "SELECT CAST(SUM(CRC32(CONCAT(id, status, retry_count, COALESCE(published_at, '')))) AS SIGNED) FROM outbox_event")
}

// The server must notice that nobody reads: wait_timeout does not count in the middle
// of a result, net_write_timeout does.
func TestFrozenInMidResult(t *testing.T) {
	t.Parallel()
	testenv.SQLServers(t, func(t *testing.T, schema *testenv.Schema) {
		s := newStage(t, schema)
		evs := events("big", 500)
		for i := range evs {
			evs[i].Payload = []byte(`{"x":"` + strings.Repeat("a", 64_000) + `"}`)
		}
		for i := range 10 {
			s.append(t, evs[i*50:(i+1)*50]...)
		}
		frozen := make(chan time.Time, 1)
		var victim *testenv.Child
		started := make(chan struct{})
		proxy := newTripProxy(t, s.Server.Addr(), 2<<20, func() {
			<-started
			if err := victim.Freeze(); err != nil {
				t.Errorf("freeze: %v", err)
			}
			frozen <- time.Now()
		})
		first := s.named("first")
		first.Relay.BatchBytes = 64 << 20
		first.RelayDSN = strings.Replace(s.DSN, s.Server.Addr(), proxy, 1)
		victim = startChild(t, first)
		close(started)
		var at time.Time
		select {
		case at = <-frozen:
		case <-time.After(soon):
			t.Fatal("the claim's result never came")
		}
		perEvent, _ := s.sent(t)
		require.Empty(t, perEvent, "it had not sent anything yet")
		startChild(t, s.named("standby"))
		s.allPublished(t, 3*s.spec.Relay.TakeoverBound()+soon) // 32 MB take their time, too
		t.Logf("its rows were delivered %s after the freeze, promised are %s", time.Since(at).Round(time.Millisecond), s.spec.Relay.TakeoverBound())

		before := s.checksum(t)
		require.NoError(t, victim.Thaw())
		time.Sleep(2 * s.spec.Relay.PassTimeout)
		perEvent, _ = s.sent(t)
		require.Len(t, perEvent, 500)
		require.LessOrEqual(t, duplicates(perEvent), 500)
		t.Logf("%d duplicates after the thaw", duplicates(perEvent))
		require.Equal(t, before, s.checksum(t), "it marks nothing")
	})
}

// newTripProxy forwards TCP to target and calls trip once, when that many bytes have
// come back over one connection. Nothing is forwarded until trip returns.
func newTripProxy(t testing.TB, target string, after int64, trip func()) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	once := sync.OnceFunc(trip)
	keep := func(c net.Conn) { mu.Lock(); conns = append(conns, c); mu.Unlock() }
	serve := func(client net.Conn) {
		server, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.Close()
			return
		}
		keep(client)
		keep(server)
		wg.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
		wg.Go(func() {
			_, err := io.CopyN(client, server, after)
			if err == nil {
				once()
				_, _ = io.Copy(client, server)
			}
			_ = client.Close()
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
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return listener.Addr().String()
}

// Redis away for longer than every retry budget: stopped, and accepting but silent.
func TestBrokerAway(t *testing.T) {
	t.Parallel()
	type fault struct {
		down, up func(s *testenv.Server, t *testing.T) error
	}
	for name, f := range map[string]fault{
		"stopped": {
			down: func(s *testenv.Server, t *testing.T) error { return s.Stop(t.Context()) },
			up:   func(s *testenv.Server, t *testing.T) error { return s.Start(t.Context()) },
		},
		"silent": {
			down: func(s *testenv.Server, _ *testing.T) error { return s.Freeze() },
			up:   func(s *testenv.Server, _ *testing.T) error { return s.Thaw() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t, testenv.MariaDB(t), "+00:00")
			r := testenv.PrivateRedis(t)
			spec := childSpec{Name: "relay", DB: b.cfg, Relay: quick(), Redis: r.Addr, Stream: "s"}
			spec.Relay.PublishTimeout = 200 * time.Millisecond
			child := startChild(t, spec)
			b.fill(t, "before", 1000)
			b.allPublished(t, soon)
			require.NoError(t, f.down(r.Server, t))
			n := testenv.Scale(1000, 20_000)
			b.write(t, "during", n)()
			// Three attempts, 0.1 s apart at most, would be over long before.
			time.Sleep(5 * time.Second)
			require.EqualValues(t, n, b.QueryInt(t, `SELECT COUNT(*) FROM outbox_event
				WHERE status = 'PENDING' AND retry_count = 0 AND available_at IS NULL`), "no row is touched")
			require.NoError(t, f.up(r.Server, t))
			b.allPublished(t, soon)
			require.Zero(t, b.QueryInt(t, "SELECT MAX(retry_count) FROM outbox_event"))
			perEvent, _ := stream{client: r.Client(t), key: "s"}.sent(t)
			require.Len(t, perEvent, 1000+n, "all are delivered")
			t.Logf("%d duplicates", duplicates(perEvent))
			require.NoError(t, child.Stop(t.Context()))
			written, err := os.ReadFile(logFile(t, "relay"))
			require.NoError(t, err)
			require.Less(t, strings.Count(string(written), "\n"), 12, "log lines are bounded:\n%s", written)
			require.Contains(t, string(written), "publishing works again")
		})
	}
}

// Frozen and thawed again and again under load, three relays in two slots: nothing is
// lost, and the duplicates are explained by the freezes.
func TestRelaysFreezeAtRandom(t *testing.T) {
	t.Parallel()
	s := newStage(t, testenv.MariaDB(t))
	s.spec.Relay.Slots = 2
	s.spec.Relay.BatchRows = 50
	var children []*testenv.Child
	for i := range 3 {
		children = append(children, startChild(t, s.named(fmt.Sprint("relay", i))))
	}
	const rounds, perRound = 8, 400
	for i := range rounds {
		s.fill(t, fmt.Sprint("r", i), perRound)
		c := children[i%len(children)]
		require.NoError(t, c.Freeze())
		s.fill(t, fmt.Sprint("f", i), perRound)
		time.Sleep(time.Duration(200+400*(i%3)) * time.Millisecond)
		require.NoError(t, c.Thaw())
	}
	s.allPublished(t, time.Minute)
	perEvent, by := s.sent(t)
	require.Len(t, perEvent, 2*rounds*perRound)
	t.Logf("sent by %v, %d duplicates", by, duplicates(perEvent))
	require.LessOrEqual(t, duplicates(perEvent), rounds*50)
}

var _ outbox.Publisher = (*streamPublisher)(nil)
