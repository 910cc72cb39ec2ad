package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

const (
	// maxReconsume is above any attempts cap of package eventbus, which decides when
	// an event is dead; the broker's own dead-letter queue is the net below it.
	maxReconsume = 2000
	// beatEvery is the rhythm of the liveness sign.
	beatEvery = time.Second
	// hangTimeout is how long Run waits for callbacks after their context ended.
	hangTimeout = 10 * time.Second
)

// Run implements driver.Receiver.
func (d *Driver) Run(ctx context.Context, sub driver.Subscription, handle driver.Handle) error {
	handling, stopHandling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopHandling()
	r := &run{
		d: d, sub: sub, handle: handle, log: zerolog.Ctx(ctx), handling: handling,
		slots: make(chan struct{}, max(1, sub.Concurrency)),
		gone:  make(chan struct{}), halted: make(chan struct{}),
	}
	c := r.start(ctx)
	if c == nil {
		return nil // ctx ended first
	}
	r.alive(ctx)
	r.drain(c, stopHandling)
	r.connected(false, nil)
	select {
	case <-r.halted:
		return fmt.Errorf("%w: %w", driver.ErrHalted, r.haltCause)
	default:
		return nil
	}
}

// run is one subscription.
type run struct {
	d        *Driver
	sub      driver.Subscription
	handle   driver.Handle
	log      *zerolog.Logger
	handling context.Context
	// slots bounds callbacks: the client bounds them per topic, and the group's retry
	// topic is another one.
	slots chan struct{}

	mu       sync.Mutex
	draining bool
	running  sync.WaitGroup // grows only under mu while draining is false

	gone      chan struct{} // closed after the client's Shutdown
	halted    chan struct{}
	haltOnce  sync.Once
	haltCause error
}

// start makes consumers until one starts or ctx ends. One that failed to start cannot
// be started again.
func (r *run) start(ctx context.Context) rocketmq.PushConsumer {
	again := backoff.Policy{Base: time.Second, Max: 30 * time.Second}
	for failures := 1; ctx.Err() == nil; failures++ {
		c, err := r.tryStart()
		if err == nil {
			r.connected(true, nil)
			return c
		}
		r.connected(false, err)
		if failures == 1 {
			r.log.Warn().Err(err).Msg("subscription is not served, trying again until it is")
		}
		for left := again.Delay(failures); left > 0 && ctx.Err() == nil; left -= beatEvery {
			r.beat()
			backoff.Sleep(ctx, min(left, beatEvery))
		}
	}
	return nil
}

func (r *run) tryStart() (rocketmq.PushConsumer, error) {
	options := []consumer.Option{
		consumer.WithNameServer(r.d.cfg.nameServers()),
		consumer.WithGroupName(r.sub.Group),
		consumer.WithInstance(instanceName()),
		consumer.WithNamespace(r.d.cfg.Namespace),
		consumer.WithConsumerModel(consumer.Clustering),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(1),
		consumer.WithConsumeGoroutineNums(max(1, r.sub.Concurrency)),
		consumer.WithMaxReconsumeTimes(maxReconsume),
		// The client sends a second copy of what takes longer than this.
		consumer.WithConsumeTimeout(max(15*time.Minute, 2*r.sub.HandlerTimeout)),
		consumer.WithPullThresholdForTopic(1024),
		consumer.WithPullThresholdSizeForTopic(64), // MiB
	}
	if r.d.cfg.AccessKey != "" {
		options = append(options, consumer.WithCredentials(r.d.credentials()))
	}
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, fmt.Errorf("make the consumer: %w", err)
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	if len(r.sub.Tags) > 0 {
		selector.Expression = strings.Join(r.sub.Tags, " || ")
	}
	if err := c.Subscribe(r.sub.Topic, selector, r.consume); err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", r.sub.Topic, err)
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start the consumer: %w", err)
	}
	return c, nil
}

// alive beats until ctx ends or a handler said Halt.
func (r *run) alive(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		r.beat()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-r.halted:
			return
		}
	}
}

