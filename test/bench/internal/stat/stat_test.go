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

func TestTurnsAreBalanced(t *testing.T) {
	require.Empty(t, stat.Turn([]string(nil), 3))
	require.Equal(t, []string{"a", "b"}, stat.Turn([]string{"a", "b"}, 0))
	require.Equal(t, []string{"b", "a"}, stat.Turn([]string{"a", "b"}, 1))
	for _, v := range [][]string{{"a", "b"}, {"a", "b", "c"}, {"a", "b", "c", "d"}, {"a", "b", "c", "d", "e"}} {
		begins, follows := map[string]int{}, map[string]int{}
		for n := range 2 * len(v) {
			order := stat.Turn(v, n)
			require.ElementsMatch(t, v, order)
			begins[order[0]]++
			for i := range order[1:] {
				follows[order[i]+order[i+1]]++
			}
		}
		for _, x := range v {
			require.Equal(t, 2, begins[x], "%s begins", x)
			for _, y := range v {
				if x != y {
					require.Equal(t, 2, follows[x+y], "%s after %s", y, x)
				}
			}
		}
	}
}
