package rocketmq_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// noLetters demands that no event dies.
type noLetters struct{ t *testing.T }

func (l noLetters) StoreDeadLetter(_ context.Context, dl event.DeadLetter) error {
	l.t.Errorf("%s became a dead letter: %s", dl.EventID, dl.Reason)
	return nil
}

// publish sends one event each, over all queues in turn.
func publish(t *testing.T, d driver.Sender, topic, tag string, n int) {
	t.Helper()
	for i := range n {
		res := d.Send(t.Context(), []driver.Message{{Topic: topic, Tag: tag, Key: fmt.Sprint(tag, i), Body: []byte(markedBody)}})
		require.Equal(t, driver.Confirmed, res[0].Status, "%v", res[0].Err)
	}
}

// figure is the sum of a metric's series.
func figure(t *testing.T, reg *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// nothingLeft demands that the group has finished all that is on the topic.
func nothingLeft(t *testing.T, d driver.Inspector, topic, group string) {
	t.Helper()
	testenv.Eventually(t, recovered, "nothing is left", func() bool {
		g, err := d.Group(t.Context(), topic, group)
		return err == nil && g.Backlog.Known && g.Backlog.N == 0
	})
}

// Handlers that panic, and as many that hang as may run at a time, for longer than the
// client's own limit: the others' events pass, people can see it while it lasts, and
// when it is over the same member works as before.
func TestHandlersThatPanicOrHangHoldNothingUp(t *testing.T) {
	t.Parallel()
	const concurrency = 4
	c := testenv.RocketMQ(t)
	r := newRoom(t, c)
	group := eventbus.Group(r.country, "push_dispatch")
	r.group(t, group)
	cfg := r.quick(c.Addr())
	cfg.ConsumeTimeout = time.Minute
	d, reg, mark := r.driver(t, cfg), prometheus.NewRegistry(), logs.mark()
	bus := eventbus.New(eventbus.Parts{Sender: d, Receiver: d, Inspector: d, Provisioner: d}, eventbus.Config{
		Concurrency: concurrency, HandlerTimeout: 3 * time.Second, HandlerGrace: 500 * time.Millisecond, DrainTimeout: 5 * time.Second,
		MinRetry: time.Second, MaxRetry: time.Second, WatchEvery: time.Second,
	}, r.country+"-test", r.country, eventbus.WithDeadLetters(noLetters{t}), eventbus.WithRegisterer(reg))

	hang := make(chan struct{})
	endHang := sync.OnceFunc(func() { close(hang) })
	var hung, panicked, again, others atomic.Int32
	handle := func(_ context.Context, ev eventbus.Delivery) eventbus.Outcome {
		switch {
		case ev.Tag == "KIT_B" && ev.Attempt == 1:
			hung.Add(1)
			<-hang
		case ev.Tag == "KIT_C" && ev.Attempt == 1:
			panicked.Add(1)
			panic("on purpose")
		case ev.Tag == "KIT_A":
			others.Add(1)
		default:
			again.Add(1)
		}
		return eventbus.Done()
	}
	ctx, cancel := context.WithCancel(logs.of(t).WithContext(context.Background()))
	ended := make(chan error, 1)
	go func() {
		ended <- bus.Subscribe(ctx, eventbus.Subscription{Topic: r.topic(), Group: group}, eventbus.HandlerFunc(handle))
	}()
	t.Cleanup(func() { // before the driver's end
		endHang()
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, bus.Close(context.Background()))
	})

	publish(t, d, r.topic(), "KIT_B", concurrency)
	testenv.Eventually(t, recovered, "no handler is free", func() bool { return hung.Load() == concurrency })
	began := time.Now()
	publish(t, d, r.topic(), "KIT_C", queues)
	publish(t, d, r.topic(), "KIT_A", 50)
	testenv.Eventually(t, recovered, "the others go on", func() bool { return others.Load() >= 50 })
	testenv.Eventually(t, recovered, "those that failed are done at another attempt", func() bool { return again.Load() >= concurrency+queues })
	nothingLeft(t, d, r.topic(), group)

	require.EqualValues(t, concurrency, figure(t, reg, "seahub_consumer_hung_handlers"))
	require.EqualValues(t, concurrency, figure(t, reg, "seahub_consumer_abandoned_total"))
	require.EqualValues(t, queues, figure(t, reg, "seahub_consumer_panics_total"))
	own, _ := logs.since(t, mark)
	for _, want := range []string{"handler ignored the end of its context", "handler panicked"} {
		told := 0
		for _, line := range own {
			if strings.Contains(line, want) && strings.Contains(line, `"message":"event handled"`) && strings.Contains(line, `"level":"warn"`) {
				told++
			}
			require.NotContains(t, line, "no-log-to-read")
		}
		require.Equal(t, 4, told, "%s: one line for each\n%s", want, strings.Join(own, ""))
	}

	// The client looks for messages that are over its limit once in each minute.
	time.Sleep(time.Until(began.Add(cfg.ConsumeTimeout + 5*time.Second)))
	endHang()
	testenv.Eventually(t, recovered, "it is over", func() bool { return figure(t, reg, "seahub_consumer_hung_handlers") == 0 })
	publish(t, d, r.topic(), "KIT_A", 2*queues)
	testenv.Eventually(t, recovered, "the member goes on", func() bool { return others.Load() >= 50+2*queues })
	nothingLeft(t, d, r.topic(), group)
	ok, why := bus.State(group).Ready()
	require.True(t, ok, why)
	require.EqualValues(t, concurrency, hung.Load())
	require.EqualValues(t, concurrency+queues, again.Load(), "what came of the hung handlers in the end counts for nothing")
	require.EqualValues(t, queues, panicked.Load())
}

