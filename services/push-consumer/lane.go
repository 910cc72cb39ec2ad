package main

import (
	"sync"
	"time"
)

const (
	// queueAtMost is how long a push may wait for its place in the lane; what would
	// wait longer is put off instead of holding a handler.
	queueAtMost = 2 * time.Second
	// recovery is how long the lane takes from a standstill back to its full rate.
	recovery = time.Minute
	// stumblesAllowed failures in a row, with no answer of FCM's judgement between them,
	// close the lane: at first for pauseBase, doubling up to pauseMost.
	stumblesAllowed = 8
	pauseBase       = 2 * time.Second
	pauseMost       = 15 * time.Second
	// slowdownEvery keeps one spell of refusals, which many requests in flight meet at
	// once, from counting as many spells.
	slowdownEvery = time.Second
)

// lane paces this process's requests to FCM: so many a second, half as many after each
// spell of refusals, and growing back from there. It never refuses for longer than FCM
// asked for.
//
// It also closes for a few seconds when FCM is down or hangs. Otherwise a hanging FCM
// would hold every handler for the length of a time-out, and the pushes queueing behind
// would be overdue for a reason that the poll could not mend; with the lane closed they
// are put off one by one instead. Safe for concurrent use.
type lane struct {
	mu       sync.Mutex
	most     float64 // requests a second
	rate     float64
	next     time.Time // when the next request may leave
	closed   time.Time // nothing leaves before
	raised   time.Time
	slowedAt time.Time
	stumbles int           // failures in a row
	pause    time.Duration // for which they closed the lane last
}

func newLane(perSecond int) *lane {
	return &lane{most: float64(perSecond), rate: float64(perSecond), raised: time.Now()}
}

// enter reserves a place and returns how long to wait for it. When that would be too
// long, nothing is reserved and ok is false: come back after the wait.
func (l *lane) enter(now time.Time) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recover(now)
	if wait := l.closed.Sub(now); wait > 0 {
		return wait, false
	}
	start := now
	if l.next.After(now) {
		start = l.next
	}
	wait = start.Sub(now)
	if wait > queueAtMost {
		return wait, false
	}
	l.next = start.Add(l.interval())
	return wait, true
}

// charge counts requests beyond the one that a place was reserved for.
func (l *lane) charge(now time.Time, requests int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if requests <= 0 {
		return
	}
	l.recover(now)
	if l.next.Before(now) {
		l.next = now
	}
	l.next = l.next.Add(time.Duration(requests) * l.interval())
}

func (l *lane) interval() time.Duration { return time.Duration(float64(time.Second) / l.rate) }

// slow halves the rate and, with a pause, closes the lane for that long.
func (l *lane) slow(now time.Time, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := now.Add(pause); until.After(l.closed) {
		l.closed = until
	}
	if now.Sub(l.slowedAt) < slowdownEvery {
		return
	}
	l.recover(now)
	l.slowedAt = now
	l.rate = max(1, l.rate/2)
}

// worked notes that FCM answers.
func (l *lane) worked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stumbles, l.pause = 0, 0
}

// stumbled notes a request that got no answer, or that FCM could not deal with. Those
// that were in flight when the lane closed do not close it again.
func (l *lane) stumbled(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stumbles++; l.stumbles < stumblesAllowed || l.closed.After(now) {
		return
	}
	l.pause = min(max(pauseBase, 2*l.pause), pauseMost)
	l.closed = now.Add(l.pause)
}

// recover lets the rate grow with the time that the lane was open.
func (l *lane) recover(now time.Time) {
	since := l.raised
	if l.closed.After(since) {
		since = l.closed
	}
	if d := now.Sub(since); d > 0 {
		l.rate = min(l.most, l.rate+l.most*d.Seconds()/recovery.Seconds())
		l.raised = now
	}
}

// state is for metrics.
func (l *lane) state(now time.Time) (rate float64, closedFor time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recover(now)
	return l.rate, max(0, l.closed.Sub(now))
}
