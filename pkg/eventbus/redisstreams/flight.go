package redisstreams

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// flight is one message in this member's hands, from the read until the server knows
// what became of it. It is the context of its callback.
type flight struct {
	driver.Lazy
	entry
	m *member

	// Guarded by flights.mu.
	running  bool
	finished bool      // what becomes of it is decided
	lost     bool      // another member has it: do nothing more with it
	started  time.Time // when the callback began
	renewed  time.Time // when the lease last began, by our monotonic clock
}

// Abandon implements driver.Run.
func (fl *flight) Abandon(out driver.Outcome) { fl.m.finish(fl, out, true) }

// flights are all messages in this member's hands. Ids in it are never started again
// by this member, whatever the server hands out.
//
// Workers are goroutines that live while there is something to start: one that finds
// the next message waiting goes on without a switch to another goroutine, which is what
// short handlers cost most. A worker whose callback hangs is written off and replaced.
type flights struct {
	most     int    // workers at a time
	work     func() // a worker's life
	outcomes *outcomes

	mu   sync.Mutex
	byID map[string]*flight
	// waiting are those that no worker has taken, in the order in which they came.
	waiting []*flight
	// open counts those whose callback has not returned: waiting or running.
	open    int
	workers int
	coming  bool // a new worker has not yet asked for its first message
	closed  bool
	idle    chan struct{} // closed when closed is set and nothing is open any more
	isIdle  bool
	waiters []*roomWaiter
}

type roomWaiter struct {
	least int
	ready chan struct{}
}

func newFlights(workers int, o *outcomes, work func()) *flights {
	return &flights{most: workers, outcomes: o, work: work, byID: map[string]*flight{}, idle: make(chan struct{})}
}

// add takes messages into hand and has them started. One that is in hand already is
// passed over, unless its callback is over or it belonged to someone else meanwhile: then
// the server has handed it out anew, and may have done so before its answer to the park
// was seen here. After close messages are given back.
func (f *flights) add(page []flight) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range page {
		fl := &page[i]
		if old := f.byID[fl.id]; old != nil && !old.finished && !old.lost {
			continue
		}
		fl.renewed = now
		f.byID[fl.id] = fl
		f.open++
		f.waiting = append(f.waiting, fl)
	}
	if f.closed {
		f.giveBack()
		return
	}
	f.startWorker()
}

// startWorker is called with mu held when there may be something for one more worker.
// One comes at a time: it sees to the next one itself, if there is need by then.
func (f *flights) startWorker() {
	if len(f.waiting) > 0 && !f.coming && f.workers < f.most {
		f.coming = true
		f.workers++
		go f.work() // ends when nothing waits; close and idle see to it
	}
}

// next is the message that a worker goes on with; nil ends the worker. first tells that
// it is the worker's first.
func (f *flights) next(first bool) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if first {
		f.coming = false
	}
	for len(f.waiting) > 0 {
		fl := f.waiting[0]
		f.waiting[0] = nil
		f.waiting = f.waiting[1:]
		if fl.lost {
			f.forget(fl)
			f.closeOne(fl)
			continue
		}
		fl.running, fl.started = true, time.Now()
		f.startWorker()
		return fl
	}
	f.workers--
	return nil
}

// finish ends the open part of a flight; false when that was done before. abandoned
// tells that its worker will not come back for another one.
func (f *flights) finish(fl *flight, s settlement, abandoned bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl.finished {
		return false
	}
	f.outcomes.put(s)
	f.closeOne(fl)
	if abandoned {
		f.workers--
		f.startWorker()
	}
	return true
}

func (f *flights) closeOne(fl *flight) {
	fl.finished, fl.running = true, false
	f.open--
	f.wake()
	f.tellIdle()
}

func (f *flights) tellIdle() {
	if f.closed && f.open == 0 && !f.isIdle {
		f.isIdle = true
		close(f.idle)
	}
}

// close ends the starting of callbacks, and gives back what waits for one. No attempt is
// spent. idle tells when those that run have ended.
func (f *flights) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.giveBack()
	f.tellIdle()
}

func (f *flights) giveBack() {
	for _, fl := range f.waiting {
		f.outcomes.put(settlement{fl: fl, count: undelivered(fl.count)})
		f.closeOne(fl)
	}
	f.waiting = nil
}

// unsettledMost is how many finished messages may wait for the server to hear of
// them, beside those of a full set of workers, before no more are taken into hand.
const unsettledMost = 1024

func (f *flights) room() int {
	return max(0, min(f.most-f.open, f.most+unsettledMost-len(f.byID)))
}

// awaitRoom waits until so many more messages may be taken into hand, and returns how
// many may be when the time is up or ctx ends.
func (f *flights) awaitRoom(ctx context.Context, least int, d time.Duration) int {
	f.mu.Lock()
	if room := f.room(); room >= least {
		f.mu.Unlock()
		return room
	}
	w := &roomWaiter{least, make(chan struct{})}
	f.waiters = append(f.waiters, w)
	f.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-timer.C:
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiters = slices.DeleteFunc(f.waiters, func(o *roomWaiter) bool { return o == w })
	return f.room()
}

// wake is called with mu held when there is more room.
func (f *flights) wake() {
	f.waiters = slices.DeleteFunc(f.waiters, func(w *roomWaiter) bool {
		enough := f.room() >= w.least
		if enough {
			close(w.ready)
		}
		return enough
	})
}

// drop forgets flights that the server is done with.
func (f *flights) drop(batch []settlement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range batch {
		f.forget(s.fl)
	}
	f.wake()
}

// forget leaves alone what has been handed out anew.
func (f *flights) forget(fl *flight) {
	if f.byID[fl.id] == fl {
		delete(f.byID, fl.id)
	}
}

// has tells whether a message is in hand here, and still taken for ours.
func (f *flights) has(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl := f.byID[id]
	return fl != nil && !fl.lost
}

// sort tells what of a round the server is to be told: not what it was told in an
// earlier try, nor what belongs to someone else now, which is forgotten.
func (f *flights) sort(batch []settlement) (acks, parks []settlement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range batch {
		switch {
		case f.byID[s.fl.id] != s.fl:
		case s.fl.lost:
			delete(f.byID, s.fl.id)
		case s.ack:
			acks = append(acks, s)
		default:
			parks = append(parks, s)
		}
	}
	f.wake()
	return acks, parks
}

// stale are those of a round whose lease began before t.
func (f *flights) stale(batch []settlement, t time.Time) (stale []*flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range batch {
		if f.byID[s.fl.id] == s.fl && !s.fl.lost && s.fl.renewed.Before(t) {
			stale = append(stale, s.fl)
		}
	}
	return stale
}

// lose marks flights that belong to someone else now and ends their callbacks.
func (f *flights) lose(ids []string, cause error) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		fl := f.byID[id]
		if fl == nil || fl.lost {
			continue
		}
		fl.lost = true
		n++
		if fl.running {
			fl.End(cause)
		}
	}
	return n
}

// older returns the flights whose lease began before t and still is ours. Those whose
// callback has run for longer than most are left out, and their callback's context
// ends: a lease must not be renewed for ever by a callback that never returns.
func (f *flights) older(t time.Time, most time.Duration) []*flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*flight
	for _, fl := range f.byID {
		switch {
		case fl.lost:
		case fl.running && time.Since(fl.started) > most:
			fl.End(errOverrun)
		case fl.renewed.Before(t):
			out = append(out, fl)
		}
	}
	return out
}

// renewedAt notes that the leases of fls began anew at t.
func (f *flights) renewedAt(t time.Time, fls []*flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fl := range fls {
		fl.renewed = t
	}
}
