package eventbus_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// callback is the context of a driver that can go on without its callback.
type callback struct {
	driver.Lazy
	abandoned chan eventbus.Outcome
}

func (c *callback) Abandon(out eventbus.Outcome) { c.abandoned <- out }

func newCallback(ctx context.Context) *callback {
	c := &callback{abandoned: make(chan eventbus.Outcome, 2)}
	c.Init(ctx, time.Time{})
	return c
}

// outcome is what a driver learns of one delivery, whichever way it hears of it.
func outcome(ctx context.Context, handle driver.Handle, d driver.Delivery) eventbus.Outcome {
	c, ok := ctx.(*callback)
	if !ok {
		return handle(ctx, d)
	}
	returned := make(chan eventbus.Outcome, 1)
	go func() { returned <- handle(ctx, d) }() // ends with the handler
	select {
	case out := <-returned:
		return out
	case out := <-c.abandoned:
		return out
	}
}

// receive runs a subscription whose driver does what f says.
func receive(t *testing.T, cfg eventbus.Config, h eventbus.HandlerFunc, r prometheus.Registerer, f func(ctx context.Context, handle driver.Handle)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	b := open(t, script{run: func(_ context.Context, _ driver.Subscription, handle driver.Handle) error {
		f(t.Context(), handle)
		cancel()
		return nil
	}}, cfg, eventbus.WithDeadLetters(&letters{}), eventbus.WithRegisterer(r))
	if err := b.Subscribe(ctx, subscription, h); err != nil {
		t.Fatalf("subscribe: %v", err)
	}
}

var short = eventbus.Config{Concurrency: 1, HandlerTimeout: 30 * time.Millisecond, HandlerGrace: 20 * time.Millisecond}

// Handlers that ignore their deadline are given up and counted, and when too many hang
// no more are started, whether the driver waits for its callback or not.
func TestHungHandlersAreAbandonedAndBounded(t *testing.T) {
	for name, of := range map[string]func(context.Context) context.Context{
		"waits":     func(ctx context.Context) context.Context { return ctx },
		"abandoned": func(ctx context.Context) context.Context { return newCallback(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			var started atomic.Int32
			reg := prometheus.NewRegistry()
			hung := func(want string) bool {
				return testutil.GatherAndCompare(reg, strings.NewReader("# HELP seahub_consumer_hung_handlers Handlers that ignored their deadline and still run.\n# TYPE seahub_consumer_hung_handlers gauge\nseahub_consumer_hung_handlers{consumer_group=\""+subscription.Group+"\"} "+want+"\n"), "seahub_consumer_hung_handlers") == nil
			}
			receive(t, short, func(context.Context, eventbus.Delivery) eventbus.Outcome {
				started.Add(1)
				<-release
				return eventbus.Done()
			}, reg, func(ctx context.Context, handle driver.Handle) {
				for i, want := range []string{"abandoned", "abandoned", "abandoned", "no handler was free"} {
					out := outcome(of(ctx), handle, driver.Delivery{Attempt: 1})
					if out.Verdict != driver.Retry || out.Err == nil || !strings.Contains(out.Err.Error(), want) {
						t.Errorf("delivery %d ends as %s %v, want a retry that says %q", i, out.Verdict, out.Err, want)
					}
				}
				if n := started.Load(); n != 3 || !hung("3") {
					t.Errorf("%d handlers were started, three may hang", n)
				}
				close(release)
				for end := time.Now().Add(10 * time.Second); !hung("0"); time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("handlers that have returned still count as hung")
					}
				}
				if out := outcome(of(ctx), handle, driver.Delivery{Attempt: 1}); out.Verdict != driver.Done {
					t.Errorf("after that a delivery ends as %s %v", out.Verdict, out.Err)
				}
			})
		})
	}
}

// A handler learns why its context ended, and one that heeds it is not abandoned.
func TestHandlerLearnsTheCause(t *testing.T) {
	taken := errors.New("another member has it")
	cfg := short
	cfg.HandlerTimeout = time.Minute
	var cause error
	started := make(chan *callback, 1)
	receive(t, cfg, func(ctx context.Context, _ eventbus.Delivery) eventbus.Outcome {
		(<-started).End(taken)
		<-ctx.Done()
		cause = context.Cause(ctx)
		return eventbus.Retry(ctx.Err())
	}, nil, func(ctx context.Context, handle driver.Handle) {
		c := newCallback(ctx)
		started <- c
		if out := handle(c, driver.Delivery{Attempt: 16}); out.Verdict != driver.Retry || !errors.Is(out.Err, context.Canceled) {
			t.Errorf("the last attempt, cut short, ends as %s %v: want a retry", out.Verdict, out.Err)
		}
	})
	if cause != taken {
		t.Errorf("the cause is %v, want the driver's", cause)
	}
}

// An outcome that is none is a retry.
func TestUnknownVerdictIsARetry(t *testing.T) {
	out := outcomeOf(t, eventbus.Config{}, eventbus.Delivery{Attempt: 1},
		func(context.Context, eventbus.Delivery) eventbus.Outcome { return eventbus.Outcome{Verdict: 9} }, &letters{})
	if out.Verdict != eventbus.VerdictRetry || out.Err == nil {
		t.Errorf("outcome is %+v", out)
	}
}

// slowLetters takes its time.
type slowLetters struct {
	stores  chan struct{}
	release chan struct{}
}

func (l slowLetters) StoreDeadLetter(context.Context, eventbus.DeadLetter) error {
	l.stores <- struct{}{}
	<-l.release
	return nil
}

// A hung handler that returns while its dead letter is being stored changes nothing: the
// driver hears of the dead letter, and of no retry before it.
func TestAnAbandonedRunHasOneOutcome(t *testing.T) {
	for name, of := range map[string]func(context.Context) context.Context{
		"waits":     func(ctx context.Context) context.Context { return ctx },
		"abandoned": func(ctx context.Context) context.Context { return newCallback(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := short
			cfg.MaxAttempts = 1
			store := slowLetters{make(chan struct{}, 2), make(chan struct{})}
			hangs := make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			b := open(t, script{run: func(_ context.Context, _ driver.Subscription, handle driver.Handle) error {
				defer cancel()
				got := make(chan eventbus.Outcome, 1)
				go func() { got <- outcome(of(t.Context()), handle, driver.Delivery{Attempt: 1}) }()
				<-store.stores
				close(hangs)
				select {
				case out := <-got:
					t.Errorf("the driver hears of %s %v before the letter is stored", out.Verdict, out.Err)
					close(store.release)
					return nil
				case <-time.After(100 * time.Millisecond):
				}
				close(store.release)
				if out := <-got; out.Verdict != driver.Dead {
					t.Errorf("it ends as %s %v", out.Verdict, out.Err)
				}
				return nil
			}}, cfg, eventbus.WithDeadLetters(store))
			if err := b.Subscribe(ctx, subscription, eventbus.HandlerFunc(func(context.Context, eventbus.Delivery) eventbus.Outcome {
				<-hangs
				return eventbus.Done()
			})); err != nil {
				t.Error(err)
			}
		})
	}
}
