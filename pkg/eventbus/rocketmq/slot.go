package rocketmq

import (
	"context"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// slot runs one callback at a time, always on the same goroutine: the client makes a
// new one for each message, whose stack would have to grow anew each time.
type slot struct {
	work  chan *turn
	out   chan driver.Outcome
	ended <-chan struct{}
}

// turn is one message on a slot, and the context of its callback.
type turn struct {
	context.Context
	s         *slot
	f         func(ctx context.Context) driver.Outcome
	abandoned bool
}

// Abandon implements driver.Run: the outcome is known, the slot is not free.
func (t *turn) Abandon(out driver.Outcome) {
	t.abandoned = true
	t.s.out <- out
}

// newSlots starts n slots. They end when ended is closed and their callback, if they
// run one, has returned.
func newSlots(n int, ended <-chan struct{}) chan *slot {
	slots := make(chan *slot, n)
	for range n {
		slots <- newSlot(ended)
	}
	return slots
}

func newSlot(ended <-chan struct{}) *slot {
	s := &slot{work: make(chan *turn), out: make(chan driver.Outcome, 1), ended: ended}
	go s.loop()
	return s
}

func (s *slot) loop() {
	for {
		select {
		case t := <-s.work:
			out := t.f(t)
			if t.abandoned {
				return // written off
			}
			s.out <- out
		case <-s.ended:
			return
		}
	}
}

// run returns f's outcome, and the slot for the next message: another one if f hangs or
// has ended its goroutine. Once the slots have ended, f is not run: false.
func (s *slot) run(ctx context.Context, f func(ctx context.Context) driver.Outcome) (out driver.Outcome, next *slot, ok bool) {
	t := &turn{Context: ctx, s: s, f: f}
	select {
	case s.work <- t:
	case <-s.ended:
		return driver.Outcome{}, s, false
	}
	out = <-s.out
	if t.abandoned {
		return out, newSlot(s.ended), true
	}
	return out, s, true
}
