package main

import "github.com/seahub/seahub-mq/pkg/event"

// figureCap is where counting stops: beyond it a figure only says "at least".
const figureCap = 100_000

// definition is one of the twelve business figures.
type definition struct {
	Name string
	// Threshold is the name of the key's last part; Unit is rows or seconds.
	Threshold, Unit string
	// Metric, when set, makes it a rolling count that events may feed; otherwise the
	// figure is about what did not happen in time, which only a poll can see.
	Metric event.Metric
	Reason string
	// SQL is the whole definition. A polled one has no parameters; a rolling count has
	// the first instant of its range and the first one after it. Each stops counting one
	// beyond figureCap and uses the index that its table is assumed to have.
	SQL string
}

// definitions are the twelve figures: six that are polled for ever, six that are counted.
func definitions() []definition {
	return []definition{
		{Name: "push_overdue", Threshold: "push_overdue", Unit: unitRows,
			Reason: "pushes that are due for over a minute: neither events nor the poll keep up",
			SQL: `SELECT COUNT(*) FROM (SELECT 1 FROM push_messages
				WHERE status = 'PENDING' AND due_at <= NOW(3) - INTERVAL 60 SECOND LIMIT 100001) t`},
		{Name: "push_oldest_wait", Threshold: "push_oldest_wait", Unit: unitSeconds,
			Reason: "how long the oldest due push has waited: what a user feels",
			SQL: `SELECT COALESCE((SELECT TIMESTAMPDIFF(MICROSECOND, due_at, NOW(3)) FROM push_messages
				WHERE status = 'PENDING' AND due_at <= NOW(3) ORDER BY due_at LIMIT 1), 0) / 1000000`},
		{Name: "wa_inbound_backlog", Threshold: "wa_inbound_backlog", Unit: unitRows,
			Reason: "inbound WhatsApp messages that nobody has processed for over a minute",
			SQL: `SELECT COUNT(*) FROM (SELECT 1 FROM wa_inbound_messages
				WHERE status = 'RECEIVED' AND created_at <= NOW(3) - INTERVAL 60 SECOND LIMIT 100001) t`},
		{Name: "wa_outbound_backlog", Threshold: "wa_outbound_backlog", Unit: unitRows,
			Reason: "outbound WhatsApp messages that were not sent for over a minute",
			SQL: `SELECT COUNT(*) FROM (SELECT 1 FROM wa_outbound_messages
				WHERE status = 'PENDING' AND created_at <= NOW(3) - INTERVAL 60 SECOND LIMIT 100001) t`},
		{Name: "webhook_backlog", Threshold: "webhook_backlog", Unit: unitRows,
			Reason: "payment webhooks that were not processed for over a minute: money that looks lost",
			SQL: `SELECT COUNT(*) FROM (SELECT 1 FROM payment_webhook_events
				WHERE status = 'RECEIVED' AND created_at <= NOW(3) - INTERVAL 60 SECOND LIMIT 100001) t`},
		{Name: "commission_overdue", Threshold: "commission_overdue", Unit: unitRows,
			Reason: "frozen commissions past their release by over 15 minutes: three rounds of the settlement",
			SQL: `SELECT COUNT(*) FROM (SELECT 1 FROM commission_records
				WHERE status = 'FROZEN' AND available_at <= NOW(3) - INTERVAL 15 MINUTE LIMIT 100001) t`},

		{Name: "push_failed", Metric: event.MetricPushFailed, Threshold: "push_failed", Unit: unitRows,
			Reason: "pushes that failed for good in the window",
			SQL: `SELECT COUNT(*) FROM (SELECT 1 FROM push_messages
				WHERE status = 'FAILED' AND updated_at >= ? AND updated_at < ? LIMIT 100001) t`},
		{Name: "wa_failed", Metric: event.MetricWhatsAppFails, Threshold: "wa_failed", Unit: unitRows,
			Reason: "outbound WhatsApp messages that failed for good in the window",
			SQL: `SELECT COUNT(*) FROM (SELECT 1 FROM wa_outbound_messages
				WHERE status = 'FAILED' AND updated_at >= ? AND updated_at < ? LIMIT 100001) t`},
		{Name: "webhook_failed", Metric: event.MetricWebhookFailed, Threshold: "webhook_failed", Unit: unitRows,
			Reason: "payment webhooks that could not be processed in the window",
			SQL: `SELECT COUNT(*) FROM (SELECT 1 FROM payment_webhook_events
				WHERE status = 'FAILED' AND updated_at >= ? AND updated_at < ? LIMIT 100001) t`},
		{Name: "order_new", Metric: event.MetricOrderNew, Threshold: "order_new", Unit: unitRows,
			Reason: "new orders in the window: too few mean that an order sync stands still",
			SQL: `SELECT COUNT(*) FROM (SELECT 1 FROM affiliate_orders
				WHERE created_at >= ? AND created_at < ? LIMIT 100001) t`},
		{Name: "commission_new", Metric: event.MetricCommissionNew, Threshold: "commission_new", Unit: unitRows,
			Reason: "new commission records in the window: a flood means that an import ran twice",
			SQL: `SELECT COUNT(*) FROM (SELECT 1 FROM commission_records
				WHERE created_at >= ? AND created_at < ? LIMIT 100001) t`},
		{Name: "risk_new", Metric: event.MetricRiskNew, Threshold: "risk_new", Unit: unitRows,
			Reason: "risk events in the window",
			SQL: `SELECT COUNT(*) FROM (SELECT 1 FROM risk_events
				WHERE created_at >= ? AND created_at < ? LIMIT 100001) t`},
	}
}
