package eventbustest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus"
)

var errTry = errors.New("not this time")

// A handler sees which attempt it is; attempts come after growing waits.
func retriesGrow(s *scene) {
	p := s.process(func(c *eventbus.Config) { c.MaxAttempts = 10 })
	p.publish(s.messages(1, tagA)...)
	var got seen
	p.subscribe(eventbus.Subscription{Group: s.group("retry")}, func(_ context.Context, d eventbus.Delivery) eventbus.Outcome {
		got.add(d)
		if d.Attempt < 4 {
			return eventbus.Retry(errTry)
		}
		return eventbus.Done()
	})
	s.eventually("the fourth attempt", func() bool { return got.count() == 4 })
	arrivals := got.list()
	// The schedule doubles and each wait is between half of it and all of it.
	least := kitConfig().MinRetry / 2
	for i := 1; i < len(arrivals); i++ {
		if arrivals[i].Attempt != i+1 {
			s.Errorf("delivery %d says it is attempt %d", i+1, arrivals[i].Attempt)
		}
		if wait := arrivals[i].at.Sub(arrivals[i-1].at); wait < least {
			s.Errorf("attempt %d came after %s, before the %s that the schedule asks at least", i+1, wait, least)
		}
		least *= 2
	}
	s.noBacklog(p, s.group("retry"))
}

// RetryAfter is honoured, other messages do not wait for it, and a wait shows as
// parked, not as in flight.
func retryAfter(s *scene) {
	const wait = 1500 * time.Millisecond
	p := s.process()
	group := s.group("after")
	var slow, quick seen
	p.subscribe(eventbus.Subscription{Group: group, Concurrency: 1}, func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
		if d.Tag == tagB {
			return quick.done(ctx, d)
		}
		slow.add(d)
		if d.Attempt == 1 {
			return eventbus.RetryAfter(wait, errTry)
		}
		return eventbus.Done()
	}).connected()
	p.publish(s.messages(1, tagA)...)
	s.eventually("the first attempt", func() bool { return slow.count() == 1 })
	p.publish(s.messages(20, tagB)...)
	s.eventually("others pass the one that waits", func() bool { return quick.count() == 20 })
	s.eventually("the waiting one shows as parked", func() bool {
		st := p.State(group)
		return st.Parked.N == 1 && st.InFlight.N == 0 || slow.count() > 1
	})
	s.eventually("the second attempt", func() bool { return slow.count() == 2 })
	a := slow.list()
	if got := a[1].at.Sub(a[0].at); got < wait {
		s.Errorf("the second attempt came after %s, %s were asked for", got, wait)
	}
}

func alwaysFails(got *seen) eventbus.HandlerFunc {
	return func(_ context.Context, d eventbus.Delivery) eventbus.Outcome {
		got.add(d)
		return eventbus.Retry(errTry)
	}
}

// After the configured attempts the event is a dead letter, once, with where it came
// from, how often it was tried and what the last attempt said.
func attemptsExhausted(s *scene) {
	p := s.process()
	m := s.messages(1, tagA)[0]
	m.Headers = map[string]string{"aggregate-id": "agg", "outbox-id": "obe1"}
	p.publish(m)
	var got seen
	group := s.group("exhaust")
	p.subscribe(eventbus.Subscription{Group: group}, alwaysFails(&got))
	s.eventually("a dead letter", func() bool { return len(p.letters.list()) > 0 })
	s.calm()
	all := p.letters.list()
	if len(all) != 1 || got.count() != 4 {
		s.Fatalf("%d dead letters after %d attempts, want 1 after 4", len(all), got.count())
	}
	s.checkLetter(all[0], group, m, 4, errTry.Error())
	s.noBacklog(p, group)
}

func (s *scene) checkLetter(dl eventbus.DeadLetter, group string, m eventbus.Message, attempts int, lastError string) {
	s.Helper()
	if dl.Group != group || dl.Topic != m.Topic || dl.Tag != m.Tag || dl.EventID != m.Key || string(dl.Body) != string(m.Body) {
		s.Errorf("dead letter is of %s %s %s %s with %d bytes", dl.Group, dl.Topic, dl.Tag, dl.EventID, len(dl.Body))
	}
	for name, want := range m.Headers {
		if dl.Headers[name] != want {
			s.Errorf("dead letter has header %q = %q, want %q", name, dl.Headers[name], want)
		}
	}
	if dl.Attempts != attempts || dl.Reason == "" || !strings.Contains(dl.LastError, lastError) {
		s.Errorf("dead letter tells attempts %d, reason %q, last error %q; want %d, a reason, %q", dl.Attempts, dl.Reason, dl.LastError, attempts, lastError)
	}
}

