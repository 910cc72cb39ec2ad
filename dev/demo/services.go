package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seahub/seahub-mq/dev/stack"
)

const (
	commandTime = 20 * time.Second
	// flagBinding is after how long a change of a flag is binding everywhere.
	flagBinding = 11 * time.Second
)

// settings differ from the defaults to keep the story short: a standby that works
// within seconds of its predecessor's death, and short waits after lost answers.
func settings() map[string]string {
	return map[string]string{
		"SEAHUB_RELAY_LEASE_TTL":       "6s",
		"SEAHUB_RELAY_PASS_TIMEOUT":    "3s",
		"SEAHUB_RELAY_PUBLISH_TIMEOUT": "2s",
		"SEAHUB_BUS_WATCH_EVERY":       "500ms",
		"SEAHUB_PUSH_RETRY_BASE":       "1s",
	}
}

// startServices starts two relays, two consumers and the poll, as in production.
func (r *run) startServices(ctx context.Context) error {
	r.relays = &pair{stack: r.stack}
	starts := []func() error{
		func() error { return r.relays.start(ctx, 0) },
		func() error { return r.relays.start(ctx, 1) },
		func() error { return r.startConsumer(ctx, "push-consumer-1", "consume") },
		func() error { return r.startConsumer(ctx, "push-consumer-2", "consume") },
		func() error { return r.startConsumer(ctx, "push-poll", "poll") },
	}
	errs := make([]error, len(starts))
	var wg sync.WaitGroup
	for i, start := range starts {
		wg.Go(func() { errs[i] = start() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (r *run) startConsumer(ctx context.Context, instance, role string) error {
	s, err := r.stack.StartService(ctx, "push-consumer", instance, nil, "run", "--role="+role)
	if err != nil {
		return err
	}
	return s.AwaitReady(ctx)
}

// pair is the relays, one of which works while the other stands by.
type pair struct {
	stack *stack.Stack

	mu     sync.Mutex
	relays [2]*stack.Service
}

func (p *pair) start(ctx context.Context, i int) error {
	s, err := p.stack.StartService(ctx, "relay", fmt.Sprintf("relay-%d", i+1), nil)
	if err != nil {
		return err
	}
	if err := s.AwaitReady(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.relays[i] = s
	return nil
}

// working returns the relay that publishes now.
func (p *pair) working(ctx context.Context) (int, *stack.Service, error) {
	p.mu.Lock()
	relays := p.relays
	p.mu.Unlock()
	for {
		for i, s := range relays {
			if v, err := s.Metric(ctx, "seahub_outbox_working", nil); err == nil && v == 1 {
				return i, s, nil
			}
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return 0, nil, fmt.Errorf("no relay works: %w", err)
		}
	}
}
