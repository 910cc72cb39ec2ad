package event

import (
	"context"
	"sync"

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
	return &logContext{Context: ctx, fields: f}
}

// logContext makes its logger when somebody asks for one: every event gets such a
// context, and few of them write a line.
type logContext struct {
	context.Context
	fields LogFields

	once   sync.Once
	logger *zerolog.Logger
}

// Value implements context.Context. The logger of the parent comes with the fields.
func (c *logContext) Value(key any) any {
	v := c.Context.Value(key)
	base, ok := v.(*zerolog.Logger)
	if !ok || base != zerolog.Ctx(c.Context) {
		return v
	}
	c.once.Do(func() {
		l := c.fields.add(base.With()).Logger()
		c.logger = &l
	})
	return c.logger
}

func (f LogFields) add(c zerolog.Context) zerolog.Context {
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
	return c
}

// TraceID takes the trace id out of a W3C traceparent, or returns "".
func TraceID(traceparent string) string {
	// version(2) - trace-id(32) - parent-id(16) - flags(2)
	if len(traceparent) != MaxTraceparentLen || traceparent[2] != '-' || traceparent[35] != '-' {
		return ""
	}
	return traceparent[3:35]
}
