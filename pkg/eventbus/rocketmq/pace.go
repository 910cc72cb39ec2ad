package rocketmq

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Bounds of the pause after a broker asked for a slower pace.
const (
	minPause = 100 * time.Millisecond
	maxPause = 10 * time.Second
)

// pace is the pause that all sends of a driver share. While it lasts nothing is sent:
// on a managed cluster a refused request counts against the quota as well.
type pace struct {
	mu    sync.Mutex
	until time.Time
	step  time.Duration
}

// left is how much of the pause remains, 0 if there is none.
func (p *pace) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, time.Until(p.until))
}

// slower begins a pause, twice as long as the one before. Answers to sends that were
// under way at the same time ask for one pause, not for many.
func (p *pace) slower() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.until) {
		return
	}
	p.step = min(max(2*p.step, minPause), maxPause)
	p.until = now.Add(p.step/2 + rand.N(p.step/2))
}

// fine notes a confirmed send.
func (p *pace) fine() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().After(p.until) {
		p.step = 0
	}
}
