package eventbustest

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus"
)

// A member that leaves finishes what it has started and gives back the rest at once,
// without spending an attempt.
func politeStop(s *scene) {
	leaver, stayer := s.process(), s.process()
	group := s.group("leave")
	msgs := s.messages(12, tagA)
	leaver.publish(msgs...)
	var finished, taken seen
	finish := make(chan struct{})
	sub := leaver.subscribe(eventbus.Subscription{Group: group, Concurrency: 2}, func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
		select {
		case <-finish:
			return finished.done(ctx, d)
		case <-ctx.Done():
			return eventbus.Retry(ctx.Err())
		}
	})
	s.eventually("the leaver is busy", func() bool { return leaver.State(group).InHand == 2 })
	sub.stop()
	stayer.subscribe(eventbus.Subscription{Group: group}, taken.done)
	if s.h.Traits.KeepsShareUntilDrained {
		close(finish)
		sub.end()
	}
	s.eventually("the others are taken", func() bool { return taken.count() >= len(msgs)-2 })
	if !s.h.Traits.KeepsShareUntilDrained {
		close(finish)
		sub.end()
	}
	if sub.err != nil {
		s.Errorf("Subscribe returned %v after a polite stop", sub.err)
	}
	s.noBacklog(stayer, group)
	for _, a := range append(taken.list(), finished.list()...) {
		if a.Attempt != 1 {
			s.Errorf("%s was delivered as attempt %d, none had failed", a.Key, a.Attempt)
		}
	}
	if finished.count() != 2 {
		s.Errorf("%d of two running handlers were let finish", finished.count())
	}
	if n := finished.count() + taken.count(); n != len(msgs) {
		s.Errorf("%d deliveries of %d messages", n, len(msgs))
	}
}

// Stop while nothing comes, while handlers run, and twice.
func stopIdleBusyTwice(s *scene) {
	p := s.process()
	idle := p.subscribe(eventbus.Subscription{Group: s.group("idle")}, func(context.Context, eventbus.Delivery) eventbus.Outcome { return eventbus.Done() }).connected()
	time.Sleep(50 * time.Millisecond)
	started := time.Now()
	idle.end()
	most := 300 * time.Millisecond
	if s.h.Traits.KeepsShareUntilDrained {
		most = 3 * time.Second // the client's own work with its broker is waited for
	}
	if took := time.Since(started); took > most {
		s.Errorf("a blocked subscription took %s to stop", took)
	}
	if st := p.State(idle.group); st.Running || st.Connected {
		s.Errorf("a stopped subscription says %+v", st)
	}

	var got seen
	busy := p.subscribe(eventbus.Subscription{Group: s.group("busy")}, func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
		got.add(d)
		time.Sleep(300 * time.Millisecond)
		return eventbus.Done()
	})
	p.publish(s.messages(1, tagA)...)
	s.eventually("the handler runs", func() bool { return got.count() == 1 })
	busy.end()
	busy.end()
	s.noBacklog(p, busy.group)
	if got.count() != 1 {
		s.Errorf("the running handler's result was thrown away: %d runs", got.count())
	}
	// The same group may be subscribed again.
	p.subscribe(eventbus.Subscription{Group: busy.group}, got.done).connected().end()
}

// A member can stop while its broker is away, with finished and unfinished events in
// hand; what the broker could not be told is delivered again.
func stopWhileUnreachable(s *scene) {
	p, other := s.process(), s.process()
	group := s.group("away")
	msgs := s.messages(40, tagA)
	other.publish(msgs...)
	var first, second seen
	end := make(chan struct{})
	sub := p.subscribe(eventbus.Subscription{Group: group}, func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
		first.add(d)
		<-end
		return eventbus.Done()
	})
	s.eventually("handlers run", func() bool { return first.count() == 4 })
	p.link.Cut()
	close(end)
	time.Sleep(100 * time.Millisecond)
	sub.end()
	if sub.err != nil {
		s.Errorf("Subscribe returned %v", sub.err)
	}
	other.subscribe(eventbus.Subscription{Group: group}, second.done)
	s.eventually("another member gets all that the broker does not know to be done", func() bool { return second.hasAll(msgs) })
	s.noBacklog(other, group)
}

// Handlers that are still at work when the drain time is over are cancelled, and that
// costs the event no attempt.
func drainTimeIsOver(s *scene) {
	p := s.process(func(c *eventbus.Config) { c.DrainTimeout, c.MaxAttempts = 200*time.Millisecond, 1 })
	group := s.group("drain")
	p.publish(s.messages(1, tagA)...)
	var cancelled atomic.Bool
	started := make(chan struct{}, 1)
	sub := p.subscribe(eventbus.Subscription{Group: group}, func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
		started <- struct{}{}
		<-ctx.Done()
		cancelled.Store(errors.Is(ctx.Err(), context.Canceled))
		return eventbus.Retry(ctx.Err())
	})
	receives(s, "the handler runs", started)
	sub.end()
	if !cancelled.Load() {
		s.Errorf("the handler's context did not end with the drain time")
	}
	if n := len(p.letters.list()); n != 0 {
		s.Errorf("a stop made %d dead letters", n)
	}
	var again seen
	s.process().subscribe(eventbus.Subscription{Group: group}, again.done)
	s.eventually("the event is delivered to another member", func() bool { return again.count() == 1 })
	if a := again.list()[0]; a.Attempt != 1 {
		s.Errorf("it comes as attempt %d, none had failed", a.Attempt)
	}
}

