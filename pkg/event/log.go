package event

import (
	"context"
	"sync"

	"github.com/rs/zerolog"
)

// LogFields are the ids by which a log line is found again. Empty ones are left out.
type LogFields struct {
	Task    string
	Group   string
	EventID string
	// Trace is of the event in hand, or of the request that is being answered.
	Trace Trace
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

// Value implements context.Context. The logger of the parent comes with the fields, and
// the trace is TraceOf's.
func (c *logContext) Value(key any) any {
	if key == (traceKey{}) && c.fields.Trace != (Trace{}) {
		return c.fields.Trace
	}
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
		{"trace_id", TraceID(f.Trace.Traceparent)},
		{"request_id", f.Trace.RequestID},
	} {
		if kv.value != "" {
			c = c.Str(kv.name, kv.value)
		}
	}
	return c
}
