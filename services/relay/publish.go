package main

import (
	"context"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

// publisher joins outbox and eventbus, which do not know each other.
type publisher struct {
	bus          *eventbus.Publisher
	env, country string
}

// PublishBatch implements outbox.Publisher.
func (p publisher) PublishBatch(ctx context.Context, recs []outbox.Record) []outbox.Outcome {
	msgs := make([]eventbus.Message, len(recs))
	for i, r := range recs {
		headers := map[string]string{
			event.HeaderAggregateType: r.AggregateType, event.HeaderAggregateID: r.AggregateID,
			event.HeaderOutboxID: r.ID, event.HeaderCreatedAt: event.FormatTime(r.CreatedAt),
			event.HeaderEnv: p.env, event.HeaderCountry: p.country,
		}
		if r.Traceparent != "" {
			headers[event.HeaderTraceparent] = r.Traceparent
		}
		if r.RequestID != "" {
			headers[event.HeaderRequestID] = r.RequestID
		}
		msgs[i] = eventbus.Message{Topic: eventbus.Topic(p.country), Tag: string(r.Type), Key: r.EventID, Body: r.Payload, Headers: headers}
	}
	results := p.bus.PublishBatch(ctx, msgs)
	outs := make([]outbox.Outcome, len(results))
	for i, r := range results {
		outs[i] = outbox.Outcome{Class: classOf(r.Status), Err: r.Err}
	}
	return outs
}

// classOf maps what a driver says; what it does not know of is Unavailable.
func classOf(s driver.Status) outbox.Class {
	switch s {
	case driver.Confirmed:
		return outbox.Confirmed
	case driver.Refused:
		return outbox.Refused
	case driver.Failed:
		return outbox.Failed
	case driver.Throttled:
		return outbox.Throttled
	}
	return outbox.Unavailable
}