// A member that dies without a word: a sibling takes over what it had in hand.
func memberDiesSilently(s *scene) {
	dies := s.process(func(c *eventbus.Config) { c.DrainTimeout = 100 * time.Millisecond })
	lives := s.process()
	group := s.group("death")
	msgs := s.messages(8, tagA)
	lives.publish(msgs...)
	lost := make(chan struct{})
	s.Cleanup(func() { close(lost) })
	// Its handlers never come back and its broker never hears of it again: for the
	// broker that is a killed process.
	dies.subscribe(eventbus.Subscription{Group: group}, func(ctx context.Context, _ eventbus.Delivery) eventbus.Outcome {
		select {
		case <-lost:
		case <-ctx.Done():
		}
		return eventbus.Retry(errors.New("dead"))
	})
	s.eventually("the member has messages in hand", func() bool { return dies.State(group).InHand == 4 })
	dies.link.Cut()
	var got seen
	lives.subscribe(eventbus.Subscription{Group: group}, got.done)
	s.eventually("a sibling has finished everything", func() bool { return got.hasAll(msgs) })
	s.noBacklog(lives, group)
	for _, a := range got.list() {
		if a.Attempt != 1 {
			s.Errorf("%s came as attempt %d: one death is no failure", a.Key, a.Attempt)
		}
	}
}

// Members join and leave under load, 1 to 4 to 1: nothing is lost, and nothing is
// repeated, since nobody dies.
func membersComeAndGo(s *scene) {
	publisher := s.process()
	group := s.group("scale")
	msgs := s.messages(600, tagA)
	var got seen
	handler := func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
		time.Sleep(time.Millisecond)
		return got.done(ctx, d)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.h.Patience)
	defer cancel()
	published := make(chan error, 1)
	go func() { published <- publisher.publishAll(ctx, msgs, 10, 10*time.Millisecond) }()
	s.process().subscribe(eventbus.Subscription{Group: group}, handler).connected()
	var guests []*subscription
	for range 3 {
		guests = append(guests, s.process().subscribe(eventbus.Subscription{Group: group}, handler).connected())
	}
	for _, g := range guests {
		time.Sleep(50 * time.Millisecond)
		g.end()
	}
	if err := receives(s, "publishing ends", published); err != nil {
		s.Fatalf("publish under load: %v", err)
	}
	s.eventually("everything is delivered", func() bool { return got.hasAll(msgs) })
	s.noBacklog(publisher, group)
	s.once("members come and go", got.count(), len(msgs))
}

// Starting and stopping again and again leaves nothing behind.
func startStopLeaksNothing(s *scene) {
	p := s.process()
	group := s.group("stress")
	var got seen
	round := func() { p.subscribe(eventbus.Subscription{Group: group}, got.done).connected().end() }
	round()
	before := runtime.NumGoroutine()
	const rounds = 15
	for range rounds {
		round()
	}
	s.eventually("goroutines do not grow with each start and stop", func() bool {
		return runtime.NumGoroutine() <= before+rounds/2+rounds*s.h.Traits.GoroutinesPerStart
	})
	ctx, cancel := context.WithTimeout(context.Background(), s.h.Patience)
	defer cancel()
	g, err := p.Inspector().Group(ctx, s.topic, group)
	if err != nil || len(g.Members) != 0 {
		s.Errorf("after every member has left the group lists %v, %v", g.Members, err)
	}
	m := s.messages(1, tagA)
	p.publish(m...)
	p.subscribe(eventbus.Subscription{Group: group}, got.done)
	s.eventually("it still delivers", func() bool { return got.hasAll(m) })
}

// A second subscription of a group in one process is refused, and so is one that
// makes no sense.
func oneSubscriptionPerGroup(s *scene) {
	p := s.process()
	var got seen
	first := eventbus.Subscription{Topic: s.topic, Group: s.group("only"), Tags: []string{tagA}}
	p.subscribe(first, got.done).connected()
	ctx, cancel := context.WithTimeout(context.Background(), s.h.Patience)
	defer cancel()
	second := first
	second.Tags = []string{tagB}
	if err := p.Subscribe(ctx, second, eventbus.HandlerFunc(got.done)); !errors.Is(err, eventbus.ErrDuplicateSubscription) {
		s.Errorf("a second subscription of the group returned %v", err)
	}
	if err := p.Subscribe(ctx, eventbus.Subscription{Topic: s.topic}, eventbus.HandlerFunc(got.done)); !errors.Is(err, eventbus.ErrSubscription) {
		s.Errorf("a subscription without a group returned %v", err)
	}
	m := s.messages(1, tagA)
	p.publish(m...)
	s.eventually("the first one is not disturbed", func() bool { return got.hasAll(m) })
}
