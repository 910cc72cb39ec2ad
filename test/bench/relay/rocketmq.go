package main

import (
	"context"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/test/bench/internal/rmq"
)

// rocketTopic is a private RocketMQ.
type rocketTopic struct{ *rmq.Topic }

func startRocketMQ(ctx context.Context) (topic, error) {
	t, err := rmq.Start(ctx, eventbus.Topic(country))
	if err != nil {
		return nil, err
	}
	return rocketTopic{t}, nil
}

func (t rocketTopic) version() string { return t.About() }

func (t rocketTopic) configure(env map[string]string) {
	env["SEAHUB_MQ_PROVIDER"] = provider.RocketMQ
	env["SEAHUB_ROCKETMQ_NAME_SERVERS"] = t.Cluster.Addr()
	env["SEAHUB_ROCKETMQ_ACCESS_KEY"] = t.Cluster.Publisher.AccessKey
	env["SEAHUB_ROCKETMQ_SECRET_KEY"] = t.Cluster.Publisher.SecretKey
}

func (t rocketTopic) config() provider.Config {
	c := provider.Config{Provider: provider.RocketMQ}
	c.RocketMQ.NameServers = []string{t.Cluster.Addr()}
	c.RocketMQ.AccessKey, c.RocketMQ.SecretKey = t.Cluster.Publisher.AccessKey, t.Cluster.Publisher.SecretKey
	return c
}

func (t rocketTopic) reset(ctx context.Context) error        { return t.Reset(ctx) }
func (t rocketTopic) count(ctx context.Context) (int, error) { return t.Count(ctx) }

func (t rocketTopic) each(ctx context.Context, f func(key string)) error {
	return t.Each(ctx, func(m *primitive.MessageExt) { f(keyOf(m)) })
}

func (t rocketTopic) follow(ctx context.Context, ready chan<- struct{}, f func(key string, at time.Time)) error {
	return t.Follow(ctx, ready, func(m *primitive.MessageExt, at time.Time) { f(keyOf(m), at) })
}

// keyOf is the event's id; the aggregate's stands behind it.
func keyOf(m *primitive.MessageExt) string {
	key, _, _ := strings.Cut(m.GetKeys(), " ")
	return key
}

// stop kills the broker: its polite end takes seconds, and it loses nothing either way,
// since the operating system keeps what it has written.
func (t rocketTopic) stop(context.Context) error      { return t.Cluster.Broker.Kill() }
func (t rocketTopic) start(ctx context.Context) error { return t.Cluster.Broker.Start(ctx) }
func (t rocketTopic) close()                          { _ = t.Close() }
