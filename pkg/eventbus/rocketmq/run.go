package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

const (
	// beatEvery is the rhythm of the liveness sign.
	beatEvery = time.Second
	// stopTimeout bounds the client's own part of a stop.
	stopTimeout = 5 * time.Second
	// steadyLife is how long a consumer must have worked for the next rebuild to be a
	// first one again.
	steadyLife = 5 * time.Minute
)

// run is one subscription: it waits until the broker is fit for it, keeps one member of
// the group at work, and makes a new one when that one gets nothing any more.
type run struct {
	d      *Driver
	sub    driver.Subscription
	tags   []string // sorted
	handle driver.Handle
	log    *zerolog.Logger
	// slots bounds callbacks: the client bounds them per topic, and the group's retry
	// topic is another one.
	slots chan *slot

	halted    chan struct{} // closed by the first Halt
	haltOnce  sync.Once
	haltCause error

	reported string // the last trouble that was logged
}

// Run implements driver.Receiver.
func (d *Driver) Run(ctx context.Context, sub driver.Subscription, handle driver.Handle) error {
	if err := d.checkTopic(sub.Topic); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrHalted, err)
	}
	if d.closed.Load() {
		return fmt.Errorf("receive %s: %w", sub.Group, driver.ErrClosed)
	}
	sub = withDefaults(sub)
	ended := make(chan struct{})
	defer close(ended)
	r := &run{
		d: d, sub: sub, tags: slices.Sorted(slices.Values(sub.Tags)), handle: handle, log: zerolog.Ctx(ctx),
		slots: newSlots(sub.Concurrency, ended), halted: make(chan struct{}),
	}
	defer sub.Connected(false, nil)
	return r.live(ctx)
}

func withDefaults(sub driver.Subscription) driver.Subscription {
	sub.Concurrency = max(1, sub.Concurrency)
	if sub.MinRetry <= 0 {
		sub.MinRetry = time.Second
	}
	sub.MaxRetry = max(sub.MaxRetry, sub.MinRetry)
	if sub.HandlerTimeout <= 0 {
		sub.HandlerTimeout = time.Minute
	}
	if sub.Beat == nil {
		sub.Beat = func() {}
	}
	if sub.Connected == nil {
		sub.Connected = func(bool, error) {}
	}
	return sub
}

// live goes from member to member until ctx ends or a handler said Halt.
func (r *run) live(ctx context.Context) error {
	again := backoff.Policy{Base: 2 * time.Second, Max: 2 * time.Minute}
	for failures := 0; ; failures++ {
		if failures > 0 && !r.pause(ctx, again.Delay(failures)) {
			return nil
		}
		if !r.fit(ctx) {
			return nil
		}
		began := time.Now()
		m, err := r.join(ctx)
		if err != nil {
			r.trouble(err)
			continue
		}
		cause := m.serve(ctx)
		m.leave()
		select {
		case <-r.halted:
			return fmt.Errorf("%w: %w", driver.ErrHalted, r.haltCause)
		default:
		}
		if ctx.Err() != nil {
			return nil
		}
		r.d.metrics.rebuilt.WithLabelValues(r.sub.Group, cause.label).Inc()
		r.trouble(fmt.Errorf("the consumer is made anew: %w", cause.err))
		if time.Since(began) > steadyLife {
			failures = 0
		}
	}
}

// fit waits until the broker can serve the subscription, and says what is missing.
func (r *run) fit(ctx context.Context) bool {
	again := backoff.Policy{Base: 200 * time.Millisecond, Max: 5 * time.Second}
	for failures := 1; ctx.Err() == nil; failures++ {
		result := make(chan error, 1)
		go func() { result <- r.examine(ctx) }() // bounded by the calls' own timeout
		err := r.beatUntil(ctx, result)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		r.trouble(err)
		r.pause(ctx, again.Delay(failures))
	}
	return false
}

// examine asks all that the client would find out late or never: a consumer whose group
// does not exist, whose key is wrong or who may not read starts without an error and
// gets nothing for ever.
func (r *run) examine(ctx context.Context) error {
	d := r.d
	queues, err := d.ask.Route(ctx, r.sub.Topic)
	d.topics.found(r.sub.Topic, err == nil)
	if err != nil {
		return d.explain(ctx, err, r.sub.Topic, r.sub.Group)
	}
	if _, _, err := d.ask.MessageTimes(ctx, queues[0], r.sub.Group, 0); err != nil {
		return d.explain(ctx, err, r.sub.Topic, r.sub.Group)
	}
	others, err := d.ask.GroupSubscription(ctx, queues, r.sub.Group)
	if err != nil {
		// A managed cluster may not answer this; what members want is then for people
		// to keep the same.
		r.log.Debug().Err(err).Msg("the group's subscription is not known")
		return nil
	}
	if len(others.Members) > 0 && r.differs(others.Tags) {
		return fmt.Errorf("group %s is at work with another subscription: its %d members (%s) want %s, this one wants %s: every member of a group must want the same, so give this service a group of its own, or stop the others first",
			r.sub.Group, len(others.Members), others.Members[0], describe(others.Tags[r.sub.Topic]), describe(r.tags))
	}
	return nil
}

// differs tells whether members want other topics or tags than this one.
func (r *run) differs(tags map[string][]string) bool {
	for topic, theirs := range tags {
		if strings.HasPrefix(topic, "%RETRY%") {
			continue
		}
		if topic != r.sub.Topic || !slices.Equal(theirs, r.tags) {
			return true
		}
	}
	return false
}

func describe(tags []string) string {
	if len(tags) == 0 {
		return "all tags"
	}
	return strings.Join(tags, " || ")
}

// beatUntil waits for a result and shows life meanwhile.
func (r *run) beatUntil(ctx context.Context, result <-chan error) error {
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		r.sub.Beat()
		select {
		case err := <-result:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-beat.C:
		}
	}
}

// pause waits and shows life; false when ctx ended.
func (r *run) pause(ctx context.Context, d time.Duration) bool {
	for left := d; left > 0 && ctx.Err() == nil; left -= beatEvery {
		r.sub.Beat()
		backoff.Sleep(ctx, min(left, beatEvery))
	}
	return ctx.Err() == nil
}

// trouble tells why the subscription is not served, in the log once for each reason.
func (r *run) trouble(err error) {
	r.sub.Connected(false, err)
	if text := err.Error(); text != r.reported {
		r.reported = text
		r.log.Warn().Err(err).Msg("subscription is not served, trying again until it is")
	}
}

func (r *run) served() {
	r.sub.Connected(true, nil)
	if r.reported != "" {
		r.reported = ""
		r.log.Info().Msg("subscription is served again")
	}
}

func (r *run) halt(out driver.Outcome) {
	r.haltOnce.Do(func() {
		r.haltCause = errors.New(out.Reason)
		if out.Err != nil {
			r.haltCause = fmt.Errorf("%s: %w", out.Reason, out.Err)
		}
		close(r.halted)
	})
}
