package outbox

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/seahub/seahub-mq/pkg/event"
)

// traceOf is the trace that events appended under ctx carry: the OpenTelemetry span in
// progress, else what event.WithTrace was given. Values that do not fit are left out: an
// event never fails for the sake of its trace.
func traceOf(ctx context.Context) event.Trace {
	t := event.TraceOf(ctx)
	if oteltrace.SpanContextFromContext(ctx).IsValid() {
		header := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, header)
		t.Traceparent = header.Get(event.HeaderTraceparent)
	}
	if event.TraceID(t.Traceparent) == "" || !plain(t.Traceparent) {
		t.Traceparent = ""
	}
	if len(t.RequestID) > event.MaxRequestIDLen || !plain(t.RequestID) {
		t.RequestID = ""
	}
	return t
}

// plain reports whether every collation and every broker keeps s as it is.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// orNull stores an empty string as NULL.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