// A callback that takes longer than the client's own limit, which package eventbus does
// not let happen: others go on, a copy is delivered, and nothing is stuck after it.
func TestACallbackBeyondTheClientsLimit(t *testing.T) {
	t.Parallel()
	testenv.SoakOnly(t, "it waits three minutes for the client's limit")
	c := testenv.RocketMQ(t)
	r := newRoom(t, c)
	group := eventbus.Group(r.country, "push_dispatch")
	r.group(t, group)
	cfg := r.quick(c.Addr())
	cfg.ConsumeTimeout = time.Minute
	d, mark := r.driver(t, cfg), logs.mark()
	var others, slow atomic.Int32
	returned := make(chan struct{})
	s := subscribe(t, d, r.topic(), group, nil, func(_ context.Context, del driver.Delivery) driver.Outcome {
		if del.Tag == "KIT_A" {
			others.Add(1)
		} else if slow.Add(1) == 1 {
			time.Sleep(150 * time.Second)
			close(returned)
		}
		return driver.Outcome{Verdict: driver.Done}
	})
	publish(t, d, r.topic(), "KIT_B", 1)
	publish(t, d, r.topic(), "KIT_A", 50)
	testenv.Eventually(t, recovered, "others go on", func() bool { return others.Load() >= 50 })
	testenv.Eventually(t, 5*time.Minute, "a copy is delivered", func() bool { return slow.Load() == 2 })
	select {
	case <-returned:
		t.Error("the copy came after the end of the first run")
	default:
	}
	<-returned
	nothingLeft(t, d, r.topic(), group)
	// By the same member, on all queues. The race detector would tell of the client's
	// look for expired messages, which reads what it holds without a lock.
	publish(t, d, r.topic(), "KIT_A", 2*queues)
	testenv.Eventually(t, recovered, "the member goes on", func() bool { return others.Load() >= 50+2*queues })
	nothingLeft(t, d, r.topic(), group)
	require.EqualValues(t, 2, slow.Load())
	connected, why := s.state()
	require.True(t, connected, why)
	own, client := logs.since(t, mark)
	for _, line := range slices.Concat(own, client) {
		require.NotContains(t, line, "no-log-to-read")
	}
}
