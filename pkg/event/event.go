// Package event is the vocabulary that producers, the relay and consumers share:
// what an event is, which types exist, how their ids are built and what their
// payloads hold. It is a leaf: it knows no database and no broker.
//
// # Identity
//
// An event has two ids. Its EventID is made by the business from the thing that
// happened ("push:4711"), is unique in outbox_event and is what every consumer
// recognises a duplicate by. The outbox row's own id (NewOutboxID) only names the
// row; a requeued row keeps both. Broker message ids are never used as identity:
// they change on every resend.
//
// # Type and tag
//
// An event's Type is its broker tag, letter for letter.
package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Type names a kind of event and is the broker tag of its messages.
type Type string

// The event types of this system. Consumers ignore types that they do not know.
const (
	PushDispatch        Type = "PUSH_DISPATCH"
	CouponExpire        Type = "COUPON_EXPIRE"
	CampaignProductSync Type = "CAMPAIGN_PRODUCT_SYNC"
	OpsCounter          Type = "OPS_COUNTER"
	// AppVersionSync is reserved: versions are read from configuration, no event is written.
	AppVersionSync Type = "APP_VERSION_SYNC"
)

// Limits of the outbox_event columns and of the smallest broker.
const (
	MaxEventIDLen       = 64
	MaxTypeLen          = 64
	MaxAggregateTypeLen = 32
	MaxAggregateIDLen   = 64
	// MaxPayloadBytes is what a MySQL TEXT column holds; both brokers take more.
	MaxPayloadBytes = 65_535
	// MaxTraceparentLen is the length of a version 00 W3C traceparent.
	MaxTraceparentLen = 55
	MaxRequestIDLen   = 64
)

// Event is one business fact on its way to consumers. It is a plain value.
type Event struct {
	EventID       string
	Type          Type
	AggregateType string
	AggregateID   string
	// Payload is a JSON object with the fields that consumers need and no others.
	Payload json.RawMessage
}

// ErrInvalid is wrapped by every error of Validate.
var ErrInvalid = errors.New("invalid event")

// Validate reports every reason why e could not be stored or published unchanged
// on all supported servers. The errors name fields, never payload contents.
func (e Event) Validate() error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	add(checkName("event_id", e.EventID, MaxEventIDLen))
	add(checkName("event_type", string(e.Type), MaxTypeLen))
	add(checkName("aggregate_type", e.AggregateType, MaxAggregateTypeLen))
	add(checkName("aggregate_id", e.AggregateID, MaxAggregateIDLen))
	add(checkPayload(e.Payload))
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w %q: %w", ErrInvalid, printable(e.EventID), errors.Join(errs...))
}

// checkName accepts printable ASCII without spaces. Collations differ between
// servers in how they treat case of non-ASCII letters and trailing spaces, and
// RocketMQ separates message keys by spaces; such an id would be two ids in one
// place and one id in another.
func checkName(field, v string, maxLen int) error {
	if v == "" {
		return fmt.Errorf("%s is empty", field)
	}
	if len(v) > maxLen {
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", field, len(v), maxLen)
	}
	for i := range len(v) {
		if v[i] <= ' ' || v[i] > '~' {
			return fmt.Errorf("%s has byte 0x%02x at position %d: only printable ASCII without spaces is allowed", field, v[i], i)
		}
	}
	return nil
}

func checkPayload(p json.RawMessage) error {
	switch {
	case len(p) == 0:
		return errors.New("payload is empty: send {} for an event without data")
	case len(p) > MaxPayloadBytes:
		return fmt.Errorf("payload has %d bytes, at most %d are allowed: send a reference instead of the data", len(p), MaxPayloadBytes)
	case !utf8.Valid(p):
		return errors.New("payload is not valid UTF-8")
	case !json.Valid(p):
		return errors.New("payload is not valid JSON")
	case p[firstNonSpace(p)] != '{':
		return errors.New("payload is not a JSON object")
	}
	if err := checkKeys(p); err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	return nil
}

func firstNonSpace(p []byte) int {
	for i, b := range p {
		if b != ' ' && b != '\t' && b != '\n' && b != '\r' {
			return i
		}
	}
	return 0
}

// printable shortens an id for an error message, so that a wrong value cannot flood a log.
func printable(id string) string {
	const most = 80
	if len(id) > most {
		return id[:most] + "…"
	}
	return id
}
