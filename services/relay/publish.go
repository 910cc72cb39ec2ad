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
		outs[i] = outbox.Outcome{Class: classes[r.Status], Err: r.Err}
	}
	return outs
}

// replay sends a dead letter again, as it was.
func (p publisher) replay(ctx context.Context, dl event.DeadLetter) outbox.Outcome {
	r := p.bus.PublishBatch(ctx, []eventbus.Message{{
		Topic: dl.Topic, Tag: dl.Tag, Key: dl.EventID, Body: dl.Body, Headers: dl.Headers,
	}})[0]
	return outbox.Outcome{Class: classes[r.Status], Err: r.Err}
}

// classes maps what a driver says; what is not in it is Unavailable, the zero value.
var classes = map[driver.Status]outbox.Class{
	driver.Confirmed: outbox.Confirmed,
	driver.Refused:   outbox.Refused,
	driver.Failed:    outbox.Failed,
	driver.Throttled: outbox.Throttled,
}
