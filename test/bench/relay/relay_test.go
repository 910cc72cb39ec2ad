package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/test/bench/internal/cli"
)

// keysOfResult are what readers of bench-relay.json rely on, neither more nor fewer.
var keysOfResult = []string{
	"cpu_s_per_100k", "duplicated", "floor_eps", "idle_cpu_pct", "idle_statements_per_s", "lost", "naive_eps",
	"p50_ms", "p99_ms", "pinned_eps", "relay2_eps", "relay_eps", "rss_mb",
}

// TestWholeRun runs the program on real servers, with sizes that prove nothing about
// speed. What it asserts is that the books balance and the results are all there.
func TestWholeRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out strings.Builder
	require.NoError(t, run(t.Context(), []string{
		"--events=4000", "--rounds=1", "--latency-seconds=1", "--writer-seconds=1",
		"--idle-seconds=1", "--poison-events=2000", "--timeline-seconds=3", "--out=" + dir,
	}, &out), "%s", &out)
	t.Log(out.String())

	var got map[string]float64
	read(t, filepath.Join(dir, "bench-relay.json"), &got)
	require.Equal(t, keysOfResult, slices.Sorted(maps.Keys(got)))
	require.Zero(t, got["lost"])
	for _, key := range []string{"floor_eps", "relay_eps", "relay2_eps", "naive_eps", "pinned_eps", "p50_ms", "p99_ms", "rss_mb"} {
		require.Positive(t, got[key], key)
	}

	var r raw
	read(t, filepath.Join(dir, "bench-relay-raw.json"), &r)
	for _, c := range contenders {
		require.Len(t, r.Drains[c.key], 1, c.key)
		require.Zero(t, r.Drains[c.key][0].books, "%s: nothing was broken here, so nothing is sent twice", c.key)
	}
	for _, c := range []string{clean, poisoned} {
		require.Len(t, r.Poison[c], 1, c)
		require.Zero(t, r.Poison[c][0].books, c)
	}
	for _, k := range kinds() {
		require.Len(t, r.Late[k], 1, k)
		require.Positive(t, r.Late[k][0].N, k)
	}
	require.Zero(t, r.Books.Strange)
	// A batch may be sent twice at each outage: its answers were lost with the broker.
	require.LessOrEqual(t, r.Books.Duplicated, 2*r.Batch)

	svg, err := os.ReadFile(filepath.Join(dir, "bench-relay.svg"))
	require.NoError(t, err)
	require.Contains(t, string(svg), "broker down")
	require.NotContains(t, string(svg), "NaN")
}

func read(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
}

// TestAnInterruptEndsARun: with servers, relay and writers at work, and it leaves none
// of them behind.
func TestAnInterruptEndsARun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	steps := make(chan string, 100)
	ended := make(chan error, 1)
	go func() { // ends with ctx at the latest, and is waited for
		ended <- run(ctx, []string{"--only=latency", "--latency-seconds=1", "--rounds=1000", "--out=" + t.TempDir()}, lines(steps))
	}()
	limit := time.After(2 * time.Minute)
	for measured := false; !measured; {
		select {
		case step := <-steps:
			measured = strings.Contains(step, "latency 1/")
		case err := <-ended:
			t.Fatal("ended by itself: ", err)
		case <-limit:
			t.Fatal("it does not get to work")
		}
	}
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-limit:
		t.Fatal("the run went on after its context had ended")
	}
}

// lines hands on what is written, step by step.
type lines chan<- string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default: // nobody reads any more
	}
	return len(p), nil
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{{"--db=oracle"}, {"--only=drain,dance"}, {"--events=0"}, {"more"}} {
		require.ErrorIs(t, run(t.Context(), args, &strings.Builder{}), cli.ErrUsage, args)
	}
}

// stored is a broker that holds messages with these keys.
type stored struct {
	topic
	keys []string
}

func (s stored) each(_ context.Context, f func(string)) error {
	for _, k := range s.keys {
		f(k)
	}
	return nil
}

func TestBooksTellLossFromRepetition(t *testing.T) {
	got, err := balance(t.Context(), stored{keys: []string{"push:10", "push:12", "push:12", "push:12", "push:14", "push:9", "coupon:10", "push:x"}}, 10, 4)
	require.NoError(t, err)
	require.Equal(t, books{Lost: 2, Duplicated: 2, Strange: 4}, got) // 11 and 13; 12 twice too often; 14, 9 and two others

	got, err = balance(t.Context(), stored{keys: []string{"push:1", "push:0"}}, 0, 2)
	require.NoError(t, err)
	require.Zero(t, got)
}

func TestRateAndFlatness(t *testing.T) {
	var even, slowing []point
	for i := range 31 {
		even = append(even, point{time.Duration(i) * time.Second, 100 * i})
		slowing = append(slowing, point{time.Duration(i*i) * time.Second, 100 * i})
	}
	require.InDelta(t, 100, rate(even), 1e-9)
	require.InDelta(t, 1, flatness(even), 1e-9)
	require.InDelta(t, 0.2, flatness(slowing), 1e-9) // 10 s for the first thousand, 500/10 for the last
	require.Zero(t, rate(nil))
	require.Zero(t, rate(even[:1]))
	require.InDelta(t, 1, flatness(even[:2]), 1e-9)
}

func TestTimelineOfALoad(t *testing.T) {
	ms := func(v ...int) []time.Duration {
		out := make([]time.Duration, len(v))
		for i := range v {
			out[i] = time.Duration(v[i]) * time.Millisecond
		}
		return out
	}
	l := &load{committed: ms(10, 20, 260, 270), readable: ms(12, 500, 259, 600)}
	require.Equal(t, ms(2, 480, 0, 330), l.latencies(), "what is readable before its writer knows took no time")
	require.Equal(t, 500*time.Millisecond, l.clear(100*time.Millisecond))

	var backlog []float64
	for _, p := range l.backlog(100 * time.Millisecond) {
		backlog = append(backlog, p.Y)
	}
	require.Equal(t, []float64{0, 1, 1, 2, 2, 2, 1, 0}, backlog)

	p50, p99 := l.spans(250 * time.Millisecond)
	require.Len(t, p50, 2)
	require.InDelta(t, 480, p99[0].Y, 1e-9)
	require.InDelta(t, 0.375, p50[1].X, 1e-9)
}

func TestKindsOfWriters(t *testing.T) {
	n := map[string]int{}
	for i := range oddAll() {
		n[kindOf(i)]++
	}
	require.Equal(t, map[string]int{ordinary: slowRate, lateCommit: oddRate, wholeSeconds: oddRate, hoursAhead: oddRate, hoursBehind: oddRate}, n)
	require.Equal(t, "yes", within([]latency{{Max: 4999}}))
	require.Equal(t, "no (5.1 s)", within([]latency{{Max: 10}, {Max: 5100}}))
}
