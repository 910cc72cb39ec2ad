package rocketmq

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/hooks"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

const (
	// maxReconsume is above any attempts cap of package eventbus, which decides when
	// an event is dead; the broker's own dead-letter queue is the net below it.
	maxReconsume = 2000
	// Bounds of what a member holds in memory. Per queue is what the client computes
	// of them: the topic's divided by the number of queues. A full queue is looked at
	// again after 50 ms, so that a queue's part must last for longer than that.
	holdMessages = 8192
	holdMiB      = 64
	holdSpan     = 2000
	// settleTime is for what the client does after a callback returned, or was told:
	// an offset is a matter of microseconds, sending back an event one of a round trip.
	settleTime     = 20 * time.Millisecond
	sendBackTime   = 3 * time.Second
	flushEvery     = time.Second
	flushPatience  = 2 * time.Second
	maxSettleExtra = 500 * time.Millisecond
)

// member is one consumer of the client, from its start to its end.
type member struct {
	r        *run
	instance string
	started  time.Time
	client   rocketmq.PushConsumer
	// until is the subscription's context: no callback begins after its end, however
	// long it takes until the member drains.
	until context.Context
	// handling is the callbacks' context: it ends with the drain time, not with the
	// subscription's context.
	handling     context.Context
	stopHandling context.CancelFunc

	mu       sync.Mutex
	draining bool
	running  sync.WaitGroup // grows only under mu while draining is false
	inHand   map[queueKey]int
	// shares are the queues that the last rebalance gave to this member, by topic.
	shares map[string][]queueKey
	// queues are all of the topic, as the watch found them.
	queues []remoting.Queue
	// pending are topics whose share has changed and whose rebalance is not over.
	pending map[string]bool
	// allocated is when the last rebalance began to do what it had decided.
	allocated time.Time
	// balanced: a rebalance has taken place that counted this member in.
	balanced bool

	lastRetry atomic.Int64 // unix nanoseconds of the last callback that asked for one
	dirty     atomic.Bool  // callbacks have returned since the last flush
	gone      chan struct{}
}

type queueKey struct {
	topic, broker string
	queue         int
}

// cause is why a member is replaced.
type cause struct {
	label string
	err   error
}

// join starts a member. What the client does at a start may take long, and cannot be
// ended: a member whose start is not waited for is ended when it is over.
func (r *run) join(ctx context.Context) (*member, error) {
	m := &member{
		r: r, instance: instanceName(), until: ctx, gone: make(chan struct{}),
		inHand: map[queueKey]int{}, shares: map[string][]queueKey{}, pending: map[string]bool{},
	}
	clientWork.members.Store(m.instance, m)
	m.handling, m.stopHandling = context.WithCancel(context.WithoutCancel(ctx))
	if err := m.make(); err != nil {
		m.forget()
		return nil, err
	}
	m.started = time.Now()
	started := make(chan error, 1)
	go func() { started <- m.client.Start() }() // bounded by the client's timeouts
	if err := r.beatUntil(ctx, started); err != nil {
		if ctx.Err() == nil {
			m.forget()
			return nil, fmt.Errorf("start the consumer: %w", err)
		}
		go func() { // waits for the start, then ends what it began
			<-started
			m.leave()
		}()
		return nil, err
	}
	return m, nil
}

// forget drops what a member holds outside of itself.
func (m *member) forget() {
	m.stopHandling()
	clientWork.members.Delete(m.instance)
}

func (m *member) make() error {
	d, sub := m.r.d, m.r.sub
	options := []consumer.Option{
		consumer.WithNameServer(d.cfg.nameServers()),
		consumer.WithGroupName(sub.Group),
		consumer.WithInstance(m.instance),
		consumer.WithNamespace(d.cfg.Namespace),
		consumer.WithConsumerModel(consumer.Clustering),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(1),
		consumer.WithConsumeGoroutineNums(sub.Concurrency),
		consumer.WithMaxReconsumeTimes(maxReconsume),
		// The client sends a second copy of what takes longer than this.
		consumer.WithConsumeTimeout(max(d.cfg.ConsumeTimeout, 2*sub.HandlerTimeout)),
		consumer.WithPullBatchSize(32),
		consumer.WithPullThresholdForTopic(holdMessages),
		consumer.WithPullThresholdSizeForTopic(holdMiB),
		consumer.WithConsumeConcurrentlyMaxSpan(holdSpan),
		consumer.WithStrategy(m.allocate),
		consumer.WithFilterMessageHook([]hooks.FilterMessageHook{m.pulled}),
	}
	if d.cfg.AccessKey != "" {
		options = append(options, consumer.WithCredentials(d.credentials()))
	}
	// The client returns a typed nil with an error: only the error may be looked at.
	c, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return fmt.Errorf("make the consumer: %w", err)
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	if len(m.r.tags) > 0 {
		selector.Expression = strings.Join(m.r.tags, " || ")
	}
	if err := c.Subscribe(sub.Topic, selector, m.consume); err != nil {
		return fmt.Errorf("subscribe to %s: %w", sub.Topic, err)
	}
	m.client = c
	return nil
}