// While dead letters cannot be stored their events stay with the broker, the handler
// is not run beyond its attempts, and nothing is lost once the store is back.
func deadLetterStoreFails(s *scene) {
	p := s.process()
	p.letters.setBroken(true)
	m := s.messages(1, tagA)[0]
	p.publish(m)
	var got seen
	group := s.group("store")
	p.subscribe(eventbus.Subscription{Group: group}, alwaysFails(&got))
	s.eventually("the store was tried several times", func() bool { return p.letters.tried() >= 3 })
	if st := p.State(group); st.LastSuccess.Unix() > 0 {
		s.Errorf("an event that could not be buried counts as a success")
	}
	p.letters.setBroken(false)
	s.eventually("the dead letter", func() bool { return len(p.letters.list()) == 1 })
	s.calm()
	if n, attempts := len(p.letters.list()), got.count(); n != 1 || attempts != 4 {
		s.Errorf("%d dead letters after %d attempts, want 1 after 4", n, attempts)
	}
	s.checkLetter(p.letters.list()[0], group, m, 4, errTry.Error())
	s.noBacklog(p, group)
}

// Skip is an end; Dead is one with a dead letter at once.
func skipAndDead(s *scene) {
	p := s.process()
	skip, dead := s.messages(1, tagA)[0], s.messages(1, tagB)[0]
	p.publish(skip, dead)
	var got seen
	group := s.group("verdict")
	p.subscribe(eventbus.Subscription{Group: group}, func(_ context.Context, d eventbus.Delivery) eventbus.Outcome {
		got.add(d)
		if d.Tag == tagA {
			return eventbus.Skip("nothing to do")
		}
		return eventbus.Dead("can never work", errTry)
	})
	s.eventually("the dead letter", func() bool { return len(p.letters.list()) == 1 })
	s.noBacklog(p, group)
	s.calm()
	if got.count() != 2 {
		s.Errorf("%d deliveries of two messages that were both final", got.count())
	}
	s.checkLetter(p.letters.list()[0], group, dead, 1, errTry.Error())
}

// A handler that panics, or that cannot read its payload, costs its own event only;
// the error names the kind of panic and nothing of the payload.
func panicAndPoison(s *scene) {
	const secret = "panic-text-with-personal-data"
	p := s.process(func(c *eventbus.Config) { c.MaxAttempts = 2 })
	bad, good := s.messages(3, tagA), s.messages(20, tagB)
	var got seen
	group := s.group("panic")
	p.subscribe(eventbus.Subscription{Group: group}, func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
		if d.Tag == tagB {
			return got.done(ctx, d)
		}
		switch d.Key[len(d.Key)-1] {
		case '0':
			panic(secret)
		case '1':
			_ = d.Body[len(d.Body)+d.Attempt]
		}
		return eventbus.Dead("unreadable", errTry)
	})
	p.publish(bad...)
	p.publish(good...)
	s.eventually("the good ones are done", func() bool { return got.hasAll(good) })
	s.eventually("three dead letters", func() bool { return len(p.letters.list()) == 3 })
	for _, dl := range p.letters.list() {
		if strings.Contains(dl.LastError, secret) || dl.LastError == "" {
			s.Errorf("last error of %s is %q", dl.EventID, dl.LastError)
		}
		if strings.HasSuffix(dl.EventID, "0") && !strings.Contains(dl.LastError, "type string") {
			s.Errorf("last error of %s does not name the panic's type: %q", dl.EventID, dl.LastError)
		}
	}
	if strings.Contains(s.logs.String(), secret) {
		s.Errorf("the log holds the panic's text")
	}
	s.noBacklog(p, group)
}

// A handler that ignores its deadline is given up; its worker goes on with others and
// the event comes again.
func hungHandler(s *scene) {
	p := s.process()
	group := s.group("hung")
	hang := make(chan struct{})
	s.Cleanup(func() { close(hang) })
	var got seen
	p.subscribe(eventbus.Subscription{Group: group, Concurrency: 1, HandlerTimeout: 300 * time.Millisecond},
		func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
			if d.Tag == tagA && d.Attempt == 1 {
				<-hang
			}
			return got.done(ctx, d)
		})
	p.publish(s.messages(1, tagA)...)
	p.publish(s.messages(5, tagB)...)
	s.eventually("all events are done, the hung one at its second attempt", func() bool { return got.count() == 6 })
	s.noBacklog(p, group)
}

