package event

import (
	"context"

	"github.com/rs/zerolog"
)

// LogFields are the ids by which a log line is found again. Empty ones are left out.
type LogFields struct {
	Task      string
	Group     string
	EventID   string
	TraceID   string
	RequestID string
}

// WithLogFields returns a context whose logger (zerolog.Ctx) writes f on every line.
// It is the one place that gives log fields their names.
func WithLogFields(ctx context.Context, f LogFields) context.Context {
	c := zerolog.Ctx(ctx).With()
	for _, kv := range [...]struct{ name, value string }{
		{"task", f.Task},
		{"consumer_group", f.Group},
		{"event_id", f.EventID},
		{"trace_id", f.TraceID},
		{"request_id", f.RequestID},
	} {
		if kv.value != "" {
			c = c.Str(kv.name, kv.value)
		}
	}
	return c.Logger().WithContext(ctx)
}

// TraceID takes the trace id out of a W3C traceparent, or returns "".
func TraceID(traceparent string) string {
	// version(2) - trace-id(32) - parent-id(16) - flags(2)
	if len(traceparent) != MaxTraceparentLen || traceparent[2] != '-' || traceparent[35] != '-' {
		return ""
	}
	return traceparent[3:35]
}