// allocate is the client's own way to share queues; it is here to learn the share.
func (m *member) allocate(group, me string, all []*primitive.MessageQueue, members []string) []*primitive.MessageQueue {
	share := consumer.AllocateByAveragely(group, me, all, members)
	if len(all) == 0 {
		return share
	}
	keys := make([]queueKey, 0, len(share))
	for _, q := range share {
		keys = append(keys, queueKey{q.Topic, q.BrokerName, q.QueueId})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	topic := all[0].Topic
	m.allocated = time.Now()
	if !slices.Equal(m.shares[topic], keys) {
		m.pending[topic] = true
	}
	m.shares[topic] = keys
	m.balanced = m.balanced || slices.Contains(members, me)
	return share
}

// pulled sees what the client has fetched before it keeps it. While the member drains
// it keeps nothing: a message that comes while the client shuts down may end the
// process, by a send on a closed channel. Pulls are suspended then, so what is dropped
// here is behind the offset that the broker knows, and is delivered to others.
func (m *member) pulled(h *hooks.FilterMessageContext) ([]*primitive.MessageExt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return nil, nil
	}
	return h.Msg, nil
}

// consume is what the client calls, with one message at a time.
func (m *member) consume(ctx context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	if len(msgs) != 1 { // not asked for; a batch cannot be answered in part
		return consumer.ConsumeRetryLater, nil
	}
	msg := msgs[0]
	key := keyOf(msg)
	s, ok := m.enter(key)
	if !ok {
		return m.giveBack()
	}
	out, s, ok := s.run(m.handling, func(ctx context.Context) driver.Outcome { return m.call(ctx, msg) })
	m.exit(key, s)
	if !ok {
		return m.giveBack()
	}
	switch out.Verdict {
	case driver.Done, driver.Skip, driver.Dead:
		m.dirty.Store(true)
		return consumer.ConsumeSuccess, nil
	case driver.Halt:
		m.r.halt(out)
		return m.giveBack()
	}
	if m.handling.Err() != nil {
		return m.giveBack() // cut short by the drain time: no failure of the event
	}
	m.lastRetry.Store(time.Now().UnixNano())
	m.dirty.Store(true)
	if c, ok := primitive.GetConcurrentlyCtx(ctx); ok {
		c.DelayLevelWhenNextConsume = delayLevel(m.r.wait(out, attempt(msg)))
	}
	return consumer.ConsumeRetryLater, nil
}

// giveBack holds a result until the client no longer listens: the broker then
// delivers the message to another member, and no attempt is counted.
func (m *member) giveBack() (consumer.ConsumeResult, error) {
	<-m.gone
	return consumer.ConsumeRetryLater, nil
}

// enter begins a callback, unless the member is draining.
func (m *member) enter(key queueKey) (s *slot, ok bool) {
	select {
	case s = <-m.r.slots:
	case <-m.gone:
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining || m.until.Err() != nil {
		m.r.slots <- s
		return nil, false
	}
	m.running.Add(1)
	m.inHand[key]++
	return s, true
}

func (m *member) exit(key queueKey, s *slot) {
	m.mu.Lock()
	if m.inHand[key]--; m.inHand[key] == 0 {
		delete(m.inHand, key)
	}
	m.mu.Unlock()
	m.r.slots <- s
	m.running.Done()
}

func (m *member) call(ctx context.Context, msg *primitive.MessageExt) (out driver.Outcome) {
	defer func() {
		if v := recover(); v != nil {
			out = driver.Outcome{Err: fmt.Errorf("callback panicked with a value of type %T", v)}
		}
	}()
	return m.r.handle(ctx, m.r.delivery(msg))
}
