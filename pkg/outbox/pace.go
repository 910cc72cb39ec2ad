package outbox

import (
	"math/rand/v2"
	"time"
)

const (
	// sweepBusy and sweepEvery are the waits between two looks at the whole queue,
	// while they find rows and otherwise.
	sweepBusy  = time.Second
	sweepEvery = 5 * time.Second
	// sweepShare bounds the part of the time that sweeps may take: a sweep that took
	// d is followed by at least sweepShare times d without one. While a backlog is
	// worked off they get less: what they find then has waited anyway.
	sweepShare        = 4
	sweepShareBacklog = 19

	probeMin = time.Millisecond
	probeMax = 3 * time.Millisecond
	// probeFor is how long after an event the tail is watched that closely. Then the
	// wait is a probeShare of the silence, up to probeIdle.
	probeFor   = 250 * time.Millisecond
	probeShare = 10
	probeIdle  = 250 * time.Millisecond

	// tipAbove is how long a look at the whole tail may take. If it takes longer (an
	// old snapshot keeps marked rows in it), most looks go to its end alone, and
	// whole ones take tailShare of the time at most.
	tipAbove  = time.Millisecond
	tailShare = 9
)

// pace decides when the relay looks where. It reads no clock: callers pass now, on the
// monotonic clock.
type pace struct {
	nextSweep time.Time
	lastEvent time.Time
	// nextTail is when the whole tail is looked at again.
	nextTail time.Time
}

// tailDue reports whether the whole tail is to be looked at, and not its end alone.
func (p *pace) tailDue(now time.Time) bool { return !now.Before(p.nextTail) }

// sawTail follows a look at the whole tail that found nothing and took so long.
func (p *pace) sawTail(now time.Time, took time.Duration) {
	if took > tipAbove {
		p.nextTail = now.Add(tailShare * took)
	}
}

func (p *pace) sweepDue(now time.Time) bool { return !now.Before(p.nextSweep) }

// swept plans the next sweep after one that found so many rows and took so long.
func (p *pace) swept(now time.Time, found int, took time.Duration) {
	wait := sweepEvery
	if found > 0 {
		wait = sweepBusy
	}
	p.nextSweep = now.Add(max(wait, sweepShare*took))
}

// sweptBeside does the same while a backlog is worked off.
func (p *pace) sweptBeside(now time.Time, took time.Duration) {
	p.nextSweep = now.Add(max(sweepBusy, sweepShareBacklog*took))
}

// looked plans the next look at the tail: at once while it is full, every 1 to 3 ms
// shortly after an event, then the later the longer nothing has come, since an event
// after a silence may wait for a part of it. The jitter keeps several relays from looking
// in step.
func (p *pace) looked(now time.Time, found int, full bool) time.Duration {
	if found > 0 {
		p.lastEvent = now
		if full {
			return 0
		}
	}
	silence := now.Sub(p.lastEvent)
	if silence < probeFor {
		return probeMin + rand.N(probeMax-probeMin)
	}
	wait := min(probeIdle, silence/probeShare)
	return wait/2 + rand.N(wait/2+1)
}

// sizer chooses the LIMIT of a claim, so that rows past the byte bound are rarely
// locked and sent for nothing.
type sizer struct {
	maxRows  int
	maxBytes int
	// perRow is what a row is expected to hold: it follows larger rows at once and
	// smaller ones slowly.
	perRow int
	// slowRows, unless 0, is what a slow broker takes in a fraction of its time.
	slowRows int
}

func (s *sizer) limit(want int) int {
	n := min(s.maxRows, want)
	if s.slowRows > 0 {
		n = min(n, s.slowRows)
	}
	if s.perRow > 0 {
		n = min(n, s.maxBytes/s.perRow+1)
	}
	return max(1, n)
}

func (s *sizer) learn(recs []Record) {
	size := 0
	for i := range recs {
		size += len(recs[i].Payload)
	}
	s.perRow = max(size/len(recs), s.perRow-s.perRow/8-1)
}

// published follows a send of n events. A broker so slow that a batch comes near its
// time gets smaller ones, or the end of each would be sent again and again; they grow
// back when it is fast.
func (s *sizer) published(n int, took, limit time.Duration) {
	switch {
	case took > limit/2:
		s.slowRows = max(1, n/2)
	case took < limit/8 && s.slowRows > 0:
		if s.slowRows *= 2; s.slowRows >= s.maxRows {
			s.slowRows = 0
		}
	}
}
