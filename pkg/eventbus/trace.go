package eventbus

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// WithTracerProvider makes spans of publishing and handling. Without it, or with nil,
// there are none and they cost nothing.
//
// The transaction that appended an event is its creation context, and the message
// carries it unchanged. A publish span covers a batch and links to the contexts of its
// events; a process span is a child of its event's, so that one trace shows the way
// from the transaction to the effect.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(o *options) { o.tracers = p }
}

// maxLinks is the SDK's own limit on the links of a span.
const maxLinks = 128

// tracing makes spans. The names of attributes are those of OpenTelemetry's semantic
// conventions for messaging, which are not stable yet: they stand in this file alone.
type tracing struct{ tracer trace.Tracer }

func newTracing(p trace.TracerProvider) *tracing {
	if p == nil {
		return nil
	}
	return &tracing{p.Tracer("github.com/seahub/seahub-mq/pkg/eventbus")}
}

// created is ctx with the creation context of a message, if it has one.
func created(ctx context.Context, m *driver.Message) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(m.Headers))
}

// publish begins the span of a batch, if a trace that is recorded is among its events.
func (t *tracing) publish(ctx context.Context, msgs []driver.Message) (context.Context, func([]Result)) {
	if t == nil {
		return ctx, func([]Result) {}
	}
	var links []trace.Link
	for i := range msgs {
		if len(links) == maxLinks {
			break
		}
		if sc := trace.SpanContextFromContext(created(context.Background(), &msgs[i])); sc.IsSampled() {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	if len(links) == 0 {
		return ctx, func([]Result) {}
	}
	ctx, span := t.tracer.Start(ctx, "publish "+msgs[0].Topic, trace.WithSpanKind(trace.SpanKindProducer), trace.WithLinks(links...),
		trace.WithAttributes(
			attribute.String("messaging.operation.name", "publish"),
			attribute.String("messaging.operation.type", "send"),
			attribute.String("messaging.destination.name", msgs[0].Topic),
			attribute.Int("messaging.batch.message_count", len(msgs)),
		))
	return ctx, func(results []Result) {
		bad := 0
		for _, r := range results {
			if r.Status != driver.Confirmed {
				bad++
			}
		}
		if bad > 0 {
			span.SetStatus(codes.Error, fmt.Sprintf("%d of %d messages were not confirmed", bad, len(msgs)))
		}
		span.End()
	}
}

// handler puts a span around each run of h.
func (t *tracing) handler(group string, h Handler) Handler {
	if t == nil {
		return h
	}
	return HandlerFunc(func(ctx context.Context, d Delivery) Outcome {
		ctx, span := t.tracer.Start(created(ctx, &d.Message), "process "+d.Topic, trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(
				attribute.String("messaging.operation.name", "process"),
				attribute.String("messaging.operation.type", "process"),
				attribute.String("messaging.destination.name", d.Topic),
				attribute.String("messaging.consumer.group.name", group),
				attribute.String("messaging.message.id", d.Key),
				attribute.String("seahub.tag", d.Tag),
				attribute.Int("seahub.attempt", d.Attempt),
			))
		var out Outcome // a handler that panics leaves its zero value, a retry
		defer func() {
			span.SetAttributes(attribute.String("seahub.result", out.Verdict.String()))
			switch out.Verdict {
			case driver.Retry, driver.Dead, driver.Halt:
				span.SetStatus(codes.Error, out.Reason)
			}
			span.End()
		}()
		out = h.Handle(ctx, d)
		return out
	})
}
