package eventbus

import (
	"context"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// Publisher sends messages. It is safe for concurrent use.
type Publisher struct {
	sender  driver.Sender
	metrics *metrics
	tracing *tracing
}

// PublishBatch sends msgs and returns one result for each, in the same order. It
// returns by ctx's deadline and never partly: what has no answer by then is
// Unavailable. Nothing is retried here: who publishes decides that by Status.
func (p *Publisher) PublishBatch(ctx context.Context, msgs []Message) []Result {
	if len(msgs) == 0 {
		return nil
	}
	ctx, done := p.tracing.publish(ctx, msgs)
	start := time.Now()
	results := p.sender.Send(ctx, msgs)
	p.metrics.published(results, time.Since(start))
	done(results)
	return results
}

// Publish sends one message and returns nil once the broker has stored it. The
// error wraps a *PublishError.
func (p *Publisher) Publish(ctx context.Context, topic, tag, eventKey string, payload []byte) error {
	r := p.PublishBatch(ctx, []Message{{Topic: topic, Tag: tag, Key: eventKey, Body: payload}})[0]
	if r.Status == driver.Confirmed {
		return nil
	}
	return &PublishError{Topic: topic, Tag: tag, Key: eventKey, Status: r.Status, Err: r.Err}
}

// PublishError says which message was not confirmed, and of what kind the failure is.
type PublishError struct {
	Topic, Tag, Key string
	Status          Status
	Err             error
}

func (e *PublishError) Error() string {
	return fmt.Sprintf("publish %s %q to %s: %s: %v", e.Tag, e.Key, e.Topic, e.Status, e.Err)
}

func (e *PublishError) Unwrap() error { return e.Err }
