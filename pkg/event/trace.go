package event

import "context"

// Trace is what caused a piece of work: the W3C traceparent of the transaction that
// wrote the event, and the request's id where there is no trace. Either may be empty.
type Trace struct {
	Traceparent string
	RequestID   string
}

type traceKey struct{}

// WithTrace returns a context whose appended events carry the trace and the request
// that caused them. A consumer's context carries those of the event in hand.
func WithTrace(ctx context.Context, traceparent, requestID string) context.Context {
	return context.WithValue(ctx, traceKey{}, Trace{traceparent, requestID})
}

// TraceOf returns the trace of ctx, empty if there is none.
func TraceOf(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t
}

// TraceID takes the trace id out of a W3C traceparent, or returns "".
func TraceID(traceparent string) string {
	// version(2) - trace-id(32) - parent-id(16) - flags(2)
	if len(traceparent) != MaxTraceparentLen || traceparent[2] != '-' || traceparent[35] != '-' {
		return ""
	}
	return traceparent[3:35]
}
