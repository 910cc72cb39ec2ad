package outbox

import (
	"fmt"
	"sync"
	"time"
)

// failingFor is how long publishing must have failed before the relay calls itself
// not ready: shorter ones are the broker's everyday.
const failingFor = 10 * time.Second

// Snapshot is what a relay knows of itself, without asking anybody.
type Snapshot struct {
	// Slot is the lease that it holds, -1 while it stands by.
	Slot int
	// LastPass is when it last looked at the queue, LastConfirm when the broker last
	// confirmed an event; zero if never.
	LastPass    time.Time
	LastConfirm time.Time
	// Failing is the class of failure while publishing fails, else "".
	Failing      string
	FailingSince time.Time
	// OldestFailing is the age of the oldest event of the last failed pass.
	OldestFailing time.Duration
	DatabaseError error
	DatabaseSince time.Time
}

// state is the shared form of Snapshot.
type state struct {
	mu sync.Mutex
	s  Snapshot
}

func newState() *state { return &state{s: Snapshot{Slot: -1}} }

func (st *state) set(f func(s *Snapshot)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	f(&st.s)
}

func (st *state) get() Snapshot {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.s
}

func (st *state) slot(n int) { st.set(func(s *Snapshot) { s.Slot = n }) }

func (st *state) passed() {
	st.set(func(s *Snapshot) {
		s.LastPass = time.Now()
		s.DatabaseError, s.DatabaseSince = nil, time.Time{}
	})
}

func (st *state) confirmed() { st.set(func(s *Snapshot) { s.LastConfirm = time.Now() }) }

func (st *state) failing(class Class, oldest time.Duration) {
	st.set(func(s *Snapshot) {
		if class == Confirmed {
			s.Failing, s.FailingSince, s.OldestFailing = "", time.Time{}, 0
			return
		}
		if s.Failing == "" {
			s.FailingSince = time.Now()
		}
		s.Failing, s.OldestFailing = class.String(), oldest
	})
}

func (st *state) databaseFailing(err error) {
	st.set(func(s *Snapshot) {
		if s.DatabaseError == nil {
			s.DatabaseSince = time.Now()
		}
		s.DatabaseError = err
	})
}

// ready: standing by is ready, it is what a standby is for.
func (s Snapshot) ready() (ok bool, reason string) {
	switch {
	case s.DatabaseError != nil:
		return time.Since(s.DatabaseSince) < failingFor, fmt.Sprintf("database fails since %s: %v", s.DatabaseSince.UTC().Format(time.RFC3339), s.DatabaseError)
	case s.Failing != "":
		return time.Since(s.FailingSince) < failingFor, fmt.Sprintf("publishing fails (%s) since %s", s.Failing, s.FailingSince.UTC().Format(time.RFC3339))
	case s.Slot < 0:
		return true, "standing by: another relay works"
	}
	return true, fmt.Sprintf("working in slot %d", s.Slot)
}
