package event

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"
)

// Metric names what an OPS_COUNTER event counts.
type Metric string

// The rolling counts. Each has a builder below, and a statement in ops-consumer that
// counts the same thing in the business table; the two must agree on the instant.
const (
	MetricPushFailed    Metric = "push_failed"
	MetricWhatsAppFails Metric = "wa_failed"
	MetricWebhookFailed Metric = "webhook_failed"
	MetricOrderNew      Metric = "order_new"
	MetricCommissionNew Metric = "commission_new"
	MetricRiskNew       Metric = "risk_new"
)

// OpsCounterPayload says that one thing happened at OccurredAt (FormatTime), which is
// the value of the business column that the figure's statement goes by.
type OpsCounterPayload struct {
	Metric     Metric `json:"metric"`
	Country    string `json:"country"`
	OccurredAt string `json:"occurredAt"`
	// Subject is the id of the business row.
	Subject string `json:"subject"`
}

// PushFailed counts a push that failed for good: append it in the transaction that sets
// push_messages.status to FAILED, with the updated_at that it writes. A push that a
// person sends again fails anew under another attempt.
func PushFailed(country, pushID string, attempt int, updatedAt time.Time) (Event, error) {
	return opsCounter(MetricPushFailed, country, pushID, pushID+":a"+strconv.Itoa(attempt), updatedAt)
}

// WhatsAppFailed counts an outbound WhatsApp message that failed for good: append it in
// the transaction that sets wa_outbound_messages.status to FAILED, with its updated_at.
func WhatsAppFailed(country, messageID string, updatedAt time.Time) (Event, error) {
	return opsCounter(MetricWhatsAppFails, country, messageID, messageID, updatedAt)
}

// WebhookFailed counts a payment webhook that could not be processed: append it in the
// transaction that sets payment_webhook_events.status to FAILED, with its updated_at.
func WebhookFailed(country, webhookID string, updatedAt time.Time) (Event, error) {
	return opsCounter(MetricWebhookFailed, country, webhookID, webhookID, updatedAt)
}

// OrderCreated counts a new affiliate order: append it in the transaction that inserts
// the affiliate_orders row (not where an upsert only updated it), with its created_at.
func OrderCreated(country, orderID string, createdAt time.Time) (Event, error) {
	return opsCounter(MetricOrderNew, country, orderID, orderID, createdAt)
}

// CommissionCreated counts a new commission record: append it in the transaction that
// inserts the commission_records row, with its created_at. It only counts; no consumer
// moves money by it.
func CommissionCreated(country, commissionID string, createdAt time.Time) (Event, error) {
	return opsCounter(MetricCommissionNew, country, commissionID, commissionID, createdAt)
}

// RiskRaised counts a risk event: append it in the transaction that inserts the
// risk_events row, with its created_at.
func RiskRaised(country, riskID string, createdAt time.Time) (Event, error) {
	return opsCounter(MetricRiskNew, country, riskID, riskID, createdAt)
}

func opsCounter(m Metric, country, subject, identity string, at time.Time) (Event, error) {
	id := OpsCounterEventID(m, identity)
	if at.IsZero() {
		return Event{}, fmt.Errorf("%w %q: no time: a count belongs to the minute in which it happened", ErrInvalid, printable(id))
	}
	if country == "" {
		return Event{}, fmt.Errorf("%w %q: no country", ErrInvalid, printable(id))
	}
	return build(id, OpsCounter, "ops_"+string(m), subject,
		OpsCounterPayload{Metric: m, Country: country, OccurredAt: FormatTime(at), Subject: subject})
}

// OpsCounterEventID is the id of what one row adds to a metric. A row's id may fill the
// whole column by itself (order ids are SHA-256 in hex); such a one is hashed.
func OpsCounterEventID(m Metric, identity string) string {
	prefix := "ops:" + string(m) + ":"
	if len(prefix)+len(identity) <= MaxEventIDLen {
		return prefix + identity
	}
	sum := sha256.Sum256([]byte(identity))
	return prefix + hex.EncodeToString(sum[:16])
}

// DecodeOpsCounter reads an OPS_COUNTER payload, unknown fields ignored, and its instant.
func DecodeOpsCounter(body []byte) (OpsCounterPayload, time.Time, error) {
	var p OpsCounterPayload
	if err := decode(OpsCounter, body, &p); err != nil {
		return p, time.Time{}, err
	}
	at, ok := ParseTime(p.OccurredAt)
	if p.Metric == "" || p.Country == "" || !ok {
		return p, time.Time{}, fmt.Errorf("%w: OPS_COUNTER lacks metric, country or a readable occurredAt", ErrPayload)
	}
	return p, at, nil
}
