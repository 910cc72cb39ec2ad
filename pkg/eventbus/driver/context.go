package driver

import (
	"context"
	"sync"
	"time"
)

// Run is the context of a callback whose driver can go on without it: when a handler
// hangs, Abandon is called from another goroutine, at most once, with the outcome. The
// callback does not return before Abandon has, so the driver hears of one outcome first
// and knows which; what it returns then is to be ignored. With any other context a
// callback always returns soon after its context ended, for the price of a goroutine.
type Run interface {
	context.Context
	Abandon(out Outcome)
}

// Lazy is a context with an end of its own, which costs nothing until somebody waits
// for it: then the standard library's contexts do the work. Most handlers of short work
// never ask. The zero Lazy is of no use; call Init.
type Lazy struct {
	parent   context.Context
	deadline time.Time // zero: none of its own

	mu     sync.Mutex
	real   context.Context // nil until somebody waited
	cancel context.CancelCauseFunc
	ended  bool
}

// Init must be called before anything else.
func (c *Lazy) Init(parent context.Context, deadline time.Time) {
	c.parent, c.deadline = parent, deadline
}

// Deadline implements context.Context.
func (c *Lazy) Deadline() (time.Time, bool) {
	theirs, ok := c.parent.Deadline()
	switch {
	case c.deadline.IsZero():
		return theirs, ok
	case ok && theirs.Before(c.deadline):
		return theirs, true
	}
	return c.deadline, true
}

// Done implements context.Context.
func (c *Lazy) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.make()
	return c.real.Done()
}

// make is called with mu held.
func (c *Lazy) make() {
	if c.real != nil {
		return
	}
	ctx, cancel := context.WithCancelCause(c.parent)
	c.real, c.cancel = ctx, cancel
	if !c.deadline.IsZero() {
		limited, stop := context.WithDeadline(ctx, c.deadline)
		c.real, c.cancel = limited, func(cause error) { cancel(cause); stop() }
	}
	if c.ended {
		c.cancel(nil)
	}
}

// Err implements context.Context.
func (c *Lazy) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.real != nil:
		return c.real.Err()
	case c.ended:
		return context.Canceled
	}
	if err := c.parent.Err(); err != nil {
		return err
	}
	if !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context. Of the real context the standard library learns
// cause and kinship.
func (c *Lazy) Value(key any) any {
	c.mu.Lock()
	from := c.real
	c.mu.Unlock()
	if from == nil {
		from = c.parent
	}
	return from.Value(key)
}

// End ends the context with a cause, or releases what it holds when cause is nil.
func (c *Lazy) End(cause error) {
	c.mu.Lock()
	if cause != nil {
		c.make()
	}
	c.ended = true
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}
