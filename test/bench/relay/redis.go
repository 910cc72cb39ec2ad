package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// redisTopic is a private Redis. The stream's name and its field are those that the
// driver documents for readers in other languages.
type redisTopic struct {
	server *testenv.Server
	client *redis.Client
	about  string
}

const (
	stream   = "beex:" + env + ":events"
	fieldKey = "key"
)

func startRedis(ctx context.Context) (topic, error) {
	server, err := testenv.StartRedis(ctx, testenv.Options{})
	if err != nil {
		return nil, err
	}
	t := &redisTopic{server: server, client: redis.NewClient(&redis.Options{
		Addr: server.Addr(), Protocol: 2, DialerRetries: 1, ContextTimeoutEnabled: true,
	})}
	info, err := t.client.Info(ctx, "server").Result()
	if err != nil {
		t.close()
		return nil, fmt.Errorf("ask Redis for its version: %w", err)
	}
	_, rest, _ := strings.Cut(info, "redis_version:")
	number, _, _ := strings.Cut(rest, "\r\n")
	t.about = "Redis " + number + " (appendfsync everysec)"
	return t, nil
}

func (t *redisTopic) version() string { return t.about }

func (t *redisTopic) configure(env map[string]string) {
	env["SEAHUB_MQ_PROVIDER"] = provider.RedisStreams
	env["SEAHUB_REDIS_ADDRESSES"] = t.server.Addr()
}

func (t *redisTopic) config() provider.Config {
	c := provider.Config{Provider: provider.RedisStreams}
	c.Redis.Addresses = []string{t.server.Addr()}
	return c
}

func (t *redisTopic) reset(ctx context.Context) error { return t.client.Del(ctx, stream).Err() }

func (t *redisTopic) count(ctx context.Context) (int, error) {
	n, err := t.client.XLen(ctx, stream).Result()
	return int(n), err
}

func (t *redisTopic) each(ctx context.Context, f func(key string)) error {
	const page = 5000
	for from := "-"; ; {
		msgs, err := t.client.XRangeN(ctx, stream, from, "+", page).Result()
		if err != nil {
			return fmt.Errorf("read the stream: %w", err)
		}
		for _, m := range msgs {
			key, _ := m.Values[fieldKey].(string)
			f(key)
		}
		if len(msgs) < page {
			return nil
		}
		from = "(" + msgs[len(msgs)-1].ID
	}
}

func (t *redisTopic) follow(ctx context.Context, ready chan<- struct{}, f func(key string, at time.Time)) error {
	last, err := t.lastID(ctx)
	if err != nil {
		return err
	}
	close(ready)
	for ctx.Err() == nil {
		streams, err := t.client.XRead(ctx, &redis.XReadArgs{
			Streams: []string{stream, last}, Count: 1000, Block: time.Second,
		}).Result()
		at := time.Now()
		if err != nil {
			if !errors.Is(err, redis.Nil) {
				_ = pause(ctx, 10*time.Millisecond) // an outage, or the end
			}
			continue
		}
		for _, m := range streams[0].Messages {
			key, _ := m.Values[fieldKey].(string)
			f(key, at)
			last = m.ID
		}
	}
	return nil
}

func (t *redisTopic) lastID(ctx context.Context) (string, error) {
	msgs, err := t.client.XRevRangeN(ctx, stream, "+", "-", 1).Result()
	if err != nil {
		return "", fmt.Errorf("find the stream's end: %w", err)
	}
	if len(msgs) == 0 {
		return "0", nil
	}
	return msgs[0].ID, nil
}

func (t *redisTopic) stop(ctx context.Context) error  { return t.server.Stop(ctx) }
func (t *redisTopic) start(ctx context.Context) error { return t.server.Start(ctx) }

func (t *redisTopic) close() {
	_ = t.client.Close()
	_ = t.server.Close()
}
