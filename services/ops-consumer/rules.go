package main

import (
	"fmt"
	"time"
)

// Severities, by rank: the queue sends critical ones first.
const (
	severityCritical = "critical"
	severityWarning  = "warning"
	severityInfo     = "info"
)

func rankOf(severity string) int {
	switch severity {
	case severityCritical:
		return 0
	case severityWarning:
		return 1
	}
	return 2
}

// Routes of messages.
const (
	routeFeishu = "feishu"
	routeSecond = "second"
)

// hold says how long a condition must hold before its rule fires.
type hold int

const (
	holdUsual   hold = iota // AlertConfig.For
	holdNone                // at once: the figure has an age in it already
	holdUnknown             // AlertConfig.UnknownFor
)

// rule is one line of the table below.
type rule struct {
	Name, Severity, Expr string
	Hold                 hold
	// Rises makes the alert told again when its value rises.
	Rises bool
	// Task is whose trouble it is, where the figure does not say.
	Task    string
	Route   string // "": Feishu
	Summary string

	parsed expr
}

// rules are all alerts of this service. Each has a page in docs/runbooks.
func rules() []rule {
	return []rule{
		{Name: "OutboxBacklog", Severity: severityCritical, Expr: "outbox_overdue > $outbox_overdue", Hold: holdNone,
			Summary: "events wait in the outbox for longer than they should"},
		{Name: "OutboxFailed", Severity: severityWarning, Expr: "outbox_failed > 0", Hold: holdNone, Rises: true,
			Summary: "the relay gave up on events; they wait for a person (relay failed, relay requeue)"},
		{Name: "PublishSilent", Severity: severityCritical, Expr: "publish_silence > $publish_silence", Hold: holdNone,
			Summary: "events wait and no publish was confirmed for a while"},
		{Name: "RelaySilent", Severity: severityCritical, Expr: "relay_pass_age > $relay_pass", Hold: holdNone, Task: "outbox-relay",
			Summary: "no relay looks at the outbox"},
		{Name: "ConsumerBacklog", Severity: severityWarning, Expr: "group_backlog > $group_backlog",
			Summary: "a consumer group has too much to finish"},
		{Name: "ConsumerLag", Severity: severityCritical, Expr: "group_oldest_age > $group_age and group_backlog > 0", Hold: holdNone,
			Summary: "the oldest message of a consumer group has waited too long"},
		{Name: "ConsumerStuck", Severity: severityWarning, Expr: "group_in_hand_age > $in_hand_age", Hold: holdNone,
			Summary: "a handler has had an old event in hand for too long"},
		{Name: "GroupUnknown", Severity: severityWarning, Expr: "group_backlog is unknown", Hold: holdUnknown,
			Summary: "nobody can tell the backlog of a consumer group"},
		{Name: "RetentionNear", Severity: severityCritical, Expr: "group_retention_share > 0.5", Hold: holdNone,
			Summary: "the oldest message is past half of what the broker keeps: beyond it only a requeue brings it back"},
		{Name: "RedisMemoryFuse", Severity: severityCritical, Expr: "group_fuse_share > 0.5", Hold: holdNone,
			Summary: "a group's backlog is past half of Redis' memory fuse: beyond it the oldest events are cut, read or not"},
		{Name: "RowsOverdue", Severity: severityWarning, Expr: "task_overdue > $task_overdue",
			Summary: "rows of the event path are overdue"},
		{Name: "FallbackActive", Severity: severityWarning, Expr: "fallback_active > 0", Hold: holdNone,
			Summary: "the poll has stepped in for the event path"},
		{Name: "DeadLetters", Severity: severityWarning, Expr: "dead_letters > 0", Hold: holdNone, Rises: true,
			Summary: "a consumer group gave up on events (relay dead list)"},
		{Name: "LeaseHeldLong", Severity: severityWarning, Expr: "lease_held > $lease_held", Hold: holdNone,
			Summary: "a task lock is held for too long"},
		{Name: "ZoneMismatch", Severity: severityWarning, Expr: "zone_offset > 0", Hold: holdNone, Task: "outbox-relay",
			Summary: "a writer's clock or time zone differs from the database session's"},
		{Name: "FigureUnknown", Severity: severityWarning, Expr: "figure_unknown > 0", Hold: holdUnknown, Task: "ops-snapshot",
			Summary: "figures cannot be measured"},
		{Name: "CountedApart", Severity: severityInfo, Expr: "counted_apart > $counted_apart", Task: "ops-snapshot",
			Summary: "counter events come too late to be counted where they belong"},
		{Name: "FeishuFailing", Severity: severityCritical, Expr: "alerts_waiting_age > $alerts_waiting", Hold: holdNone, Route: routeSecond, Task: "ops-snapshot",
			Summary: "Feishu does not take messages; alerts wait in mq_alert_message"},
		{Name: "FeishuRefused", Severity: severityWarning, Expr: "alerts_refused > 0", Hold: holdNone, Rises: true, Route: routeSecond, Task: "ops-snapshot",
			Summary: "Feishu refused messages for good"},

		{Name: "PushOverdue", Severity: severityWarning, Expr: "push_overdue > $push_overdue", Task: "push-dispatch", Summary: "pushes are overdue"},
		{Name: "PushOldestWait", Severity: severityWarning, Expr: "push_oldest_wait > $push_oldest_wait", Task: "push-dispatch", Summary: "the oldest due push has waited too long"},
		{Name: "WAInboundBacklog", Severity: severityWarning, Expr: "wa_inbound_backlog > $wa_inbound_backlog", Task: "whatsapp-inbound", Summary: "inbound WhatsApp messages are not processed"},
		{Name: "WAOutboundBacklog", Severity: severityWarning, Expr: "wa_outbound_backlog > $wa_outbound_backlog", Task: "whatsapp-outbound", Summary: "outbound WhatsApp messages are not sent"},
		{Name: "WebhookBacklog", Severity: severityCritical, Expr: "webhook_backlog > $webhook_backlog", Task: "payment-webhook", Summary: "payment webhooks are not processed"},
		{Name: "CommissionOverdue", Severity: severityWarning, Expr: "commission_overdue > $commission_overdue", Task: "commission-settlement", Summary: "commissions are not released in time"},
		{Name: "PushFailed", Severity: severityWarning, Expr: "push_failed > $push_failed", Task: "push-dispatch", Summary: "many pushes failed"},
		{Name: "WAFailed", Severity: severityWarning, Expr: "wa_failed > $wa_failed", Task: "whatsapp-outbound", Summary: "many outbound WhatsApp messages failed"},
		{Name: "WebhookFailed", Severity: severityCritical, Expr: "webhook_failed > $webhook_failed", Hold: holdNone, Rises: true, Task: "payment-webhook", Summary: "payment webhooks failed"},
		{Name: "OrdersMissing", Severity: severityWarning, Expr: "order_new < $order_new", Task: "order-sync", Summary: "fewer new orders than usual: an order sync may stand still"},
		{Name: "CommissionFlood", Severity: severityWarning, Expr: "commission_new > $commission_new", Task: "commission-settlement", Summary: "unusually many commission records"},
		{Name: "RiskEvents", Severity: severityWarning, Expr: "risk_new > $risk_new", Task: "risk", Summary: "unusually many risk events"},
	}
}

// loadRules reads the expressions.
func loadRules(thresholds map[string]float64) ([]rule, error) {
	list := rules()
	for i := range list {
		var err error
		if list[i].parsed, err = parseExpr(list[i].Expr, thresholds); err != nil {
			return nil, fmt.Errorf("rule %s: %w", list[i].Name, err)
		}
		if list[i].Route == "" {
			list[i].Route = routeFeishu
		}
	}
	return list, nil
}

// holdFor is how long the rule's condition must hold.
func (c AlertConfig) holdFor(h hold) time.Duration {
	switch h {
	case holdNone:
		return 0
	case holdUnknown:
		return c.UnknownFor
	}
	return c.For
}

func (c AlertConfig) repeatFor(severity string) time.Duration {
	if severity == severityCritical {
		return c.RepeatCritical
	}
	return c.Repeat
}
