package eventbus_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a driver whose receiver does what the test says. The delivery contract
// itself is tested by the conformance kit on real brokers.
type script struct {
	run  func(ctx context.Context, sub driver.Subscription, h driver.Handle) error
	send func(msgs []driver.Message) []driver.Result
}

func (s script) Run(ctx context.Context, sub driver.Subscription, h driver.Handle) error {
	return s.run(ctx, sub, h)
}
func (s script) Send(_ context.Context, msgs []driver.Message) []driver.Result { return s.send(msgs) }
func (script) Close(context.Context) error                                     { return nil }
func (script) Topics(context.Context) ([]string, error)                        { return nil, nil }
func (script) Group(context.Context, string, string) (driver.GroupState, error) {
	return driver.GroupState{}, nil
}

type letters struct{ stored []event.DeadLetter }

func (l *letters) StoreDeadLetter(_ context.Context, dl event.DeadLetter) error {
	l.stored = append(l.stored, dl)
	return nil
}

func open(t *testing.T, s script, cfg eventbus.Config, opts ...eventbus.Option) *eventbus.Bus {
	t.Helper()
	b := eventbus.New(eventbus.Parts{Sender: s, Receiver: s, Inspector: s}, cfg, "id-test", "id", opts...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

var subscription = eventbus.Subscription{Topic: "beex-id-events", Group: "GID_id_push_dispatch", Tags: []string{"PUSH_DISPATCH"}}

func TestNames(t *testing.T) {
	if eventbus.Topic("id") != "beex-id-events" || eventbus.Group("id", "push_dispatch") != "GID_id_push_dispatch" {
		t.Error("topic or group is named otherwise than its producers and operators expect")
	}
}

// outcomeOf runs one delivery through the guard.
func outcomeOf(t *testing.T, cfg eventbus.Config, d eventbus.Delivery, h eventbus.HandlerFunc, store eventbus.DeadLetters) eventbus.Outcome {
	t.Helper()
	var out eventbus.Outcome
	ctx, cancel := context.WithCancel(t.Context())
	b := open(t, script{run: func(ctx context.Context, sub driver.Subscription, handle driver.Handle) error {
		out = handle(ctx, d)
		cancel()
		return nil
	}}, cfg, eventbus.WithDeadLetters(store))
	if err := b.Subscribe(ctx, subscription, h); err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	return out
}

func TestForgottenOutcomeIsARetry(t *testing.T) {
	out := outcomeOf(t, eventbus.Config{}, eventbus.Delivery{Attempt: 1},
		func(context.Context, eventbus.Delivery) eventbus.Outcome { return eventbus.Outcome{} }, &letters{})
	if out.Verdict != eventbus.VerdictRetry {
		t.Errorf("the zero outcome is %s", out.Verdict)
	}
}

func TestHandlerThatEndsItsGoroutineIsARetry(t *testing.T) {
	out := outcomeOf(t, eventbus.Config{}, eventbus.Delivery{Attempt: 1},
		func(context.Context, eventbus.Delivery) eventbus.Outcome { runtime.Goexit(); panic("not reached") }, &letters{})
	if out.Verdict != eventbus.VerdictRetry || out.Err == nil {
		t.Errorf("outcome is %+v", out)
	}
}

func TestAttemptBeyondTheCapIsBuriedWithoutARun(t *testing.T) {
	store := &letters{}
	out := outcomeOf(t, eventbus.Config{MaxAttempts: 3}, eventbus.Delivery{Message: eventbus.Message{Key: "push:1"}, Attempt: 4},
		func(context.Context, eventbus.Delivery) eventbus.Outcome {
			t.Error("the handler ran")
			return eventbus.Done()
		}, store)
	if out.Verdict != eventbus.VerdictDead || len(store.stored) != 1 || store.stored[0].Attempts != 3 {
		t.Errorf("outcome %s, letters %+v", out.Verdict, store.stored)
	}
}

func TestOutsideFailureIsStillARetryAndKeepsItsMark(t *testing.T) {
	cause := errors.New("fcm is down")
	out := outcomeOf(t, eventbus.Config{}, eventbus.Delivery{Attempt: 1},
		func(context.Context, eventbus.Delivery) eventbus.Outcome {
			return eventbus.RetryOutside(time.Minute, cause)
		}, &letters{})
	if !out.Outside || out.After != time.Minute || !errors.Is(out.Err, cause) {
		t.Errorf("outcome is %+v", out)
	}
}

// A receiver must not end by itself; if one does, the subscription starts it again.
func TestReceiverThatEndsIsStartedAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	b := open(t, script{run: func(context.Context, driver.Subscription, driver.Handle) error {
		if runs++; runs == 3 {
			cancel()
		}
		return errors.New("gave up")
	}}, eventbus.Config{}, eventbus.WithDeadLetters(&letters{}))
	if err := b.Subscribe(ctx, subscription, eventbus.HandlerFunc(nil)); err != nil || runs != 3 {
		t.Errorf("%d runs, %v", runs, err)
	}
	if ok, reason := b.State(subscription.Group).Ready(); ok || reason == "" {
		t.Errorf("an ended subscription is ready: %v %q", ok, reason)
	}
	if ok, _ := b.State("GID_id_other").Ready(); ok {
		t.Error("a group that was never subscribed is ready")
	}
}

func TestSubscribeTellsEverythingThatIsWrong(t *testing.T) {
	b := open(t, script{}, eventbus.Config{})
	err := b.Subscribe(t.Context(), eventbus.Subscription{Tags: []string{""}, Concurrency: -1}, nil)
	if !errors.Is(err, eventbus.ErrSubscription) {
		t.Fatalf("error is %v", err)
	}
	for _, want := range []string{"topic", "group", "tag", "concurrency", "handler", "dead letter store"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not mention %s: %v", want, err)
		}
	}
}

func TestPublishErrorTellsTheStatus(t *testing.T) {
	cause := errors.New("too large")
	b := open(t, script{send: func(msgs []driver.Message) []driver.Result {
		return []driver.Result{{Status: driver.Refused, Err: cause}}
	}}, eventbus.Config{})
	err := b.Publisher().Publish(t.Context(), "beex-id-events", "PUSH_DISPATCH", "push:1", []byte(`{"secret":1}`))
	var pe *eventbus.PublishError
	if !errors.As(err, &pe) || pe.Status != eventbus.Refused || !errors.Is(err, cause) {
		t.Fatalf("error is %v", err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error tells the payload: %v", err)
	}
}

func TestConfigNamesBothKeys(t *testing.T) {
	err := eventbus.Config{MinRetry: time.Minute, MaxRetry: time.Second}.Validate()
	if err == nil || !strings.Contains(err.Error(), "SEAHUB_BUS_MAX_RETRY") || !strings.Contains(err.Error(), "seahub.bus.min-retry") {
		t.Errorf("error is %v", err)
	}
}
