package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/event"
)

// Record is a claimed row of outbox_event on its way to the broker.
type Record struct {
	// ID is the row's own id, EventID the event's.
	ID            string
	EventID       string
	Type          event.Type
	AggregateType string
	AggregateID   string
	Payload       []byte
	CreatedAt     time.Time
	Traceparent   string
	RequestID     string
	// RetryCount is how many attempts failed before this one.
	RetryCount int
	// Age is how long the event has been waiting, on the database's clock: since it
	// was written, or since a person requeued it.
	Age time.Duration
}

// Class says what became of a send.
type Class int

// The classes. The zero value is Unavailable: only the broker's confirmation makes an
// event published.
const (
	// Unavailable: no answer in time, or none at all. The broker may have the event.
	Unavailable Class = iota
	// Confirmed: the broker has stored the event.
	Confirmed
	// Refused: neither this broker nor a later attempt will take the event.
	Refused
	// Failed: this event failed while the broker answers.
	Failed
	// Throttled: the broker asks for a slower pace.
	Throttled
)

func (c Class) String() string {
	switch c {
	case Unavailable:
		return "unavailable"
	case Confirmed:
		return "confirmed"
	case Refused:
		return "refused"
	case Failed:
		return "failed"
	case Throttled:
		return "throttled"
	}
	return fmt.Sprintf("class(%d)", int(c))
}

// Outcome is the result of sending one event.
type Outcome struct {
	Class Class
	// Err says why, without payload.
	Err error
}

// Publisher sends to the broker. PublishBatch returns one Outcome per record, in their
// order, by ctx's deadline; what has no answer by then is Unavailable. It keeps no
// reference to the records and retries nothing by itself.
type Publisher interface {
	PublishBatch(ctx context.Context, recs []Record) []Outcome
}

// publishSafely holds a Publisher to its contract: one that panics or miscounts has
// confirmed nothing.
func publishSafely(ctx context.Context, p Publisher, recs []Record) (outs []Outcome) {
	defer func() {
		if v := recover(); v != nil {
			outs = allUnavailable(len(recs), fmt.Errorf("publisher panicked: %v", v))
		}
	}()
	outs = p.PublishBatch(ctx, recs)
	if len(outs) != len(recs) {
		return allUnavailable(len(recs), fmt.Errorf("publisher gave %d outcomes for %d events", len(outs), len(recs)))
	}
	return outs
}

func allUnavailable(n int, err error) []Outcome {
	outs := make([]Outcome, n)
	for i := range outs {
		outs[i] = Outcome{Class: Unavailable, Err: err}
	}
	return outs
}