// drain stops taking, lets callbacks finish, and only then ends the client.
func (r *run) drain(c rocketmq.PushConsumer, stopHandling context.CancelFunc) {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	c.Suspend()
	idle := make(chan struct{})
	go func() { // ends with the last callback
		defer close(idle)
		r.running.Wait()
	}()
	if !waits(idle, r.sub.DrainTimeout) {
		stopHandling()
		if !waits(idle, hangTimeout) {
			r.log.Error().Msg("callbacks ignore the end of their context; their events will be redelivered")
		}
	}
	if err := c.Shutdown(); err != nil {
		r.log.Warn().Err(err).Msg("shut the consumer down")
	}
	close(r.gone)
}

func waits(done <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// consume is what the client calls, with one message at a time.
func (r *run) consume(ctx context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	for _, m := range msgs {
		if !r.enter() {
			return r.giveBack()
		}
		out := r.call(m)
		switch out.Verdict {
		case driver.Done, driver.Skip, driver.Dead:
			continue
		case driver.Halt:
			r.halt(out)
			return r.giveBack()
		}
		if c, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			c.DelayLevelWhenNextConsume = delayLevel(r.wait(out, attempt(m)))
		}
		return consumer.ConsumeRetryLater, nil
	}
	return consumer.ConsumeSuccess, nil
}

// giveBack holds a result until the client no longer listens: the broker then
// delivers the message to another member, and no attempt is counted.
func (r *run) giveBack() (consumer.ConsumeResult, error) {
	<-r.gone
	return consumer.ConsumeRetryLater, nil
}

// enter begins a callback, unless the run is draining.
func (r *run) enter() bool {
	select {
	case r.slots <- struct{}{}:
	case <-r.gone:
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		<-r.slots
		return false
	}
	r.running.Add(1)
	return true
}

func (r *run) call(m *primitive.MessageExt) (out driver.Outcome) {
	defer func() {
		<-r.slots
		r.running.Done()
	}()
	defer func() {
		if v := recover(); v != nil {
			out = driver.Outcome{Err: fmt.Errorf("callback panicked with a value of type %T", v)}
		}
	}()
	return r.handle(r.handling, r.delivery(m))
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

func (r *run) wait(out driver.Outcome, attempt int) time.Duration {
	if out.After > 0 {
		return out.After
	}
	return backoff.Policy{Base: r.sub.MinRetry, Max: r.sub.MaxRetry}.Delay(attempt)
}

func (r *run) beat() {
	if r.sub.Beat != nil {
		r.sub.Beat()
	}
}

func (r *run) connected(ok bool, err error) {
	if r.sub.Connected != nil {
		r.sub.Connected(ok, err)
	}
}

// delivery is a message as handlers get it. The topic is the subscribed one: the
// client's has the namespace in front.
func (r *run) delivery(m *primitive.MessageExt) driver.Delivery {
	headers := map[string]string{}
	for name, value := range m.GetProperties() {
		if ours, ok := strings.CutPrefix(name, headerPrefix); ok {
			headers[ours] = value
		}
	}
	key, _, _ := strings.Cut(m.GetKeys(), " ") // the aggregate may follow
	return driver.Delivery{
		Message: driver.Message{Topic: r.sub.Topic, Tag: m.GetTags(), Key: key, Body: m.Body, Headers: headers},
		Group:   r.sub.Group, BrokerID: m.MsgId, Attempt: attempt(m),
		PublishedAt: time.UnixMilli(m.StoreTimestamp),
	}
}

func attempt(m *primitive.MessageExt) int { return int(m.ReconsumeTimes) + 1 }

// delayLevel is the broker's first level that is not shorter than d.
func delayLevel(d time.Duration) int {
	levels := [...]time.Duration{
		time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute,
		6 * time.Minute, 7 * time.Minute, 8 * time.Minute, 9 * time.Minute, 10 * time.Minute,
		20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
	}
	for i, l := range levels {
		if d <= l {
			return i + 1
		}
	}
	return len(levels)
}
