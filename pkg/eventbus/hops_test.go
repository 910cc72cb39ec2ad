package eventbus_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// The hops of an event add up: created → published → received → done. A redelivery's
// wait is none of the broker's, and a clock that is behind no negative time.
func TestHopsOfAnEventAreMeasured(t *testing.T) {
	reg := prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	now := time.Now()
	d := eventbus.Delivery{Attempt: 1, PublishedAt: now.Add(-30 * time.Second), Message: eventbus.Message{
		Tag: string(event.PushDispatch), Headers: map[string]string{event.HeaderCreatedAt: event.FormatTime(now.Add(-40 * time.Second))},
	}}
	b := open(t, script{run: func(ctx context.Context, _ driver.Subscription, handle driver.Handle) error {
		handle(ctx, d)
		again, unknown, early := d, d, d
		again.Attempt, unknown.PublishedAt, early.PublishedAt = 2, time.Time{}, now.Add(time.Hour)
		handle(ctx, again)
		handle(ctx, unknown)
		handle(ctx, early)
		cancel()
		return nil
	}}, eventbus.Config{}, eventbus.WithDeadLetters(&letters{}), eventbus.WithRegisterer(reg))
	require.NoError(t, b.Subscribe(ctx, subscription, eventbus.HandlerFunc(func(context.Context, eventbus.Delivery) eventbus.Outcome { return eventbus.Done() })))

	families, err := reg.Gather()
	require.NoError(t, err)
	sums, counts := map[string]float64{}, map[string]uint64{}
	for _, f := range families {
		if h := f.GetMetric()[0].GetHistogram(); h != nil {
			sums[f.GetName()], counts[f.GetName()] = h.GetSampleSum(), h.GetSampleCount()
		}
	}
	require.EqualValues(t, 2, counts["seahub_consumer_delivery_seconds"])
	require.InDelta(t, 30, sums["seahub_consumer_delivery_seconds"], 10)
	require.EqualValues(t, 4, counts["seahub_consumer_process_seconds"])
	require.InDelta(t, 4*40, sums["seahub_consumer_end_to_end_seconds"], 30)
}
