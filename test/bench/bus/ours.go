package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
)

// group is what both ways consume by, on every broker.
var group = eventbus.Group(country, "bench")

// stallAfter is how long a consumer may get nothing before that is an error.
const stallAfter = 20 * time.Second

var errStall = errors.New("no message came for " + stallAfter.String())

// ours is the way through our own packages, the same on every broker.
func ours(bus *eventbus.Bus, msgs []eventbus.Message, s sizes) way {
	return way{
		name:    "our driver",
		publish: func(ctx context.Context, n int) error { return publishOurs(ctx, bus.Publisher(), msgs, n) },
		consume: func(ctx context.Context, n int) (time.Duration, error) {
			return consumeOurs(ctx, bus, n, s.Concurrency)
		},
	}
}

func openBus(cfg provider.Config) (*eventbus.Bus, error) {
	return provider.Open(cfg, env, country, zerolog.Nop(), eventbus.WithDeadLetters(noDeadLetters{}))
}

// batches calls send with portions of msgs until total are sent.
func batches[M any](ctx context.Context, msgs []M, total int, send func([]M) error) error {
	for left := total; left > 0; left -= len(msgs) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := send(msgs[:min(left, len(msgs))]); err != nil {
			return err
		}
	}
	return nil
}

func publishOurs(ctx context.Context, p *eventbus.Publisher, msgs []eventbus.Message, total int) error {
	return batches(ctx, msgs, total, func(batch []eventbus.Message) error {
		for i, r := range p.PublishBatch(ctx, batch) {
			if r.Status != driver.Confirmed {
				return fmt.Errorf("message %d: %s: %w", i, r.Status, r.Err)
			}
		}
		return nil
	})
}

// consumeOurs subscribes with an empty handler and stops when everything has come. The
// time runs from the first message to the return of Subscribe, when all of them are
// acknowledged.
func consumeOurs(ctx context.Context, bus *eventbus.Bus, want, concurrency int) (time.Duration, error) {
	// A service has a logger that writes no debug lines, and every event may add to it.
	ctx = zerolog.New(io.Discard).Level(zerolog.InfoLevel).WithContext(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var got, first atomic.Int64
	began := time.Now()
	handle := func(context.Context, eventbus.Delivery) eventbus.Outcome {
		switch n := got.Add(1); n {
		case 1:
			first.Store(int64(time.Since(began)))
			fallthrough
		default:
			if n == int64(want) {
				cancel(nil)
			}
		}
		return eventbus.Done()
	}
	go func() { // ends with ctx, which ends below at the latest
		last := int64(-1)
		for n := got.Load(); n != last; n = got.Load() {
			last = n
			select {
			case <-ctx.Done():
				return
			case <-time.After(stallAfter):
			}
		}
		cancel(errStall)
	}()
	err := bus.Subscribe(ctx, eventbus.Subscription{
		Topic: eventbus.Topic(country), Group: group, Concurrency: concurrency,
	}, eventbus.HandlerFunc(handle))
	took := time.Since(began) - time.Duration(first.Load())
	if err == nil && got.Load() < int64(want) {
		err = context.Cause(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("after %d of %d messages: %w", got.Load(), want, err)
	}
	return took, nil
}
