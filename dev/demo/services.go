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
		// Coupons are scanned every second instead of every five minutes, and may as well
		// be late by a minute before that is a failure of the event path.
		"SEAHUB_COUPON_EXPIRE_SCAN_DELAY_MS": "1000",
		"SEAHUB_COUPON_OVERDUE_SCANS":        "60",
		// One listing of the campaigns, at a pace that leaves the machine to the others.
		"SEAHUB_CAMPAIGN_EVERY":      "1h",
		"SEAHUB_CAMPAIGN_POLL_EVERY": "1s",
		"SEAHUB_CAMPAIGN_SLICE":      "4s",
		"SEAHUB_TIKTOK_RATE":         "50",
		"SEAHUB_CAMPAIGN_LINK_RATE":  "400",
	}
}

// startServices starts two relays, two consumers of each kind where more than one shows
// something, and the polls as processes of their own, as in production. The polls of
// coupons and campaigns, which begin all work there, come with the feed.
func (r *run) startServices(ctx context.Context) error {
	r.relays = &pair{stack: r.stack}
	starts := []func() error{
		func() error { return r.relays.start(ctx, 0) },
		func() error { return r.relays.start(ctx, 1) },
		func() error { return r.startConsumer(ctx, "push-consumer", "push-consumer-1", "consume") },
		func() error { return r.startConsumer(ctx, "push-consumer", "push-consumer-2", "consume") },
		func() error { return r.startConsumer(ctx, "push-consumer", "push-poll", "poll") },
		func() error { return r.startConsumer(ctx, couponConsumer, couponConsumer, "consume") },
		func() error { return r.startConsumer(ctx, "campaign-consumer", "campaign-consumer-1", "consume") },
		func() error { return r.startConsumer(ctx, "campaign-consumer", "campaign-consumer-2", "consume") },
		func() error { return r.startOps(ctx) },
	}
	return together(starts...)
}

// couponConsumer is the one that is stopped for a while.
const couponConsumer = "coupon-consumer"

// startPolls starts the polls of coupons and campaigns.
func (r *run) startPolls(ctx context.Context) error {
	return together(
		func() error { return r.startConsumer(ctx, couponConsumer, "coupon-poll", "poll") },
		func() error { return r.startConsumer(ctx, "campaign-consumer", "campaign-poll", "poll") },
	)
}

func together(starts ...func() error) error {
	errs := make([]error, len(starts))
	var wg sync.WaitGroup
	for i, start := range starts {
		wg.Go(func() { errs[i] = start() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (r *run) startConsumer(ctx context.Context, service, instance, role string) error {
	s, err := r.stack.StartService(ctx, service, instance, nil, "run", "--role="+role)
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

// stop ends both politely.
func (p *pair) stop(ctx context.Context) error {
	p.mu.Lock()
	relays := p.relays
	p.mu.Unlock()
	return together(
		func() error { return relays[0].Stop(ctx) },
		func() error { return relays[1].Stop(ctx) },
	)
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