// The context that a handler gets ends at its deadline, and a handler that heeds it
// fails like any other.
func deadlineReachesHandler(s *scene) {
	p := s.process()
	const limit = 400 * time.Millisecond
	var ended, within atomic.Bool
	p.publish(s.messages(1, tagA)...)
	group := s.group("deadline")
	p.subscribe(eventbus.Subscription{Group: group, HandlerTimeout: limit}, func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
		if d.Attempt > 1 {
			return eventbus.Done()
		}
		deadline, ok := ctx.Deadline()
		within.Store(ok && time.Until(deadline) <= limit)
		<-ctx.Done()
		ended.Store(errors.Is(ctx.Err(), context.DeadlineExceeded))
		return eventbus.Retry(ctx.Err())
	})
	s.noBacklogAfter(p, group, ended.Load)
	if !within.Load() {
		s.Errorf("the handler's context had no deadline within %s", limit)
	}
}

func (s *scene) noBacklogAfter(p *process, group string, ok func() bool) {
	s.Helper()
	s.eventually("the handler's context ends", ok)
	s.noBacklog(p, group)
}

// A handler that takes longer than the broker's lease runs once: the lease is renewed.
func handlerLongerThanLease(s *scene) {
	a, b := s.process(), s.process() // a sibling that would take over
	group := s.group("long")
	var got seen
	handler := func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
		got.add(d)
		select {
		case <-time.After(3 * s.h.Lease):
			return eventbus.Done()
		case <-ctx.Done():
			return eventbus.Retry(ctx.Err())
		}
	}
	a.subscribe(eventbus.Subscription{Group: group}, handler).connected()
	b.subscribe(eventbus.Subscription{Group: group}, handler).connected()
	msgs := s.messages(6, tagA)
	a.publish(msgs...)
	s.eventually("all are started", func() bool { return got.hasAll(msgs) })
	s.noBacklog(a, group)
	if got.count() != len(msgs) {
		s.Errorf("%d runs of %d messages whose handlers only took their time", got.count(), len(msgs))
	}
}

// An event of another country or environment stops the subscription; it is neither
// acknowledged nor dead-lettered, and it is there when the deployment is right.
func foreignEventHalts(s *scene) {
	p := s.process()
	group := s.group("foreign")
	var got seen
	sub := p.subscribe(eventbus.Subscription{Group: group, Concurrency: 1}, got.done).connected()
	foreign := s.messages(1, tagA)[0]
	foreign.Headers = map[string]string{eventbus.HeaderCountry: "zz"}
	p.publish(foreign)
	s.eventually("the subscription halts", func() bool { return p.State(group).Halted })
	if ok, reason := p.State(group).Ready(); ok || !strings.Contains(reason, "zz") {
		s.Errorf("readiness is %v %q, want false and the foreign country named", ok, reason)
	}
	p.publish(s.messages(3, tagB)...)
	s.calm()
	if got.count() != 0 || len(p.letters.list()) != 0 {
		s.Errorf("a halted subscription handled %d events and made %d dead letters", got.count(), len(p.letters.list()))
	}
	select {
	case <-sub.done:
		s.Errorf("Subscribe returned before its context's end: %v", sub.err)
	default:
	}
	sub.end()
	if !errors.Is(sub.err, eventbus.ErrHalted) {
		s.Errorf("Subscribe returned %v, want ErrHalted", sub.err)
	}
	if v := p.counter(s, "seahub_consumer_foreign_events_total"); v == 0 {
		s.Errorf("seahub_consumer_foreign_events_total is 0")
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.h.Patience)
	defer cancel()
	if g, err := p.Inspector().Group(ctx, s.topic, group); err != nil || g.Backlog.N != 4 {
		s.Errorf("backlog is %+v, %v; the foreign event and three others must still be there", g.Backlog, err)
	}
}

func (p *process) counter(s *scene, name string) float64 {
	families, err := p.metrics.Gather()
	if err != nil {
		s.Fatalf("gather metrics: %v", err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
