package stat_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/test/bench/internal/stat"
)

func TestMedian(t *testing.T) {
	v := []float64{9, 1, 5}
	require.Equal(t, 5.0, stat.Median(v))
	require.Equal(t, []float64{9, 1, 5}, v, "its argument is left alone")
	require.Equal(t, 3.0, stat.Median([]float64{4, 1, 9, 2}))
	require.True(t, math.IsNaN(stat.Median(nil)))
}

func TestRatiosArePairwise(t *testing.T) {
	require.Equal(t, []float64{2, 0.5}, stat.Ratios([]float64{4, 1, 7}, []float64{2, 2}))
}

func TestPercentileIsAMeasuredValue(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for p, want := range map[float64]int{0: 1, 1: 1, 50: 50, 99: 99, 99.5: 100, 100: 100} {
		require.Equal(t, want, stat.Percentile(hundred, p), "p%v", p)
	}
	require.Equal(t, 7, stat.Percentile([]int{7}, 99))
	require.Zero(t, stat.Percentile([]int(nil), 50))
}

func TestSpan(t *testing.T) {
	d := []time.Duration{3, 1, 2}
	require.Equal(t, stat.Span{N: 3, P50: 2, P99: 3, Max: 3}, stat.SpanOf(d))
	require.Equal(t, stat.Span{}, stat.SpanOf(nil))
}

func TestRotatedKeepsEveryone(t *testing.T) {
	v := []string{"a", "b", "c"}
	require.Equal(t, []string{"a", "b", "c"}, stat.Rotated(v, 0))
	require.Equal(t, []string{"c", "a", "b"}, stat.Rotated(v, 5))
	require.Empty(t, stat.Rotated([]string(nil), 3))
}
