package outbox

import (
	"context"

	"github.com/seahub/seahub-mq/pkg/event"
)

type traceKey struct{}

type trace struct {
	traceparent string
	requestID   string
}

// WithTrace returns a context whose appended events carry the trace and the request
// that caused them. Values that do not fit are left out: an event never fails for
// the sake of its trace.
func WithTrace(ctx context.Context, traceparent, requestID string) context.Context {
	var t trace
	if event.TraceID(traceparent) != "" && plain(traceparent) {
		t.traceparent = traceparent
	}
	if len(requestID) <= event.MaxRequestIDLen && plain(requestID) {
		t.requestID = requestID
	}
	return context.WithValue(ctx, traceKey{}, t)
}

func traceOf(ctx context.Context) trace {
	t, _ := ctx.Value(traceKey{}).(trace)
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
