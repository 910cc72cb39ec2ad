package rocketmq

import "github.com/seahub/seahub-mq/pkg/eventbus/driver"

// slot runs one callback at a time, always on the same goroutine: the client makes a
// new one for each message, whose stack would have to grow anew each time.
type slot struct {
	work chan func() driver.Outcome
	out  chan driver.Outcome
}

// newSlots starts n slots. They end when ended is closed and their callback, if they
// run one, has returned.
func newSlots(n int, ended <-chan struct{}) chan *slot {
	slots := make(chan *slot, n)
	for range n {
		s := &slot{work: make(chan func() driver.Outcome), out: make(chan driver.Outcome, 1)}
		go s.loop(ended)
		slots <- s
	}
	return slots
}

func (s *slot) loop(ended <-chan struct{}) {
	for {
		select {
		case f := <-s.work:
			s.out <- f()
		case <-ended:
			return
		}
	}
}

func (s *slot) run(f func() driver.Outcome) driver.Outcome {
	s.work <- f
	return <-s.out
}
