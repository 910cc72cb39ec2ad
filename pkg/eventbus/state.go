package eventbus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// State is what is known of one subscription of this process.
type State struct {
	Topic, Group string
	// Running is true while Subscribe is at work. A subscription that halted is not.
	Running bool
	// Connected is true while the broker serves the subscription; LastError is what
	// ended that, and Since when Connected last changed.
	Connected bool
	LastError error
	Since     time.Time
	// Halted is true once the subscription gave up for good; LastError says why.
	Halted bool
	// InHand counts handlers that run; OldestInHand is the age of the oldest event
	// among them, counted from its creation, 0 when there is none.
	InHand       int
	OldestInHand time.Duration
	// LastSuccess is when an event was last finished without an error; zero if never.
	LastSuccess time.Time
	// Group figures as the broker gave them last; unknown while it does not answer.
	Backlog, InFlight, Parked driver.Count
	OldestAge                 driver.Age
	// Warnings are the bus's: settings of the broker with which events can be lost.
	Warnings []string
}

// Ready says whether the subscription can do its work, and if not, why, in words for
// a readiness answer. A reason with ok true is a warning.
func (s State) Ready() (ok bool, reason string) {
	switch {
	case s.Halted:
		return false, fmt.Sprintf("group %s halted: %v", s.Group, s.LastError)
	case !s.Running:
		return false, fmt.Sprintf("group %s is not subscribed", s.Group)
	case s.Connected:
		return true, strings.Join(s.Warnings, "; ")
	case s.LastError != nil:
		return false, fmt.Sprintf("group %s: broker unreachable since %s: %v", s.Group, s.Since.UTC().Format(time.RFC3339), s.LastError)
	}
	return false, fmt.Sprintf("group %s: not connected yet", s.Group)
}

// State returns the state of a group's subscription; a group that was never
// subscribed has the zero State.
func (b *Bus) State(group string) State {
	b.mu.Lock()
	s := b.states[group]
	b.mu.Unlock()
	if s == nil {
		return State{Group: group}
	}
	out := s.snapshot(time.Now())
	out.Warnings = b.Warnings()
	return out
}

// snapshot is the state of every group, for the metrics.
func (b *Bus) snapshot() []State {
	b.mu.Lock()
	states := slices.Collect(maps.Values(b.states))
	b.mu.Unlock()
	now := time.Now()
	out := make([]State, 0, len(states))
	for _, s := range states {
		out = append(out, s.snapshot(now))
	}
	return out
}

// state is the changing side of State.
type state struct {
	mu     sync.Mutex
	public State
	// first is the oldest of the runs at work, last the youngest.
	first, last *run
}

func newState(topic, group string) *state {
	return &state{public: State{Topic: topic, Group: group, Running: true, Since: time.Now()}}
}

func (s *state) snapshot(now time.Time) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.public
	for r := s.first; r != nil; r = r.next {
		out.InHand++
		out.OldestInHand = max(out.OldestInHand, now.Sub(r.created))
	}
	return out
}

func (s *state) update(change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.public)
}

// connected is a driver's report.
func (s *state) connected(ok bool, err error) {
	s.update(func(p *State) {
		if p.Connected != ok {
			p.Connected, p.Since = ok, time.Now()
		}
		if !ok {
			p.LastError = err
		}
	})
}

// take notes an event that a handler is to have.
func (s *state) take(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.prev = s.last
	if s.last != nil {
		s.last.next = r
	} else {
		s.first = r
	}
	s.last = r
}

func (s *state) release(r *run, now time.Time, success bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		s.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		s.last = r.prev
	}
	r.prev, r.next = nil, nil
	if success {
		s.public.LastSuccess = now
	}
}

// atWork are the runs at work.
func (s *state) atWork() []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*run
	for r := s.first; r != nil; r = r.next {
		out = append(out, r)
	}
	return out
}
