package redisstreams

import (
	"context"
	"sync"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// flight is one message in this member's hands, from the read until the server knows
// what became of it.
type flight struct {
	id    string
	count int64
	d     driver.Delivery

	// Guarded by flights.mu.
	cancel  context.CancelCauseFunc // set while the callback runs
	started time.Time               // when the callback began; zero before
	renewed time.Time               // when the lease last began, by our monotonic clock
	lost    bool                    // another member has it: do nothing more with it
}

// flights are all messages in this member's hands. Ids in it are never started again
// by this member, whatever the server hands out.
type flights struct {
	mu   sync.Mutex
	byID map[string]*flight
	// open counts those whose callback has not returned: buffered or running.
	open int
	// freed has a token after there became more room.
	freed chan struct{}
}

func newFlights() *flights {
	return &flights{byID: map[string]*flight{}, freed: make(chan struct{}, 1)}
}

// add takes a message into hand; nil when it is there already.
func (f *flights) add(id string, count int64, d driver.Delivery) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byID[id] != nil {
		return nil
	}
	fl := &flight{id: id, count: count, d: d, renewed: time.Now()}
	f.byID[id] = fl
	f.open++
	return fl
}

// start begins a callback; false means that the message was lost meanwhile.
func (f *flights) start(fl *flight, cancel context.CancelCauseFunc) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl.lost {
		return false
	}
	fl.started, fl.cancel = time.Now(), cancel
	return true
}

// finish ends the open part of a flight: its callback has returned, or never will run.
func (f *flights) finish(fl *flight) {
	f.mu.Lock()
	fl.cancel = nil
	f.open--
	f.mu.Unlock()
	f.wake()
}

// drop forgets flights that the server is done with.
func (f *flights) drop(fls ...*flight) {
	f.mu.Lock()
	for _, fl := range fls {
		delete(f.byID, fl.id)
	}
	f.mu.Unlock()
	f.wake()
}

func (f *flights) wake() {
	select {
	case f.freed <- struct{}{}:
	default:
	}
}

// unsettledMost is how many finished messages may wait for the server to hear of
// them, beside those of a full set of workers, before no more are taken into hand.
const unsettledMost = 1024

// room is how many more messages may be taken into hand for that many workers.
func (f *flights) room(workers int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(0, min(workers-f.open, workers+unsettledMost-len(f.byID)))
}

func (f *flights) has(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byID[id] != nil
}

func (f *flights) isLost(fl *flight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fl.lost
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
		if fl.cancel != nil {
			fl.cancel(cause)
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
		case fl.cancel != nil && time.Since(fl.started) > most:
			fl.cancel(errOverrun)
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

func (f *flights) leaseBegan(fl *flight) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fl.renewed
}
