package eventbus_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

const (
	creation  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203331-00"
)

func recorder() (*tracetest.SpanRecorder, trace.TracerProvider) {
	r := tracetest.NewSpanRecorder()
	return r, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
}

func TestAProcessSpanIsTheChildOfItsEventsTransaction(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		handler eventbus.HandlerFunc
		status  codes.Code
	}{
		"done": {func(ctx context.Context, _ eventbus.Delivery) eventbus.Outcome {
			require.Equal(t, "0af7651916cd43dd8448eb211c80319c", trace.SpanContextFromContext(ctx).TraceID().String())
			require.Equal(t, event.Trace{Traceparent: creation, RequestID: "r"}, event.TraceOf(ctx))
			return eventbus.Done()
		}, codes.Unset},
		"retry": {func(context.Context, eventbus.Delivery) eventbus.Outcome { return eventbus.Retry(boom) }, codes.Error},
		"panic": {func(context.Context, eventbus.Delivery) eventbus.Outcome { panic("secret") }, codes.Error},
	} {
		t.Run(name, func(t *testing.T) {
			spans, provider := recorder()
			ctx, cancel := context.WithCancel(t.Context())
			d := eventbus.Delivery{Message: eventbus.Message{Topic: "beex-id-events", Tag: "PUSH_DISPATCH", Key: "push:1",
				Headers: map[string]string{event.HeaderTraceparent: creation, event.HeaderRequestID: "r"}}, Attempt: 2}
			b := open(t, script{run: func(ctx context.Context, _ driver.Subscription, handle driver.Handle) error {
				handle(ctx, d)
				d.Headers = map[string]string{event.HeaderTraceparent: unsampled}
				handle(ctx, d)
				d.Headers = nil
				handle(ctx, d)
				cancel()
				return nil
			}}, eventbus.Config{}, eventbus.WithDeadLetters(&letters{}), eventbus.WithTracerProvider(provider))
			first := true
			require.NoError(t, b.Subscribe(ctx, subscription, eventbus.HandlerFunc(func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
				if first {
					first = false
					return c.handler(ctx, d)
				}
				return eventbus.Done()
			})))
			require.Len(t, spans.Ended(), 1, "what the transaction did not record is not recorded here, and what began nowhere is the sampler's choice")
			span := spans.Ended()[0]
			require.Equal(t, "b7ad6b7169203331", span.Parent().SpanID().String())
			require.Equal(t, trace.SpanKindConsumer, span.SpanKind())
			require.Equal(t, "process beex-id-events", span.Name())
			require.Equal(t, c.status, span.Status().Code)
		})
	}
}

func TestAPublishSpanLinksToTheEventsTransactions(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)) // a batch begins a trace of its own
	b := open(t, script{send: func(msgs []driver.Message) []driver.Result {
		out := make([]driver.Result, len(msgs))
		out[0].Status = driver.Confirmed
		return out
	}}, eventbus.Config{}, eventbus.WithTracerProvider(provider))
	with := func(traceparent string) eventbus.Message {
		return eventbus.Message{Topic: "beex-id-events", Headers: map[string]string{event.HeaderTraceparent: traceparent}}
	}
	b.Publisher().PublishBatch(t.Context(), []eventbus.Message{with(unsampled), with("junk"), {Topic: "beex-id-events"}})
	require.Empty(t, spans.Ended(), "nobody records any of these")
	b.Publisher().PublishBatch(t.Context(), []eventbus.Message{with(unsampled), with(creation)})
	require.Len(t, spans.Ended(), 1)
	span := spans.Ended()[0]
	require.Equal(t, "publish beex-id-events", span.Name())
	require.Equal(t, trace.SpanKindProducer, span.SpanKind())
	require.Len(t, span.Links(), 1)
	require.Equal(t, "b7ad6b7169203331", span.Links()[0].SpanContext.SpanID().String())
	require.Equal(t, codes.Error, span.Status().Code)
	require.Equal(t, "1 of 2 messages were not confirmed", span.Status().Description)

	many := make([]eventbus.Message, 500)
	for i := range many {
		many[i] = with(creation)
	}
	b.Publisher().PublishBatch(t.Context(), many)
	require.Len(t, spans.Ended()[1].Links(), 128)
}
