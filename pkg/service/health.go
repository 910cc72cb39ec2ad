package service

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// health knows the heartbeats and the readiness checks of a process.
type health struct {
	mu     sync.Mutex
	beats  map[string]*heart
	checks map[string]func() (bool, string)
	down   atomic.Bool
}

type heart struct {
	maxAge time.Duration
	last   atomic.Int64 // nanoseconds since began
	began  time.Time    // carries the monotonic clock
}

func (h *heart) beat()              { h.last.Store(int64(time.Since(h.began))) }
func (h *heart) age() time.Duration { return time.Since(h.began) - time.Duration(h.last.Load()) }

func newHealth() *health {
	return &health{beats: map[string]*heart{}, checks: map[string]func() (bool, string){}}
}

func (h *health) heartbeat(name string, maxAge time.Duration) func() {
	b := &heart{maxAge: maxAge, began: time.Now()}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beats[name] = b
	return b.beat
}

func (h *health) ready(name string, check func() (bool, string)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks[name] = check
}

func (h *health) stopping() { h.down.Store(true) }

// Report is the answer of /livez and /readyz.
type Report struct {
	OK      bool              `json:"ok"`
	Reasons map[string]string `json:"reasons,omitzero"`
}

// live says which loops do not beat.
func (h *health) live() Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Report{OK: true, Reasons: map[string]string{}}
	for name, b := range h.beats {
		if age := b.age(); age > b.maxAge {
			r.OK = false
			r.Reasons[name] = fmt.Sprintf("no heartbeat for %s, at most %s are allowed", age.Round(time.Millisecond), b.maxAge)
		}
	}
	return r
}

// readiness asks all checks. They run outside the lock: a check may register another.
func (h *health) readiness() Report {
	h.mu.Lock()
	names := make([]string, 0, len(h.checks))
	checks := make(map[string]func() (bool, string), len(h.checks))
	for name, check := range h.checks {
		names = append(names, name)
		checks[name] = check
	}
	h.mu.Unlock()
	sort.Strings(names)
	r := Report{OK: true, Reasons: map[string]string{}}
	for _, name := range names {
		ok, reason := checks[name]()
		r.OK = r.OK && ok
		if reason != "" {
			r.Reasons[name] = reason
		}
	}
	if h.down.Load() {
		r.OK = false
		r.Reasons["process"] = "stopping"
	}
	return r
}
