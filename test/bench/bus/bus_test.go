package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/test/bench/internal/cli"
)

// TestWholeRun runs the program on a real server, with sizes that prove nothing about
// speed: every message must be stored and acknowledged both ways, or it fails.
func TestWholeRun(t *testing.T) {
	dir := t.TempDir()
	var out strings.Builder
	require.NoError(t, run(t.Context(), []string{
		"--messages=1003", "--batch=100", "--concurrency=8", "--pairs=1", "--slices=2", "--out=" + dir,
		"--cpuprofile=" + filepath.Join(dir, "cpu.prof"),
	}, &out), out.String())
	require.Contains(t, out.String(), "consume, messages/s")

	text, err := os.ReadFile(filepath.Join(dir, "bench-bus.json"))
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(text, &got))
	for _, key := range []string{
		"publish_ratio", "consume_ratio", "provider", "broker", "go", "cpus", "at",
		"messages", "body_bytes", "batch", "concurrency", "pairs", "slices", "ours", "bare", "median",
	} {
		require.Contains(t, got, key)
	}
	require.Positive(t, got["publish_ratio"])
	require.Positive(t, got["consume_ratio"])
	require.Len(t, got["ours"], 1)
	require.Contains(t, got["broker"], "Redis ", "the server's version is told")
}

func TestTheCorpusIsWhatTheRelaySends(t *testing.T) {
	msgs := corpus(sizes{Batch: 3, BodyBytes: 400})
	require.Len(t, msgs, 3)
	for _, m := range msgs {
		require.Len(t, m.Body, 400)
		require.True(t, json.Valid(m.Body))
		require.Len(t, m.Headers, 8)
	}
	require.NotEqual(t, msgs[0].Key, msgs[1].Key)
	require.NotEqual(t, msgs[0].Headers["outbox-id"], msgs[1].Headers["outbox-id"])
}

func TestBatchesEndWithTheRemainder(t *testing.T) {
	var got []int
	require.NoError(t, batches(t.Context(), []int{1, 2, 3}, 8, func(b []int) error {
		got = append(got, len(b))
		return nil
	}))
	require.Equal(t, []int{3, 3, 2}, got)
}

func TestRatiosArePairedBeforeTheMedian(t *testing.T) {
	r := newReport(options{}, "", "ours", "bare")
	for _, pair := range [][2]float64{{90, 100}, {9, 10}, {50, 40}} {
		r.add(sample{PublishRate: pair[0], ConsumeRate: pair[0]}, sample{PublishRate: pair[1], ConsumeRate: 2 * pair[1]})
	}
	r.conclude()
	require.InDelta(t, 0.9, r.PublishRatio, 1e-9)
	require.InDelta(t, 0.45, r.ConsumeRatio, 1e-9)
	require.InDelta(t, 50.0, r.Median.Ours.PublishRate, 1e-9)
}

func TestWrongUsage(t *testing.T) {
	for _, args := range [][]string{{"--provider=kafka"}, {"--messages=5", "--slices=10"}, {"--pairs=-1"}} {
		require.ErrorIs(t, run(t.Context(), args, &strings.Builder{}), cli.ErrUsage, args)
	}
}
