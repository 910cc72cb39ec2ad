package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The head is halved only while what lies behind it passes each time.
func TestSuspectHalvesTheHeadOnlyWithAnAlibi(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	failed := func(n int) passResult { return passResult{claimed: n, last: t0.Add(time.Duration(n)), lastID: "a"} }
	var s suspect
	for range 50 { // an outage: neither passes
		require.Equal(t, outageRows, s.rows())
		s.headFailed(failed(outageRows))
		require.True(t, s.behind)
		s.behindFailed(failed(outageRows))
		require.False(t, s.isolated(1), "one row that waits in an outage is not to blame")
	}
	s.headFailed(failed(outageRows))
	s.behindPassed(passResult{confirmed: 3})
	for want := outageRows; want > 1; want /= 2 {
		require.Equal(t, want, s.rows())
		require.False(t, s.isolated(1), "not yet")
		s.headFailed(failed(want))
		require.False(t, s.isolated(1), "not before what is behind has passed once more")
		s.behindPassed(passResult{confirmed: 3})
	}
	require.True(t, s.isolated(1))
	require.False(t, s.isolated(2))
	s.headFailed(failed(1))
	s.behindPassed(passResult{})
	require.False(t, s.isolated(1), "nothing behind, so no alibi")
	s.headPassed(passResult{claimed: 1, more: true, last: t0.Add(time.Hour)})
	require.Equal(t, suspect{}, s, "past the failed rows")
}

func TestSuspicionLastsUntilTheFailedRowsAreThrough(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := suspect{on: true, limit: 4, after: place{at: t0, id: "m"}}
	s.headPassed(passResult{claimed: 4, more: true, last: t0, lastID: "c"})
	require.True(t, s.on)
	require.Equal(t, 8, s.rows())
	s.headPassed(passResult{claimed: 8, more: true, last: t0, lastID: "m"})
	require.False(t, s.on)
	s = suspect{on: true, limit: 4, after: place{at: t0, id: "m"}}
	s.headPassed(passResult{claimed: 2})
	require.False(t, s.on, "nothing else waits")
}

func TestASlowBrokerGetsSmallerBatches(t *testing.T) {
	s := sizer{maxRows: 500, maxBytes: 1 << 20}
	s.published(500, 600*time.Millisecond, time.Second)
	require.Equal(t, 250, s.limit(500))
	for range 20 {
		s.published(s.limit(500), time.Second, time.Second)
	}
	require.Equal(t, 1, s.limit(500))
	s.published(1, 300*time.Millisecond, time.Second)
	require.Equal(t, 1, s.limit(500), "neither slow nor fast")
	for range 9 {
		s.published(s.limit(500), time.Millisecond, time.Second)
	}
	require.Equal(t, 500, s.limit(500))
}

func TestASlowTailIsLookedAtSeldom(t *testing.T) {
	var p pace
	now := time.Now()
	require.True(t, p.tailDue(now))
	p.sawTail(now, tipAbove)
	require.True(t, p.tailDue(now))
	p.sawTail(now, 10*time.Millisecond)
	require.False(t, p.tailDue(now.Add(89*time.Millisecond)))
	require.True(t, p.tailDue(now.Add(90*time.Millisecond)))
	p.sweptBeside(now, time.Second)
	require.False(t, p.sweepDue(now.Add(18*time.Second)))
	require.True(t, p.sweepDue(now.Add(19*time.Second)))
}
