package rocketmq

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

func TestClassifyReadsTheBrokersCode(t *testing.T) {
	for text, want := range map[string]driver.Status{
		"CODE: 13, DESC: the message is illegal":              driver.Refused,
		"CODE: 215  DESC: messages flow control":              driver.Throttled,
		"CODE: 2, DESC: [REJECTREQUEST]system busy":           driver.Throttled,
		"CODE: 1, DESC: create mapped file failed":            driver.Failed,
		"CODE: 1, DESC: AclException: Check signature failed": driver.Unavailable,
		"CODE: 16, DESC: the topic sending is forbidden":      driver.Unavailable,
		"the topic=beex-id-events route info not found":       driver.Unavailable,
		"request timeout": driver.Unavailable,
		"dial tcp 127.0.0.1:10911: connect: connection refused": driver.Unavailable,
	} {
		if got := parseAnswer(errors.New(text)).status; got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

func TestDelayLevelIsNeverShorterThanAsked(t *testing.T) {
	for d, want := range map[time.Duration]int{
		0: 1, time.Second: 1, 1001 * time.Millisecond: 2, time.Minute: 5, 11 * time.Minute: 15, 5 * time.Hour: 18,
	} {
		if got := delayLevel(d); got != want {
			t.Errorf("delayLevel(%s) = %d, want %d", d, got, want)
		}
	}
}

func TestMessageComesBackAsItWent(t *testing.T) {
	body := []byte(`{"pushId":"1"}`)
	in := driver.Message{Topic: "beex-id-events", Tag: "PUSH_DISPATCH", Key: "push:1", Body: body,
		Headers: map[string]string{event.HeaderAggregateID: "agg-1", event.HeaderCountry: "id", "KEYS": "not the broker's"}}
	m := newMessage(&in)
	if m.GetKeys() != "push:1 agg-1" {
		t.Errorf("keys are %q", m.GetKeys())
	}
	body[0] = 'X'
	if m.Body[0] == 'X' {
		t.Error("the message shares the caller's body")
	}
	r := &run{sub: driver.Subscription{Topic: in.Topic, Group: "GID_id_push_dispatch"}}
	d := r.delivery(received(m, func(x *primitive.MessageExt) {
		x.MsgId, x.ReconsumeTimes, x.BornTimestamp = "0A", 2, 1_700_000_000_000
	}))
	if d.Key != in.Key || d.Tag != in.Tag || d.Topic != in.Topic || d.Attempt != 3 || d.BrokerID != "0A" || d.PublishedAt.Year() != 2023 {
		t.Errorf("delivery is %+v", d)
	}
	for name, want := range in.Headers {
		if d.Headers[name] != want {
			t.Errorf("header %q is %q, want %q", name, d.Headers[name], want)
		}
	}
	if len(d.Headers) != len(in.Headers) {
		t.Errorf("headers are %v", d.Headers)
	}
}

func TestNewTellsEverythingAtOnce(t *testing.T) {
	_, err := New(Config{AccessKey: "very-secret"}, Options{Country: "id", Logger: zerolog.Nop()})
	if err == nil {
		t.Fatal("an empty configuration was taken")
	}
	for _, want := range []string{"SEAHUB_ROCKETMQ_NAME_SERVERS", "seahub.rocketmq.name-servers", "SEAHUB_ROCKETMQ_SECRET_KEY"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %s: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "very-secret") {
		t.Errorf("error tells the key: %v", err)
	}
}

func TestSendAnswersForEachMessage(t *testing.T) {
	d, err := New(Config{NameServers: []string{"127.0.0.1:1"}}, Options{Country: "id", Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	results := d.Send(ctx, []driver.Message{
		{Topic: "beex-id-events", Tag: "A", Key: "k", Body: []byte("{}")},
		{Topic: "beex-id-events", Tag: "", Key: "k", Body: []byte("{}")},
	})
	if len(results) != 2 || results[0].Status != driver.Unavailable || !errors.Is(results[0].Err, context.Canceled) || results[1].Status != driver.Refused {
		t.Errorf("results are %+v", results)
	}
	if err := d.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if err := d.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if r := d.Send(context.Background(), []driver.Message{{Topic: "beex-id-events", Tag: "A", Key: "k", Body: []byte("{}")}}); !errors.Is(r[0].Err, driver.ErrClosed) {
		t.Errorf("after Close: %+v", r[0])
	}
}

// The client repeats itself while a broker is away, puts whole messages into its lines
// and ends the process for some of them.
func TestTheClientsLogIsBoundedAndHoldsNoBody(t *testing.T) {
	var out bytes.Buffer
	l := &clientLog{logger: zerolog.New(&out)}
	fields := map[string]any{"message": "secret-body", "messages": []string{"secret-body"}, "topic": "beex-id-events"}
	for range 10_000 {
		l.Warning("pull message from broker error", fields)
		l.Error("conn error", fields)
		l.Fatal("the end", fields)
		l.Info("update offset to broker success", fields)
		l.Debug("anything", fields)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 || strings.Contains(out.String(), "secret-body") {
		t.Errorf("%d lines: %s", n, out.String())
	}
	if !strings.Contains(out.String(), "beex-id-events") {
		t.Errorf("the line does not name the topic: %s", out.String())
	}
}

func TestAHeartbeatIsNotCutShort(t *testing.T) {
	for age, want := range map[time.Duration]bool{
		0: false, 900 * time.Millisecond: false, 995 * time.Millisecond: true, 1100 * time.Millisecond: true,
		2 * time.Second: false, 30*time.Second + 990*time.Millisecond: true, 31*time.Second + 100*time.Millisecond: true, 45 * time.Second: false,
	} {
		if got := beatUnderWay(age, true); got != want {
			t.Errorf("after %s: %v", age, got)
		}
	}
	if beatUnderWay(1100*time.Millisecond, false) {
		t.Error("a heartbeat that is over is waited for")
	}
}

// The callbacks' side of Run, without a client: the callback recovers, bounds
// concurrency and gives back what comes too late.
func TestCallbackNeverAcksByAccident(t *testing.T) {
	verdict := driver.Outcome{}
	ended := make(chan struct{})
	defer close(ended)
	r := &run{
		slots: newSlots(1, ended), halted: make(chan struct{}),
		handle: func(context.Context, driver.Delivery) driver.Outcome {
			if verdict.Reason == "panic" {
				panic("x")
			}
			return verdict
		},
	}
	mem := &member{r: r, until: context.Background(), gone: make(chan struct{}), inHand: map[queueKey]int{}}
	mem.handling, mem.stopHandling = context.WithCancel(context.Background())
	defer mem.stopHandling()
	m := received(primitive.NewMessage("t", []byte("{}")), func(*primitive.MessageExt) {})
	const success, later = 0, 1
	for name, c := range map[string]struct {
		out  driver.Outcome
		want int
	}{
		"forgotten": {driver.Outcome{}, later},
		"retry":     {driver.Outcome{Verdict: driver.Retry}, later},
		"panic":     {driver.Outcome{Reason: "panic"}, later},
		"done":      {driver.Outcome{Verdict: driver.Done}, success},
		"skip":      {driver.Outcome{Verdict: driver.Skip}, success},
		"dead":      {driver.Outcome{Verdict: driver.Dead}, success},
	} {
		verdict = c.out
		if got, _ := mem.consume(context.Background(), m); int(got) != c.want {
			t.Errorf("%s: consume result %d, want %d", name, got, c.want)
		}
	}
	verdict = driver.Outcome{Verdict: driver.Halt, Reason: "foreign"}
	got := make(chan int, 1)
	go func() {
		res, _ := mem.consume(context.Background(), m)
		got <- int(res)
	}()
	<-r.halted
	select {
	case res := <-got:
		t.Fatalf("the foreign message was answered with %d before the client was gone", res)
	case <-time.After(20 * time.Millisecond):
	}
	close(mem.gone)
	if res := <-got; res != later {
		t.Errorf("the foreign message was answered with %d", res)
	}
}

// received is m as the client would hand it to a consumer.
func received(m *primitive.Message, change func(*primitive.MessageExt)) *primitive.MessageExt {
	x := &primitive.MessageExt{}
	x.Topic, x.Body = m.Topic, m.Body
	x.WithProperties(m.GetProperties())
	change(x)
	return x
}
