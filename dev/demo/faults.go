package demo

import (
	"context"
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
}

// act is one fault, begun when this share of the feed has begun.
type act struct {
	share float64
	title string
	play  func(f *faults, ctx context.Context) error
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
		{0.08, fmt.Sprintf("FCM answers 429 for %s (Retry-After: %s)", quotaSpell, quotaWait), (*faults).quota},
		{0.28, fmt.Sprintf("FCM takes %d requests and closes the connection without an answer", lostAnswers), (*faults).loseAnswers},
		{0.36, fmt.Sprintf("%d published events are published again by their ids", replays), (*faults).replayByID},
		{0.42, fmt.Sprintf("%s is stopped for %s", broker, brokerStop), (*faults).stopBroker},
		{0.68, "the working relay is killed with -9", (*faults).killRelay},
		{0.92, "all events of the first seconds are published again", (*faults).replayByTime},
		{0.96, fmt.Sprintf("FCM takes %d requests and says 503", lostAnswers), (*faults).lie},
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
		f.windows = append(f.windows, books.Window{From: from.Add(-time.Second), To: time.Now().Add(aftermath)})
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
	if err := end(); err != nil {
		return err
	}
	if err := pause(ctx, brokerStop); err != nil {
		return err
	}
	return broker.Start(ctx)
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
	return f.requeue(ctx, "--type", "PUSH_DISPATCH", "--to", until)
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
