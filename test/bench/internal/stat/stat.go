// Package stat condenses measurements.
package stat

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Median of v, which it leaves as it is; NaN of nothing. Of an even number it is the
// mean of the two in the middle.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid]
	}
	return (s[mid-1] + s[mid]) / 2
}

// Ratios divides a by b, pair by pair.
func Ratios(a, b []float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

// Percentile is the smallest of sorted that at least p percent are not above; the zero
// value of nothing.
func Percentile[T cmp.Ordered](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Span is what a set of durations comes to.
type Span struct {
	N        int
	P50, P99 time.Duration
	Max      time.Duration
}

// SpanOf condenses d, which it sorts.
func SpanOf(d []time.Duration) Span {
	slices.Sort(d)
	s := Span{N: len(d), P50: Percentile(d, 50), P99: Percentile(d, 99)}
	if len(d) > 0 {
		s.Max = d[len(d)-1]
	}
	return s
}

// Turn is the order of round n for those that are compared: each begins a round as often
// as any other, and no two follow each other in every round, since what one leaves to the
// server to tidy up is at the cost of the next. It is the design of E. J. Williams
// (Australian Journal of Scientific Research, 1949), balanced over as many rounds as there
// are elements, or twice as many where that is an odd number.
func Turn[T any](v []T, n int) []T {
	order := make([]T, 0, len(v))
	for i := range v {
		step := (i + 1) / 2 // 0, 1, -1, 2, -2 …
		if i > 0 && i%2 == 0 {
			step = len(v) - step
		}
		order = append(order, v[(step+n)%len(v)])
	}
	if len(v) > 0 && n/len(v)%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// Milliseconds of d, with its fraction.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
