package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seahub/seahub-mq/dev/books"
	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

const (
	brokerStop  = 5 * time.Second
	quotaSpell  = 4 * time.Second
	quotaWait   = 2 * time.Second
	relayAway   = 3 * time.Second
	lostAnswers = 12
	// replays is how many events are given back by their ids, one command each.
	replays = 10
	// workingTime bounds the search for the relay that works.
	workingTime = 20 * time.Second
	// aftermath is how long after its end a fault may still delay a push.
	aftermath = 8 * time.Second
)

// faults breaks things in the middle, one after the other.
type faults struct {
	run *run

	mu      sync.Mutex
	now     string // what is broken at the moment
	windows []books.Window
	redone  int // events that were given back by hand
	tell    []books.MustTell
	ended   int // deliveries that ended in processes that are gone
}

// act is one fault, begun when this share of the feed has begun.
type act struct {
	share float64
	title string
	// beside says that pushes take no notice.
	beside bool
	play   func(f *faults, ctx context.Context) error
}

// brokerName is what the story calls the broker.
func brokerName(provider string) string {
	if provider == stack.RocketMQ {
		return "RocketMQ"
	}
	return "Redis"
}

func acts(broker string) []act {
	return []act{
		{0.10, "coupon-consumer is stopped", true, (*faults).stopConsumer},
		{0.25, "a poison event is written: no broker takes it", true, (*faults).poison},
		{0.30, fmt.Sprintf("FCM answers 429 for %s (Retry-After: %s)", quotaSpell, quotaWait), false, (*faults).quota},
		{0.42, fmt.Sprintf("FCM takes %d requests and closes the connection without an answer", lostAnswers), false, (*faults).loseAnswers},
		{0.44, fmt.Sprintf("%d published events are published again by their ids", replays), true, (*faults).replayByID},
		{0.48, fmt.Sprintf("%s is stopped for at least %s", broker, brokerStop), false, (*faults).stopBroker},
		{0.65, "the working relay is killed with -9", false, (*faults).killRelay},
		{0.78, fmt.Sprintf("FCM takes %d requests and says 503", lostAnswers), false, (*faults).lie},
		{0.80, "both relays are stopped", false, (*faults).stopRelays},
		{0.97, "all events of the first seconds are published again", false, (*faults).replayByTime},
	}
}

func (f *faults) play(ctx context.Context) error {
	for _, a := range acts(brokerName(f.run.o.Provider)) {
		if err := f.until(ctx, a.share); err != nil {
			return nil // the run ends; whoever ended it says why
		}
		f.run.say.printf("! %s", a.title)
		f.set(a.title)
		from := time.Now()
		err := a.play(f, ctx)
		f.mu.Lock()
		if !a.beside {
			f.windows = append(f.windows, books.Window{From: from.Add(-time.Second), To: time.Now().Add(aftermath)})
		}
		f.mu.Unlock()
		f.set("")
		if err != nil {
			return fmt.Errorf("%s: %w", a.title, err)
		}
	}
	return nil
}

func (f *faults) until(ctx context.Context, share float64) error {
	for f.run.feed.share() < share {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (f *faults) set(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = what
}

func (f *faults) current() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *faults) past() ([]books.Window, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]books.Window(nil), f.windows...), f.redone
}

func (f *faults) mustHaveTold() []books.MustTell {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]books.MustTell(nil), f.tell...)
}

func (f *faults) endedBefore() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

func (f *faults) quota(ctx context.Context) error {
	f.run.stack.FCM.Behave(fcmfake.Behaviour{Kind: fcmfake.Quota, RetryAfter: quotaWait, For: quotaSpell})
	return pause(ctx, quotaSpell)
}

func (f *faults) loseAnswers(context.Context) error {
	f.run.stack.FCM.Behave(fcmfake.Behaviour{Kind: fcmfake.AmbiguousClose, Times: lostAnswers})
	return nil
}

func (f *faults) lie(context.Context) error {
	f.run.stack.FCM.Behave(fcmfake.Behaviour{Kind: fcmfake.UnavailableAccepted, RetryAfter: time.Second, Times: lostAnswers})
	return nil
}

func (f *faults) stopBroker(ctx context.Context) error {
	broker := f.run.stack.Broker
	end := func() error { return broker.Stop(ctx) }
	if f.run.o.Provider == stack.RocketMQ {
		end = broker.Kill // its polite stop takes longer than the outage is to last
	}
	since, err := f.mustTell(ctx, "PublishSilent", "the broker was stopped")
	if err != nil {
		return err
	}
	if err := end(); err != nil {
		return err
	}
	if err := errors.Join(f.run.feed.another(ctx), pause(ctx, brokerStop), f.run.untilTold(ctx, "PublishSilent", since)); err != nil {
		return err
	}
	return broker.Start(ctx)
}

