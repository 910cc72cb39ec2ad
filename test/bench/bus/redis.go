package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// redisBroker is Redis by our driver and by go-redis alone.
type redisBroker struct {
	sizes  sizes
	server *testenv.Server
	bus    *eventbus.Bus
	client *redis.Client
	stream string
	about  string
	// entries are one batch as our driver stores it, field by field.
	entries [][]string
	msgs    []eventbus.Message
}

// startRedis starts a server and learns from our driver itself what the bytes of a
// batch are, so that the bare client sends the very same ones.
func startRedis(ctx context.Context, s sizes) (_ broker, err error) {
	b := &redisBroker{sizes: s, msgs: corpus(s)}
	if b.server, err = testenv.StartRedis(ctx, testenv.Options{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	var cfg provider.Config
	cfg.Provider = provider.RedisStreams
	cfg.Redis.Addresses = []string{b.server.Addr()}
	cfg.Redis.Retention = 24 * time.Hour
	if b.bus, err = openBus(cfg); err != nil {
		return nil, err
	}
	b.client = redis.NewClient(&redis.Options{
		Addr: b.server.Addr(), Protocol: 2, MaxRetries: -1,
		ReadTimeout: stallAfter, WriteTimeout: stallAfter,
		WriteBufferSize: 128 << 10, ReadBufferSize: 256 << 10, // as large as our driver's
	})
	if err := publishOurs(ctx, b.bus.Publisher(), b.msgs, s.Batch); err != nil {
		return nil, fmt.Errorf("publish a first batch: %w", err)
	}
	if err := b.learn(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// learn finds the stream and reads back what our driver stored.
func (b *redisBroker) learn(ctx context.Context) error {
	keys, _, err := b.client.ScanType(ctx, 0, "*", 1000, "stream").Result()
	if err != nil {
		return fmt.Errorf("find the driver's stream: %w", err)
	}
	if len(keys) != 1 {
		return fmt.Errorf("find the driver's stream: there are %q", keys)
	}
	b.stream = keys[0]
	// Not XRANGE of the client: it would lose the order of the fields.
	raw, err := b.client.Do(ctx, "XRANGE", b.stream, "-", "+").Slice()
	if err != nil {
		return fmt.Errorf("read a batch back: %w", err)
	}
	for _, r := range raw {
		fields, err := entryFields(r)
		if err != nil {
			return err
		}
		b.entries = append(b.entries, fields)
	}
	info, err := b.client.Info(ctx, "server").Result()
	if err != nil {
		return fmt.Errorf("ask for the version: %w", err)
	}
	_, rest, _ := strings.Cut(info, "redis_version:")
	number, _, _ := strings.Cut(rest, "\r\n")
	b.about = "Redis " + number + ", appendonly yes, appendfsync everysec"
	return b.reset(ctx)
}

func entryFields(raw any) ([]string, error) {
	pair, _ := raw.([]any)
	if len(pair) != 2 {
		return nil, fmt.Errorf("XRANGE gave %v", raw)
	}
	values, _ := pair[1].([]any)
	out := make([]string, len(values))
	for i, v := range values {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("XRANGE gave a field of type %T", v)
		}
		out[i] = s
	}
	return out, nil
}

func (b *redisBroker) version() string { return b.about }

func (b *redisBroker) reset(ctx context.Context) error {
	// At once: freeing a stream in the background would disturb what is measured next.
	if err := b.client.Del(ctx, b.stream).Err(); err != nil {
		return fmt.Errorf("empty the stream: %w", err)
	}
	return nil
}

func (b *redisBroker) stored(ctx context.Context) (int, error) {
	n, err := b.client.XLen(ctx, b.stream).Result()
	return int(n), err
}

// unfinished counts both what was never delivered and what was not acknowledged.
func (b *redisBroker) unfinished(ctx context.Context) (int, error) {
	groups, err := b.client.XInfoGroups(ctx, b.stream).Result()
	if err != nil {
		return 0, fmt.Errorf("ask for the group: %w", err)
	}
	for _, g := range groups {
		if g.Name == group {
			return int(g.Pending + max(g.Lag, 0)), nil
		}
	}
	return 0, fmt.Errorf("group %s does not exist", group)
}

func (b *redisBroker) ways() (way, way) {
	return ours(b.bus, b.msgs, b.sizes), way{name: "bare go-redis", publish: b.publish, consume: b.consume}
}

func (b *redisBroker) close() {
	if b.bus != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = b.bus.Close(ctx)
	}
	if b.client != nil {
		_ = b.client.Close()
	}
	_ = b.server.Close()
}

// publish is the floor: one pipeline of XADDs a batch.
func (b *redisBroker) publish(ctx context.Context, n int) error {
	return batches(ctx, b.entries, n, func(batch [][]string) error {
		pipe := b.client.Pipeline()
		for _, fields := range batch {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: b.stream, Values: fields})
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}

// consume is the floor: read, acknowledge, and nothing in between.
func (b *redisBroker) consume(ctx context.Context, n int) (time.Duration, error) {
	if err := b.client.XGroupCreateMkStream(ctx, b.stream, group, "0").Err(); err != nil {
		return 0, fmt.Errorf("make the group: %w", err)
	}
	args := &redis.XReadGroupArgs{
		Group: group, Consumer: "bare", Streams: []string{b.stream, ">"},
		Count: int64(b.sizes.Concurrency), Block: stallAfter / 2,
	}
	var began time.Time
	ids := make([]string, 0, b.sizes.Concurrency)
	for left := n; left > 0; left -= len(ids) {
		streams, err := b.client.XReadGroup(ctx, args).Result()
		if errors.Is(err, redis.Nil) {
			err = errStall
		}
		if err != nil {
			return 0, fmt.Errorf("with %d messages to go: %w", left, err)
		}
		if began.IsZero() {
			began = time.Now()
		}
		ids = ids[:0]
		for _, m := range streams[0].Messages {
			ids = append(ids, m.ID)
		}
		if err := b.client.XAck(ctx, b.stream, group, ids...).Err(); err != nil {
			return 0, fmt.Errorf("acknowledge: %w", err)
		}
	}
	return time.Since(began), nil
}
