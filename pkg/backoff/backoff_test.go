package backoff_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

func TestDelayStaysInBoundsHoweverOftenItFailed(t *testing.T) {
	p := backoff.Policy{Base: 100 * time.Millisecond, Max: 10 * time.Second}
	for _, attempt := range []int{math.MinInt, -1, 0, 1, 2, 5, 30, 63, 64, 65, 1000, math.MaxInt32, math.MaxInt} {
		for range 50 {
			d := p.Delay(attempt)
			require.GreaterOrEqual(t, d, p.Base/2, "attempt %d", attempt)
			require.LessOrEqual(t, d, p.Max, "attempt %d", attempt)
		}
	}
	for range 50 {
		require.LessOrEqual(t, p.Delay(1), p.Base)
		require.GreaterOrEqual(t, p.Delay(100), p.Max/2)
	}
	require.Zero(t, backoff.Policy{}.Delay(7))
}

func TestDelayIsJittered(t *testing.T) {
	p := backoff.Policy{Base: time.Second, Max: time.Minute}
	seen := map[time.Duration]bool{}
	for range 20 {
		seen[p.Delay(3)] = true
	}
	require.Greater(t, len(seen), 1)
}

func TestSleepEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, backoff.Sleep(ctx, time.Hour))
	require.False(t, backoff.Sleep(ctx, 0))
	require.True(t, backoff.Sleep(t.Context(), time.Microsecond))
}