// mustTell notes that people must hear of what begins now. An alert that still stands for
// an earlier reason ends first, if it does soon.
func (f *faults) mustTell(ctx context.Context, rule, fault string) (since time.Time, err error) {
	if err := f.run.untilResolved(ctx, rule); err != nil {
		return since, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	since = time.Now()
	f.tell = append(f.tell, books.MustTell{Rule: rule, Since: since, Fault: fault})
	return since, nil
}

// poison writes an event with a tag that cannot be, as a mistake in an app's code would,
// and discards it when people have heard of it.
func (f *faults) poison(ctx context.Context) error {
	since, err := f.mustTell(ctx, "OutboxFailed", "a poison event was written")
	if err != nil {
		return err
	}
	_, err = f.run.stack.DB.ExecContext(ctx, `INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at, request_id)
		VALUES ('obe-poison', 'poison:1', 'NOT A TAG', 'mistake', 'mistake', '{}', NOW(3), 'req-of-the-mistake')`)
	if err != nil {
		return fmt.Errorf("write a poison event: %w", err)
	}
	if err := f.run.untilTold(ctx, "OutboxFailed", since); err != nil {
		return err
	}
	_, err = f.run.relay(ctx, "discard", "--event-id=poison:1", "--reason=demo")
	return err
}

// stopConsumer leaves events of one kind without a consumer until people hear of it.
func (f *faults) stopConsumer(ctx context.Context) error {
	since, err := f.mustTell(ctx, "ConsumerLag", "coupon-consumer was stopped")
	if err != nil {
		return err
	}
	for _, s := range f.run.stack.Services() {
		if s.Name != couponConsumer {
			continue
		}
		n, err := endedDeliveries(ctx, s)
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.ended += n
		f.mu.Unlock()
		if err := s.Stop(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(f.run.coupons.another(ctx, "coupon-of-the-stop"), f.run.untilTold(ctx, "ConsumerLag", since)); err != nil {
		return err
	}
	return f.run.startConsumer(ctx, couponConsumer, couponConsumer, "consume")
}

// stopRelays leaves the outbox without a relay until people hear of it.
func (f *faults) stopRelays(ctx context.Context) error {
	since, err := f.mustTell(ctx, "OutboxBacklog", "both relays were stopped")
	if err != nil {
		return err
	}
	if err := errors.Join(f.run.relays.stop(ctx), f.run.feed.another(ctx), f.run.untilTold(ctx, "OutboxBacklog", since)); err != nil {
		return err
	}
	return together(
		func() error { return f.run.relays.start(ctx, 0) },
		func() error { return f.run.relays.start(ctx, 1) },
	)
}

func (f *faults) killRelay(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, workingTime)
	defer cancel()
	i, s, err := f.run.relays.working(bounded)
	if err != nil {
		return err
	}
	if err := s.Kill(); err != nil {
		return err
	}
	f.run.say.printf("! it was %s, pid %d; the other one takes over when the lease has run out", s.Name, s.Pid())
	if err := pause(ctx, relayAway); err != nil {
		return err
	}
	if err := f.run.relays.start(ctx, i); err != nil {
		return err
	}
	f.run.say.printf("! %s runs again, as the standby", s.Name)
	return nil
}

// replayByID gives back single events, as a person does who was given their ids.
func (f *faults) replayByID(ctx context.Context) error {
	rows, err := f.run.stack.DB.QueryContext(ctx, "SELECT event_id FROM outbox_event WHERE status = 'PUBLISHED' ORDER BY created_at, id LIMIT ?", replays)
	if err != nil {
		return fmt.Errorf("look for published events: %w", err)
	}
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return fmt.Errorf("look for published events: %w", err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("look for published events: %w", err)
	}
	for _, id := range ids {
		if err := f.requeue(ctx, "--event-id", id); err != nil {
			return err
		}
	}
	return nil
}

// replayByTime gives back a span of time, as after a broker that lost its data.
func (f *faults) replayByTime(ctx context.Context) error {
	var until string
	err := f.run.stack.DB.QueryRowContext(ctx, "SELECT DATE_FORMAT(MIN(created_at) + INTERVAL 5 SECOND, '%Y-%m-%dT%H:%i:%sZ') FROM outbox_event").Scan(&until)
	if err != nil {
		return fmt.Errorf("look for published events: %w", err)
	}
	if err := f.requeue(ctx, "--type", "PUSH_DISPATCH", "--to", until); err != nil {
		return err
	}
	if err := f.requeue(ctx, "--type", "COUPON_EXPIRE", "--to", until); err != nil {
		return err
	}
	return f.requeue(ctx, "--type", "CAMPAIGN_PRODUCT_SYNC", "--to", until)
}

func (f *faults) requeue(ctx context.Context, which ...string) error {
	said, err := f.run.relay(ctx, append([]string{"requeue", "--status", "PUBLISHED", "--reason", "demo", "--json"}, which...)...)
	if err != nil {
		return err
	}
	var events int
	if _, after, ok := strings.Cut(said, `"requeued":`); ok { // there may be log lines before it
		_, _ = fmt.Sscan(after, &events)
	}
	if events == 0 {
		return fmt.Errorf("relay requeue %v requeued nothing: %q", which, said)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.redone += events
	return nil
}
