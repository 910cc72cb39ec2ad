package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLanePacesAndPutsOff(t *testing.T) {
	l := newLane(10)
	now := time.Now()
	for i := range 21 {
		wait, ok := l.enter(now)
		require.True(t, ok)
		require.Equal(t, time.Duration(i)*100*time.Millisecond, wait)
	}
	wait, ok := l.enter(now)
	require.False(t, ok, "a longer queue would hold handlers")
	require.Greater(t, wait, queueAtMost)
	_, ok = l.enter(now.Add(time.Second))
	require.True(t, ok, "what was refused reserved nothing")
}

func TestLaneSlowsOncePerSpellAndRecovers(t *testing.T) {
	l := newLane(100)
	now := l.raised
	for range 50 { // all requests in flight meet the same spell
		l.slow(now, 10*time.Second)
	}
	rate, closed := l.state(now)
	require.InDelta(t, 50, rate, 0.01)
	require.Equal(t, 10*time.Second, closed)
	wait, ok := l.enter(now.Add(4 * time.Second))
	require.False(t, ok)
	require.Equal(t, 6*time.Second, wait)
	rate, _ = l.state(now.Add(10 * time.Second))
	require.InDelta(t, 50, rate, 0.01, "it does not recover while it is closed")
	rate, closed = l.state(now.Add(10*time.Second + recovery/2))
	require.InDelta(t, 100, rate, 0.01)
	require.Zero(t, closed)
	for i := range 30 {
		l.slow(now.Add(time.Duration(i+100)*time.Second), 0)
	}
	rate, _ = l.state(now.Add(129 * time.Second))
	require.GreaterOrEqual(t, rate, 1.0)
	l.charge(now.Add(200*time.Second), 3)
	l.charge(now.Add(200*time.Second), 0)
	wait, ok = l.enter(now.Add(200 * time.Second))
	require.True(t, ok)
	require.Positive(t, wait)
}

func TestLaneClosesWhenFCMIsDownAndOpensWithTheFirstAnswer(t *testing.T) {
	l := newLane(1000)
	now := l.raised
	for range stumblesAllowed - 1 {
		l.stumbled(now)
	}
	_, ok := l.enter(now)
	require.True(t, ok, "a few failures are about a few messages")
	for _, want := range []time.Duration{2, 4, 8, 15, 15} {
		for range 20 { // all that were in flight
			l.stumbled(now)
		}
		_, closed := l.state(now)
		require.Equal(t, want*time.Second, closed)
		now = now.Add(closed)
		_, ok := l.enter(now)
		require.True(t, ok, "somebody has to try")
	}
	l.worked()
	l.stumbled(now)
	_, ok = l.enter(now)
	require.True(t, ok)
}
