package eventbustest

import (
	"context"
	"errors"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus"
)

// load publishes messages for a while and consumes them, lets fault happen in the
// middle, and asks that everything confirmed is delivered.
func (s *scene) load(fault func(publisher, consumer *process)) {
	s.Helper()
	publisher, consumer := s.process(), s.process()
	group := s.group("load")
	msgs := s.messages(400, tagA)
	var got seen
	sub := consumer.subscribe(eventbus.Subscription{Group: group}, func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
		time.Sleep(time.Millisecond)
		return got.done(ctx, d)
	}).connected()
	ctx, cancel := context.WithTimeout(context.Background(), s.h.Patience)
	defer cancel()
	published := make(chan error, 1)
	go func() { published <- publisher.publishAll(ctx, msgs, 8, 10*time.Millisecond) }()
	s.eventually("the load runs", func() bool { return got.count() > 50 })
	beats := sub.beats.Load()
	fault(publisher, consumer)
	if err := receives(s, "publishing ends", published); err != nil {
		s.Fatalf("publish: %v", err)
	}
	s.eventually("everything is delivered", func() bool { return got.hasAll(msgs) })
	s.noBacklog(consumer, group)
	s.eventually("the subscription says that it is served", func() bool {
		ok, _ := consumer.State(group).Ready()
		return ok
	})
	if sub.beats.Load() == beats {
		s.Errorf("the subscription showed no sign of life during the fault")
	}
	// One line a message would be a flood when it matters most.
	if n := s.logs.count(); n > 100 {
		s.Errorf("%d log lines", n)
	}
}

// Connections break in the middle of the load, several times.
func connectionDropped(s *scene) {
	s.load(func(publisher, consumer *process) {
		for range 5 {
			consumer.link.Drop()
			publisher.link.Drop()
			time.Sleep(100 * time.Millisecond)
		}
		consumer.link.Cut()
		s.eventually("a cut subscription says so", func() bool {
			st := consumer.State(s.group("load"))
			return !st.Connected && st.LastError != nil
		})
		consumer.link.Restore()
		consumer.link.Stall()
		s.eventually("a subscription whose broker says nothing says so", func() bool {
			return !consumer.State(s.group("load")).Connected
		})
		consumer.link.Restore()
	})
}

// The broker is killed and started again on its data in the middle of the load.
func brokerRestarted(s *scene) {
	s.load(func(_, _ *process) {
		s.room.Broker.Kill(s)
		time.Sleep(300 * time.Millisecond)
		s.room.Broker.Start(s)
		time.Sleep(200 * time.Millisecond)
		s.room.Broker.Stop(s)
		s.room.Broker.Start(s)
	})
}

// The broker says nothing for longer than every timeout, and goes on.
func brokerFrozen(s *scene) {
	s.load(func(publisher, consumer *process) {
		s.room.Broker.Freeze(s)
		s.eventually("the subscription says that it is not served", func() bool { return !consumer.State(s.group("load")).Connected })
		s.publishFails(publisher)
		s.room.Broker.Thaw(s)
	})
}

// Topic and group vanish in the middle of the load, as after a restart without data:
// the consumer comes back by itself and gets what is published from then on.
func topicForgotten(s *scene) {
	p := s.process()
	group := s.group("forgotten")
	var got seen
	p.subscribe(eventbus.Subscription{Group: group}, got.done).connected()
	before, after := s.messages(20, tagA), s.messages(20, tagB)
	p.publish(before...)
	s.eventually("it works", func() bool { return got.hasAll(before) })
	s.room.Forget(s)
	p.publish(after...) // perhaps before the group is back
	s.eventually("what came after is delivered", func() bool { return got.hasAll(after) })
	s.noBacklog(p, group)
}

// Group and topic vanish while events are published and handlers run. What the broker
// confirmed before it forgot may be gone, as it is after any loss of its data; what is
// published after that is delivered, and so is everything that is published again,
// under the same keys. Nothing that is in hand at that moment stops the consumer.
func forgottenInMidLoad(s *scene) {
	publisher, consumer := s.process(), s.process()
	group := s.group("amnesia")
	msgs := s.messages(600, tagA)
	var got seen
	consumer.subscribe(eventbus.Subscription{Group: group}, func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
		time.Sleep(time.Millisecond)
		if d.Attempt == 1 && d.Key[len(d.Key)-1] == '7' {
			return eventbus.Retry(errTry) // so that some are parked at that moment, too
		}
		return got.done(ctx, d)
	}).connected()
	ctx, cancel := context.WithTimeout(context.Background(), s.h.Patience)
	defer cancel()
	published := make(chan error, 1)
	go func() { published <- publisher.publishAll(ctx, msgs, 8, 10*time.Millisecond) }()
	if s.room.ForgetGroup != nil {
		s.eventually("the load runs", func() bool { return got.count() > 50 })
		s.room.ForgetGroup(s, group)
	}
	s.eventually("the load goes on", func() bool { return got.count() > 150 })
	s.room.Forget(s)
	last := s.messages(20, tagB)
	publisher.publish(last...) // at once, most likely before the group is back
	if err := receives(s, "publishing ends", published); err != nil {
		s.Fatalf("publish: %v", err)
	}
	s.eventually("what came after the loss is delivered", func() bool { return got.hasAll(last) })
	s.noBacklog(consumer, group)
	var lost []eventbus.Message
	keys := got.keys()
	for _, m := range msgs {
		if keys[m.Key] == 0 {
			lost = append(lost, m)
		}
	}
	publisher.publish(lost...)
	s.eventually("what was lost is delivered once it is published again", func() bool { return got.hasAll(msgs) })
	s.noBacklog(consumer, group)
	if ok, why := consumer.State(group).Ready(); !ok {
		s.Errorf("the subscription is not ready afterwards: %s", why)
	}
	if n := s.logs.count(); n > 400 {
		s.Errorf("%d log lines", n)
	}
}

