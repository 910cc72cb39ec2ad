package eventbus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// storeTimeout bounds one attempt to store a dead letter.
const storeTimeout = 5 * time.Second

// Subscription names what a group receives. Zero fields take the bus's Config.
type Subscription struct {
	// Topic is Topic(country), Group is Group(country, task).
	Topic string
	Group string
	// Tags are the wanted event types; none means all. Every member of a group must
	// name the same ones.
	Tags []string
	// Concurrency and HandlerTimeout override Config for this subscription.
	Concurrency    int
	HandlerTimeout time.Duration
	// Beat, when set, is called at least every few seconds while the subscription's
	// own loop is alive, with or without a broker: it is a liveness sign, and State
	// is the readiness sign.
	Beat func()
}

// Subscribe receives until ctx ends and then drains: running handlers finish within
// Config.DrainTimeout, events that none has started go back at once. It returns nil
// after the drain.
//
// A broker that is away is waited for with back-off; State tells. A group that is
// subscribed already, or a request that can never be served, is an error at once. A
// subscription that halts (another country's event) says so in State, log and metric
// and then holds still until ctx ends, when it returns an error that wraps ErrHalted:
// a process that ended would be started again and do the same again.
func (b *Bus) Subscribe(ctx context.Context, sub Subscription, handler Handler) error {
	if err := b.check(sub, handler); err != nil {
		return err
	}
	st, err := b.begin(sub)
	if err != nil {
		return err
	}
	defer b.running.Done()
	defer st.update(func(s *State) { s.Running, s.Connected = false, false })

	ctx = event.WithLogFields(ctx, event.LogFields{Group: sub.Group})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.stopped, cancel)()

	g := newGuard(ctx, b, sub, handler, st)
	defer g.watch()()
	watched := b.watch(ctx, sub, st)
	err = b.receive(ctx, g, sub, st)
	if errors.Is(err, driver.ErrHalted) {
		st.update(func(s *State) {
			s.Running, s.Connected, s.Halted, s.LastError, s.Since = false, false, true, err, time.Now()
		})
		zerolog.Ctx(ctx).Error().Err(err).Msg("subscription halted; nothing of it was acknowledged")
		<-ctx.Done()
	}
	cancel()
	<-watched
	return err
}

// receive runs the driver's receiver until ctx ends or the subscription halts.
func (b *Bus) receive(ctx context.Context, g *guard, sub Subscription, st *state) error {
	request := driver.Subscription{
		Topic: sub.Topic, Group: sub.Group, Tags: slices.Clone(sub.Tags),
		Concurrency: g.concurrency,
		// What a callback takes at most: the run, the wait for one that hangs, and
		// the storing of its dead letter.
		HandlerTimeout: g.timeout + b.cfg.HandlerGrace + watchEvery + storeTimeout,
		DrainTimeout:   b.cfg.DrainTimeout,
		MinRetry:       b.cfg.MinRetry,
		MaxRetry:       b.cfg.MaxRetry,
		Beat:           sub.Beat,
		Connected:      st.connected,
	}
	again := backoff.Policy{Base: 100 * time.Millisecond, Max: 2 * time.Second}
	for failures := 1; ; failures++ {
		err := b.parts.Receiver.Run(ctx, request, g.handle)
		switch {
		case errors.Is(err, driver.ErrHalted):
			return fmt.Errorf("subscribe %s to %s: %w", sub.Group, sub.Topic, err)
		case errors.Is(err, driver.ErrClosed) || ctx.Err() != nil:
			return nil
		}
		// A receiver must not end like this; if one does, the service outlives it.
		if err == nil {
			err = errors.New("the receiver ended without a reason")
		}
		st.connected(false, err)
		zerolog.Ctx(ctx).Error().Err(err).Int("failures", failures).Msg("receiver ended, starting it again")
		if sub.Beat != nil {
			sub.Beat()
		}
		if !backoff.Sleep(ctx, again.Delay(failures)) {
			return nil
		}
	}
}

func (b *Bus) check(sub Subscription, handler Handler) error {
	var errs []error
	add := func(bad bool, text string) {
		if bad {
			errs = append(errs, errors.New(text))
		}
	}
	add(sub.Topic == "", "topic is empty: use eventbus.Topic(country)")
	add(sub.Group == "", "group is empty: use eventbus.Group(country, task)")
	add(slices.Contains(sub.Tags, ""), "a tag is empty: name event types, or none for all")
	add(sub.Concurrency < 0, "concurrency is negative")
	add(sub.HandlerTimeout < 0, "handler timeout is negative")
	add(handler == nil, "handler is nil")
	add(b.deadLetters == nil, "the bus has no dead letter store: open it with eventbus.WithDeadLetters")
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w of group %q: %w", ErrSubscription, sub.Group, errors.Join(errs...))
}

// begin claims the group in this process.
func (b *Bus) begin(sub Subscription) (*state, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("subscribe %s: %w", sub.Group, ErrClosed)
	}
	if old := b.states[sub.Group]; old != nil {
		if s := old.snapshot(time.Now()); s.Running || s.Halted {
			return nil, fmt.Errorf("subscribe %s to %s: %w: give each subscription a group of its own", sub.Group, sub.Topic, ErrDuplicateSubscription)
		}
	}
	st := newState(sub.Topic, sub.Group)
	b.states[sub.Group] = st
	b.running.Add(1)
	b.metrics.touch(sub.Group)
	return st, nil
}

// watch keeps the broker's figures of the group fresh in st until ctx ends; the
// returned channel is closed then.
func (b *Bus) watch(ctx context.Context, sub Subscription, st *state) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			look, cancel := context.WithTimeout(ctx, b.cfg.WatchEvery)
			g, err := b.parts.Inspector.Group(look, sub.Topic, sub.Group)
			cancel()
			if err != nil {
				g = driver.GroupState{} // unknown, all of it
			}
			st.update(func(s *State) {
				s.Backlog, s.InFlight, s.Parked, s.OldestAge = g.Backlog, g.InFlight, g.Parked, g.OldestAge
			})
			if !backoff.Sleep(ctx, b.cfg.WatchEvery) {
				return
			}
		}
	}()
	return done
}
