package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/test/bench/internal/rmq"
)

// rocketBroker is RocketMQ by our driver and by its client alone.
type rocketBroker struct {
	sizes    sizes
	topic    *rmq.Topic
	bus      *eventbus.Bus
	producer rocketmq.Producer
	msgs     []eventbus.Message
	// plain are one batch as our driver stores it.
	plain []plainMessage
	// started numbers the bare consumers.
	started int
}

// plainMessage is what a message is made of: the client writes into those that it
// sends, so that each send needs a new one.
type plainMessage struct {
	body       []byte
	properties map[string]string
}

// startRocketMQ starts a cluster and learns from our driver itself what the bytes of a
// batch are, so that the bare client sends the very same ones. It sends as many
// messages at a time as ours does.
func startRocketMQ(ctx context.Context, s sizes) (_ broker, err error) {
	b := &rocketBroker{sizes: s, msgs: corpus(s)}
	if b.topic, err = rmq.Start(ctx, eventbus.Topic(country), group); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	server, account := b.topic.Cluster.Addr(), b.topic.Cluster.Admin
	var cfg provider.Config
	cfg.Provider = provider.RocketMQ
	cfg.RocketMQ.NameServers = []string{server}
	cfg.RocketMQ.AccessKey, cfg.RocketMQ.SecretKey = account.AccessKey, account.SecretKey
	cfg.RocketMQ.SendWorkers = s.Concurrency
	if b.bus, err = openBus(cfg); err != nil {
		return nil, err
	}
	if err := publishOurs(ctx, b.bus.Publisher(), b.msgs, s.Batch); err != nil {
		return nil, fmt.Errorf("publish a first batch: %w", err)
	}
	if err := b.learn(ctx); err != nil {
		return nil, err
	}
	b.producer, err = rocketmq.NewProducer(
		producer.WithNameServer([]string{server}), producer.WithCredentials(b.credentials()),
		producer.WithGroupName("GID_bench_bare"), producer.WithInstanceName("bare"),
		producer.WithRetry(0), producer.WithSendMsgTimeout(stallAfter))
	if err != nil {
		return nil, fmt.Errorf("make the bare producer: %w", err)
	}
	if err := b.producer.Start(); err != nil {
		return nil, fmt.Errorf("start the bare producer: %w", err)
	}
	// The first sends of a producer fail while it learns its brokers.
	if err := b.sendPlain(ctx, b.plain[0]); err != nil {
		return nil, err
	}
	// What was sent so far is to be finished, so that the group has offsets.
	_, err = consumeOurs(ctx, b.bus, s.Batch+1, s.Concurrency)
	return b, err
}

func (b *rocketBroker) credentials() primitive.Credentials {
	a := b.topic.Cluster.Admin
	return primitive.Credentials{AccessKey: a.AccessKey, SecretKey: a.SecretKey}
}

// learn reads back what our driver stored.
func (b *rocketBroker) learn(ctx context.Context) error {
	err := b.topic.Each(ctx, func(m *primitive.MessageExt) {
		p := m.GetProperties()
		for name := range p { // what the client adds to every message
			if name != primitive.PropertyTags && name != primitive.PropertyKeys && !strings.HasPrefix(name, "seahub-") {
				delete(p, name)
			}
		}
		b.plain = append(b.plain, plainMessage{slices.Clone(m.Body), p})
	})
	if err != nil {
		return fmt.Errorf("read a batch back: %w", err)
	}
	if len(b.plain) != len(b.msgs) {
		return fmt.Errorf("read a batch back: there are %d messages, not %d", len(b.plain), len(b.msgs))
	}
	return nil
}

func (b *rocketBroker) version() string { return b.topic.About() }

func (b *rocketBroker) reset(ctx context.Context) error { return b.topic.Reset(ctx) }

func (b *rocketBroker) stored(ctx context.Context) (int, error) { return b.topic.CountAtRest(ctx) }

// unfinished waits a little: a client that leaves tells its offsets without waiting for
// an answer.
func (b *rocketBroker) unfinished(ctx context.Context) (n int, err error) {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if n, err = b.topic.Unfinished(ctx, group); err != nil || n == 0 || time.Now().After(deadline) {
			return n, err
		}
	}
}

func (b *rocketBroker) ways() (way, way) {
	return ours(b.bus, b.msgs, b.sizes), way{name: "bare client", publish: b.publish, consume: b.consume}
}

func (b *rocketBroker) close() {
	if b.bus != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = b.bus.Close(ctx)
	}
	if b.producer != nil {
		_ = b.producer.Shutdown()
	}
	_ = b.topic.Close()
}

func (b *rocketBroker) sendPlain(ctx context.Context, p plainMessage) error {
	m := primitive.NewMessage(b.topic.Name, p.body)
	m.WithProperties(maps.Clone(p.properties)) // the client adds to them
	res, err := b.producer.SendSync(ctx, m)
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if res.Status != primitive.SendOK {
		return fmt.Errorf("send: status %d", res.Status)
	}
	return nil
}

// publish is the floor: as many senders as ours has, which never wait for each other.
func (b *rocketBroker) publish(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var senders sync.WaitGroup
	for range b.sizes.Concurrency {
		senders.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				// Not ctx: the client tears its connection down when one ends.
				if err := b.sendPlain(context.WithoutCancel(ctx), b.plain[i%len(b.plain)]); err != nil {
					cancel(err)
				}
			}
		})
	}
	senders.Wait()
	return context.Cause(ctx)
}

// consume is the floor: a consumer of the client with an empty handler. The time runs
// until it has left, which tells the broker what is finished.
func (b *rocketBroker) consume(ctx context.Context, n int) (time.Duration, error) {
	b.started++
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{b.topic.Cluster.Addr()}), consumer.WithCredentials(b.credentials()),
		consumer.WithGroupName(group), consumer.WithInstance("bare-"+strconv.Itoa(b.started)),
		consumer.WithConsumerModel(consumer.Clustering), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(1), consumer.WithConsumeGoroutineNums(b.sizes.Concurrency))
	if err != nil {
		return 0, fmt.Errorf("make the bare consumer: %w", err)
	}
	var got, first atomic.Int64
	done := make(chan struct{})
	began := time.Now()
	err = c.Subscribe(b.topic.Name, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"},
		func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			switch k := got.Add(1); k {
			case 1:
				first.Store(int64(time.Since(began)))
				fallthrough
			default:
				if k == int64(n) {
					close(done)
				}
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return 0, fmt.Errorf("subscribe the bare consumer: %w", err)
	}
	if err := c.Start(); err != nil {
		return 0, fmt.Errorf("start the bare consumer: %w", err)
	}
	var late error
	select {
	case <-done:
	case <-ctx.Done():
		late = fmt.Errorf("after %d of %d messages: %w", got.Load(), n, context.Cause(ctx))
	}
	// The last results are a moment on their way to the offsets, and what Shutdown
	// tells of those is lost with the connection: our driver waits as long.
	time.Sleep(20 * time.Millisecond)
	if store, ok := c.(interface{ PersistConsumerOffset() error }); ok {
		_ = store.PersistConsumerOffset()
		time.Sleep(20 * time.Millisecond)
	}
	if err := c.Shutdown(); err != nil && late == nil {
		late = fmt.Errorf("shut the bare consumer down: %w", err)
	}
	return time.Since(began) - time.Duration(first.Load()), late
}
