package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// steps of a pass, by what the relay sends to its database.
var steps = []struct {
	name, word string
	after      bool
}{
	{"before claim", "FOR UPDATE SKIP LOCKED", false},
	{"after claim", "FOR UPDATE SKIP LOCKED", true},
	{"during publish", "", false},
	{"after publish", "SET status = 'PUBLISHED'", false},
	{"before commit", commitRequest, false},
	{"commit answer lost", commitRequest, true},
}

// write appends n events by 4 writers, each of which repeats a transaction of which it
// does not know that it was committed. Events carry the prefix.
func (b *box) write(t testing.TB, prefix string, n int) (wait func()) {
	var wg sync.WaitGroup
	for writer := range 4 {
		wg.Go(func() {
			for i := writer; i < n; i += 4 {
				e := someEvent(fmt.Sprintf("%s:%06d", prefix, i))
				for t.Context().Err() == nil {
					err := db.InTx(t.Context(), b.gorm, func(tx *gorm.DB) error {
						_, err := outbox.Append(t.Context(), tx, e)
						return err
					})
					if err == nil {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	return wg.Wait
}

// Relay, database and broker are killed at every step of a pass, under the load of four
// writers: nothing is lost, and each kill costs one batch of duplicates at most.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"relay", "database", "broker"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			s := newPrivateStage(t)
			s.spec.Relay.BatchRows = 100
			proxy := newStepProxy(t, s.Server.Addr())
			s.spec.RelayDSN = strings.Replace(s.DSN, s.Server.Addr(), proxy.addr, 1)
			perStep := testenv.Scale(170, 3400)
			for i, step := range steps {
				s.killAt(t, proxy, victim, i, perStep)
				perEvent, _ := s.sent(t)
				require.Equal(t, (i+1)*perStep, len(perEvent), "%s: none is lost", step.name)
				t.Logf("%s: %d duplicates so far", step.name, duplicates(perEvent))
				require.LessOrEqual(t, duplicates(perEvent), (i+1)*s.spec.Relay.BatchRows, step.name)
				require.Zero(t, s.QueryInt(t, "SELECT MAX(retry_count) FROM outbox_event"), step.name)
			}
		})
	}
}

// killAt runs one relay under load and kills the victim when the relay is at the step.
func (s *privateStage) killAt(t *testing.T, proxy *stepProxy, victim string, step, events int) {
	t.Helper()
	spec := s.named(fmt.Sprint("relay", step))
	publishing := steps[step].word == ""
	if publishing {
		spec.StallAt = 2
	}
	relay := startChild(t, spec)
	testenv.Eventually(t, soon, "the relay works", func() bool {
		return s.QueryInt(t, "SELECT COUNT(*) FROM mq_lease WHERE locked_until > NOW(3)") == 1
	})
	var reached <-chan struct{}
	if !publishing {
		reached = proxy.arm(steps[step].word, steps[step].after)
	}
	wait := s.write(t, fmt.Sprint("s", step), events)
	if publishing {
		s.stalled(t)
	} else {
		select {
		case <-reached:
		case <-time.After(soon):
			t.Fatalf("%s: the relay never came there", steps[step].name)
		}
	}
	switch victim {
	case "relay":
		require.NoError(t, relay.Kill())
		proxy.cutAll()
		relay = startChild(t, s.named(fmt.Sprint("next", step)))
	case "database":
		require.NoError(t, s.Server.Kill())
		proxy.cutAll()
		require.NoError(t, s.Server.Start(t.Context()))
	case "broker":
		require.NoError(t, s.redis.Server.Kill())
		proxy.cutAll()
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, s.redis.Server.Start(t.Context()))
	}
	if publishing {
		s.goOn(t)
	}
	wait()
	s.allPublished(t, soon+3*s.spec.Relay.TakeoverBound())
	require.NoError(t, relay.Stop(context.WithoutCancel(t.Context())))
}

// privateStage is a stage whose servers may be killed.
type privateStage struct {
	*stage
	redis *testenv.RedisServer
}

func newPrivateStage(t testing.TB) *privateStage {
	t.Helper()
	b := newBox(t, testenv.PrivateMariaDB(t), "+00:00")
	// Durable: with appendfsync everysec a busy disk lets Redis confirm what a kill -9 then
	// takes with it, which no relay can help (a requeue of PUBLISHED rows repairs it).
	r := testenv.PrivateRedis(t, testenv.Options{Durable: true})
	return &privateStage{
		stage: &stage{
			box: b, stream: stream{client: r.Client(t), key: "s"},
			spec: childSpec{DB: b.cfg, Relay: quick(), Redis: r.Addr, Stream: "s"},
		},
		redis: r,
	}
}

// Three relays come and go at random, politely and by kill -9, while four writers write.
func TestRelaysJoinAndLeaveAtRandom(t *testing.T) {
	t.Parallel()
	s := newStage(t, testenv.MariaDB(t))
	s.spec.Relay.Slots, s.spec.Relay.BatchRows = 3, 50
	children := make([]*testenv.Child, 3)
	wait := s.write(t, "e", testenv.Scale(1000, 20_000))
	kills := 0
	for i := range testenv.Scale(12, 100) {
		n := (i * 7) % len(children)
		switch c := children[n]; {
		case c == nil:
			children[n] = startChild(t, s.named(fmt.Sprint("relay", i)))
		case i%2 == 0:
			kills++
			require.NoError(t, c.Kill())
			children[n] = nil
		default:
			require.NoError(t, c.Stop(t.Context()))
			children[n] = nil
		}
		time.Sleep(time.Duration(50+100*(i%4)) * time.Millisecond)
	}
	wait()
	startChild(t, s.named("last"))
	s.allPublished(t, soon+3*s.spec.Relay.TakeoverBound())
	perEvent, by := s.sent(t)
	require.Len(t, perEvent, testenv.Scale(1000, 20_000))
	t.Logf("%d kills, %d duplicates, sent by %v", kills, duplicates(perEvent), by)
	require.LessOrEqual(t, duplicates(perEvent), kills*s.spec.Relay.BatchRows)
}