// publishFails checks that a publish which cannot work is over in time and says so
// for every message.
func (s *scene) publishFails(p *process) {
	s.Helper()
	const limit = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	msgs := s.messages(1500, tagC)
	started := time.Now()
	results := p.Publisher().PublishBatch(ctx, msgs)
	if took := time.Since(started); took > 3*limit {
		s.Errorf("publishing took %s, the deadline was %s", took, limit)
	}
	for i, r := range results {
		if r.Status != eventbus.Unavailable || r.Err == nil {
			s.Fatalf("message %d of an unreachable broker: %s, %v", i, r.Status, r.Err)
		}
	}
	if len(results) != len(msgs) {
		s.Fatalf("%d results for %d messages", len(results), len(msgs))
	}
}

// A broker that refuses connections and one that accepts and says nothing: publishing
// ends by its deadline, as Unavailable, and works again afterwards.
func publishUnreachable(s *scene) {
	p := s.process()
	p.publish(s.messages(1, tagA)...)
	p.link.Cut()
	s.publishFails(p)
	p.link.Restore()
	p.publish(s.messages(1, tagA)...)
	p.link.Stall()
	s.publishFails(p)
	p.link.Restore()
	s.eventually("it works again", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return p.Publisher().Publish(ctx, s.topic, tagA, "again", []byte("{}")) == nil
	})
	// Without a deadline of the caller's the driver's own bound holds.
	p.link.Stall()
	done := make(chan error, 1)
	go func() { done <- p.Publisher().Publish(context.Background(), s.topic, tagA, "bound", []byte("{}")) }()
	err := receives(s, "publishing without a deadline ends", done)
	var pe *eventbus.PublishError
	if !errors.As(err, &pe) || pe.Status != eventbus.Unavailable {
		s.Errorf("publishing into silence returned %v", err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, r := range p.Publisher().PublishBatch(cancelled, s.messages(2, tagA)) {
		if r.Status != eventbus.Unavailable || !errors.Is(r.Err, context.Canceled) {
			s.Errorf("publishing with a cancelled context: %s, %v", r.Status, r.Err)
		}
	}
}

// After Close everything says that it is closed, and closing again is harmless.
func publishAfterClose(s *scene) {
	p := s.process()
	var got seen
	sub := p.subscribe(eventbus.Subscription{Group: s.group("closed")}, got.done).connected()
	ctx, cancel := context.WithTimeout(context.Background(), s.h.Patience)
	defer cancel()
	for range 2 {
		if err := p.Close(ctx); err != nil {
			s.Errorf("close: %v", err)
		}
	}
	<-sub.done
	if sub.err != nil {
		s.Errorf("Close ended the subscription with %v", sub.err)
	}
	for _, r := range p.Publisher().PublishBatch(ctx, s.messages(2, tagA)) {
		if r.Status != eventbus.Unavailable || !errors.Is(r.Err, eventbus.ErrClosed) {
			s.Errorf("publishing after Close: %s, %v", r.Status, r.Err)
		}
	}
	err := p.Subscribe(ctx, eventbus.Subscription{Topic: s.topic, Group: s.group("late")}, eventbus.HandlerFunc(got.done))
	if !errors.Is(err, eventbus.ErrClosed) {
		s.Errorf("subscribing after Close returned %v", err)
	}
}

// A subscription that starts while the broker is away waits for it, says so, and
// lives.
func subscribeBeforeBroker(s *scene) {
	p := s.process()
	other := s.process()
	p.link.Cut()
	group := s.group("patient")
	var got seen
	sub := p.subscribe(eventbus.Subscription{Group: group}, got.done)
	s.eventually("the state tells the error", func() bool { return p.State(group).LastError != nil })
	if ok, reason := p.State(group).Ready(); ok || reason == "" {
		s.Errorf("a subscription without a broker is ready: %v %q", ok, reason)
	}
	beats := sub.beats.Load()
	s.eventually("it lives", func() bool { return sub.beats.Load() > beats+1 })
	m := s.messages(3, tagA)
	other.publish(m...)
	p.link.Restore()
	s.eventually("it is served once the broker is there", func() bool { return got.hasAll(m) })
}
