package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(childDSN) != "" {
		os.Exit(countingChild())
	}
	testenv.Main(m)
}

// Variables of a counting child.
const (
	childDSN    = "OPS_COUNTER_CHILD_DSN"
	childEvents = "OPS_COUNTER_CHILD_EVENTS"
	childBase   = "OPS_COUNTER_CHILD_BASE"
	childShare  = "OPS_COUNTER_CHILD_SHARE"
)

const countLateness = 2 * time.Hour

// thing is one delivery of a counter event.
type thing struct {
	id string
	at time.Time
}

// things are n deliveries in the order in which they come: 30 % repeat an earlier one,
// 5 % are late, half of those too late to be counted where they belong. The same n and
// base give the same things in every process.
func things(n int, base time.Time) []thing {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	var all []thing
	for i := range n {
		if len(all) > 0 && r.IntN(100) < 30 {
			all = append(all, all[r.IntN(len(all))])
			continue
		}
		age := time.Duration(r.IntN(55*60)) * time.Second
		switch {
		case r.IntN(1000) < 25:
			age += 55 * time.Minute // late, and still counted
		case r.IntN(1000) < 25:
			age += countLateness + 15*time.Minute // for how long this test may take
		}
		all = append(all, thing{"ops:push_failed:" + strconv.Itoa(i), base.Add(-age)})
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func (th thing) delivery(t testing.TB) eventbus.Delivery {
	t.Helper()
	e, err := event.PushFailed("id", "1", 1, th.at)
	require.NoError(t, err)
	return eventbus.Delivery{Message: eventbus.Message{Tag: string(e.Type), Key: th.id, Body: e.Payload}, Attempt: 1}
}

// countingChild is a worker that is a process of its own, so that it can be killed at any
// point of a transaction. It counts its share of the things.
func countingChild() int {
	n, _ := strconv.Atoi(os.Getenv(childEvents))
	base, _ := strconv.ParseInt(os.Getenv(childBase), 10, 64)
	share, _ := strconv.Atoi(os.Getenv(childShare))
	g, err := db.Open(db.Config{DSN: os.Getenv(childDSN), TimeZone: zone, MaxOpen: 8, DialTimeout: 5 * time.Second, IOTimeout: time.Minute})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	st := store{db: g, country: "id"}
	work := make(chan thing)
	var wg sync.WaitGroup
	failed := make(chan error, 1)
	for range 6 {
		wg.Go(func() {
			for th := range work {
				for {
					_, err := st.count(context.Background(), th.id, "push_failed", th.at, countLateness)
					if err == nil {
						break
					}
					if !db.IsRetryable(err) {
						select {
						case failed <- err:
						default:
						}
						break
					}
				}
			}
		})
	}
	for i, th := range things(n, time.Unix(base, 0)) {
		if i%2 == share {
			work <- th
		}
	}
	close(work)
	wg.Wait()
	select {
	case err := <-failed:
		fmt.Fprintln(os.Stderr, err)
		return 1
	default:
		return 0
	}
}

// The buckets equal a naive recount, with two workers of which one is killed in the
// middle and its whole share is delivered again to another.
func TestCountersEqualANaiveRecount(t *testing.T) {
	n := 20_000
	if testenv.Soaking() {
		n = 200_000
	}
	b := newBench(t, testenv.MariaDB(t))
	base := time.Now().Truncate(time.Second)
	self, err := os.Executable()
	require.NoError(t, err)
	start := func(share int, name string) *testenv.Child {
		c, err := testenv.StartChild(testenv.ChildSpec{Path: self, Dir: t.TempDir(), Log: t.TempDir() + "/" + name, Env: []string{
			childDSN + "=" + b.s.DSN, childEvents + "=" + strconv.Itoa(n), childBase + "=" + strconv.FormatInt(base.Unix(), 10), childShare + "=" + strconv.Itoa(share),
		}})
		require.NoError(t, err)
		return c
	}
	first, victim := start(0, "first"), start(1, "victim")
	testenv.Eventually(t, 5*time.Minute, "half is counted", func() bool {
		return b.number(t, "SELECT COUNT(*) FROM mq_ops_counted") > n/4
	})
	require.NoError(t, victim.Kill())
	second := start(1, "second")
	for _, c := range []*testenv.Child{first, second} {
		select {
		case <-c.Done():
			require.Zero(t, c.ExitCode(), c.LogTail())
		case <-time.After(15 * time.Minute):
			t.Fatal("a worker does not end")
		}
	}

	want, apart := map[int64]int{}, 0
	seen := map[string]bool{}
	for _, th := range things(n, base) {
		switch {
		case seen[th.id]:
			continue
		case base.Sub(th.at) > countLateness:
			apart++
		default:
			want[th.at.Unix()/60]++
		}
		seen[th.id] = true
	}
	require.Equal(t, len(seen), b.number(t, "SELECT COUNT(*) FROM mq_ops_counted"))
	require.Equal(t, apart, b.number(t, "SELECT SUM(apart) FROM mq_ops_bucket"))
	require.Positive(t, apart)
	got := map[int64]int{}
	rows, err := b.pool.QueryContext(t.Context(), "SELECT FLOOR(UNIX_TIMESTAMP(minute) / 60), n FROM mq_ops_bucket WHERE n > 0")
	require.NoError(t, err)
	for rows.Next() {
		var minute int64
		var count int
		require.NoError(t, rows.Scan(&minute, &count))
		got[minute] = count
	}
	require.NoError(t, rows.Close())
	require.Equal(t, want, got)
}

func TestHandlerCountsOnce(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		c := newCounter(b.store, b.cfg.Sweep, b.metrics)
		now := time.Now()
		for _, tt := range []struct {
			th   thing
			want string
		}{
			{thing{"a", now}, "counted in_time"},
			{thing{"a", now}, "counted before"},
			{thing{"b", now.Add(-119 * time.Minute)}, "counted in_time"},
			{thing{"c", now.Add(-122 * time.Minute)}, "counted apart"},
			{thing{"d", now.Add(7 * time.Hour)}, "counted apart"},
		} {
			d := tt.th.delivery(t)
			id, err := c.RowID(d)
			require.NoError(t, err)
			require.Equal(t, "push_failed", id)
			out := c.Handle(t.Context(), id, d)
			require.Equal(t, eventbus.VerdictDone, out.Verdict)
			require.Equal(t, tt.want, out.Reason)
		}
		require.Equal(t, 2, b.number(t, "SELECT SUM(n) FROM mq_ops_bucket"))
		require.Equal(t, 2, b.number(t, "SELECT SUM(apart) FROM mq_ops_bucket"))
		require.Equal(t, 1, b.number(t, "SELECT SUM(n) FROM mq_ops_bucket WHERE minute >= NOW() - INTERVAL 2 MINUTE"), "by the business time, in the app's zone")
		for _, bad := range []string{"{}", `{"metric":"X y","country":"id","occurredAt":"2026-01-01T00:00:00Z"}`, `{"metric":"order_new","country":"my","occurredAt":"2026-01-01T00:00:00Z"}`} {
			_, err := c.RowID(eventbus.Delivery{Message: eventbus.Message{Key: "x", Body: []byte(bad)}})
			require.ErrorIs(t, err, event.ErrPayload, bad)
		}
		// A newer writer's metric is kept until a figure knows it.
		d := eventbus.Delivery{Message: eventbus.Message{Key: "n", Body: []byte(`{"metric":"new_thing","country":"id","occurredAt":"` + event.FormatTime(now) + `"}`)}}
		id, err := c.RowID(d)
		require.NoError(t, err)
		require.Equal(t, eventbus.VerdictDone, c.Handle(t.Context(), id, d).Verdict)
		require.Equal(t, 1, b.number(t, "SELECT n FROM mq_ops_bucket WHERE metric = 'new_thing'"))
	})
}
