package main

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/service"
	"github.com/seahub/seahub-mq/pkg/task"
)

// Config is everything that can be set.
type Config struct {
	Base  service.Base
	DB    db.Config
	MQ    provider.Config
	Flags flags.Config
	Task  task.Config

	Sweep      SweepConfig
	Alert      AlertConfig
	Thresholds Thresholds
}

// SweepConfig is about the figures and how they are counted.
type SweepConfig struct {
	Every            time.Duration `env:"SEAHUB_OPS_SWEEP_EVERY" envDefault:"60s" key:"seahub.ops.sweep-every" min:"200ms" max:"10m" help:"pause between two sweeps over all figures"`
	Budget           time.Duration `env:"SEAHUB_OPS_SWEEP_BUDGET" envDefault:"40s" key:"seahub.ops.sweep-budget" min:"1s" max:"10m" help:"longest time of one sweep; figures that it does not reach are unknown"`
	StatementTimeout time.Duration `env:"SEAHUB_OPS_STATEMENT_TIMEOUT" envDefault:"5s" key:"seahub.ops.statement-timeout" min:"100ms" max:"1m" help:"longest time of one statement of a figure, kept by the server"`
	Window           time.Duration `env:"SEAHUB_OPS_WINDOW" envDefault:"1h" key:"seahub.ops.window" min:"1m" max:"24h" help:"how far the rolling counts look back, in whole minutes"`
	Lateness         time.Duration `env:"SEAHUB_OPS_LATENESS" envDefault:"1h" key:"seahub.ops.lateness" min:"1m" max:"24h" help:"events that are late by the window and this are counted apart"`
	KeepIDs          time.Duration `env:"SEAHUB_OPS_KEEP_IDS" envDefault:"96h" key:"seahub.ops.keep-ids" min:"2m" max:"2160h" help:"how long a counted event is recognised when it is delivered again; must exceed the broker's retention"`
	RecountEvery     time.Duration `env:"SEAHUB_OPS_RECOUNT_EVERY" envDefault:"15m" key:"seahub.ops.recount-every" min:"100ms" max:"6h" help:"how often a rolling count is compared with SQL"`
	RecountSettle    time.Duration `env:"SEAHUB_OPS_RECOUNT_SETTLE" envDefault:"2m" key:"seahub.ops.recount-settle" min:"0s" max:"1h" help:"how long a minute must be over before it is compared"`
	Agreements       int           `env:"SEAHUB_OPS_AGREEMENTS" envDefault:"4" key:"seahub.ops.agreements" min:"1" max:"1000" help:"recounts in a row that must agree before a figure is taken from events"`
	Retention        time.Duration `env:"SEAHUB_OPS_BROKER_RETENTION" envDefault:"72h" key:"seahub.ops.broker-retention" min:"1s" max:"2160h" help:"how long the broker keeps messages"`
}

// AlertConfig is about telling people.
type AlertConfig struct {
	For            time.Duration `env:"SEAHUB_ALERT_FOR" envDefault:"1m" key:"seahub.alert.for" min:"0s" max:"1h" help:"how long a condition must hold before most rules fire"`
	UnknownFor     time.Duration `env:"SEAHUB_ALERT_UNKNOWN_FOR" envDefault:"5m" key:"seahub.alert.unknown-for" min:"0s" max:"6h" help:"how long a figure may be unknown"`
	ClearFor       time.Duration `env:"SEAHUB_ALERT_CLEAR_FOR" envDefault:"2m" key:"seahub.alert.clear-for" min:"0s" max:"1h" help:"how long a condition must be gone before its alert is resolved; bounds what flapping can send"`
	Repeat         time.Duration `env:"SEAHUB_ALERT_REPEAT" envDefault:"4h" key:"seahub.alert.repeat" min:"1s" max:"168h" help:"how often an alert that still fires is told again"`
	RepeatCritical time.Duration `env:"SEAHUB_ALERT_REPEAT_CRITICAL" envDefault:"30m" key:"seahub.alert.repeat-critical" min:"1s" max:"168h" help:"the same for critical ones"`
	RetellAfter    time.Duration `env:"SEAHUB_ALERT_RETELL_AFTER" envDefault:"5m" key:"seahub.alert.retell-after" min:"0s" max:"24h" help:"how soon an alert is told again whose count has risen"`
	Runbooks       string        `env:"SEAHUB_ALERT_RUNBOOKS" envDefault:"docs/runbooks" key:"seahub.alert.runbooks" help:"where the runbooks are; /<rule>.md is added"`
	MemoryAfter    time.Duration `env:"SEAHUB_ALERT_DATABASE_AFTER" envDefault:"60s" key:"seahub.alert.database-after" min:"1s" max:"1h" help:"how long the database must be unreachable before that is told without it"`
	MemoryRepeat   time.Duration `env:"SEAHUB_ALERT_DATABASE_REPEAT" envDefault:"30m" key:"seahub.alert.database-repeat" min:"1s" max:"24h" help:"how often that is told again"`
	Keep           time.Duration `env:"SEAHUB_ALERT_KEEP" envDefault:"720h" key:"seahub.alert.keep" min:"1h" max:"8760h" help:"how long messages and resolved alerts are kept"`
	ReceiverToken  string        `env:"SEAHUB_ALERT_RECEIVER_TOKEN" key:"seahub.alert.receiver-token" secret:"true" help:"bearer token that POST /alertmanager must carry; empty: none"`
	FeishuHook     string        `env:"SEAHUB_FEISHU_HOOK" key:"seahub.feishu.hook" secret:"true" help:"address of the Feishu custom bot; empty: messages go to the log only"`
	FeishuSecret   string        `env:"SEAHUB_FEISHU_SECRET" key:"seahub.feishu.secret" secret:"true" help:"secret that the bot's messages are signed with; empty: unsigned"`
	SecondHook     string        `env:"SEAHUB_ALERT_SECOND_HOOK" key:"seahub.alert.second-hook" secret:"true" help:"address of a plain webhook that is told when Feishu itself fails; empty: the log"`
	SendTimeout    time.Duration `env:"SEAHUB_FEISHU_TIMEOUT" envDefault:"5s" key:"seahub.feishu.timeout" min:"100ms" max:"30s" help:"patience with one message to Feishu or the second webhook"`
	SendEvery      time.Duration `env:"SEAHUB_ALERT_SEND_EVERY" envDefault:"1s" key:"seahub.alert.send-every" min:"20ms" max:"1m" help:"how often the queue of messages is looked at"`
	SendBackoffMax time.Duration `env:"SEAHUB_ALERT_SEND_BACKOFF_MAX" envDefault:"1m" key:"seahub.alert.send-backoff-max" min:"100ms" max:"10m" help:"longest wait before an undelivered message is tried again"`
}

// Thresholds are what the rules compare with; a rule names one as $name, which is the
// last part of its key with underscores. Durations count as seconds.
type Thresholds struct {
	PushOverdue       int           `env:"SEAHUB_OPS_THRESHOLD_PUSH_OVERDUE" envDefault:"500" key:"seahub.ops.threshold.push-overdue" min:"0" help:"pushes that are due for over a minute"`
	PushOldestWait    time.Duration `env:"SEAHUB_OPS_THRESHOLD_PUSH_OLDEST_WAIT" envDefault:"5m" key:"seahub.ops.threshold.push-oldest-wait" min:"0s" help:"wait of the oldest due push"`
	WAInboundBacklog  int           `env:"SEAHUB_OPS_THRESHOLD_WA_INBOUND_BACKLOG" envDefault:"100" key:"seahub.ops.threshold.wa-inbound-backlog" min:"0" help:"inbound WhatsApp messages unprocessed for over a minute"`
	WAOutboundBacklog int           `env:"SEAHUB_OPS_THRESHOLD_WA_OUTBOUND_BACKLOG" envDefault:"100" key:"seahub.ops.threshold.wa-outbound-backlog" min:"0" help:"outbound WhatsApp messages unsent for over a minute"`
	WebhookBacklog    int           `env:"SEAHUB_OPS_THRESHOLD_WEBHOOK_BACKLOG" envDefault:"10" key:"seahub.ops.threshold.webhook-backlog" min:"0" help:"payment webhooks unprocessed for over a minute"`
	CommissionOverdue int           `env:"SEAHUB_OPS_THRESHOLD_COMMISSION_OVERDUE" envDefault:"50" key:"seahub.ops.threshold.commission-overdue" min:"0" help:"frozen commissions past their release by over 15 minutes"`
	PushFailed        int           `env:"SEAHUB_OPS_THRESHOLD_PUSH_FAILED" envDefault:"200" key:"seahub.ops.threshold.push-failed" min:"0" help:"pushes failed for good in the window"`
	WAFailed          int           `env:"SEAHUB_OPS_THRESHOLD_WA_FAILED" envDefault:"50" key:"seahub.ops.threshold.wa-failed" min:"0" help:"outbound WhatsApp messages failed in the window"`
	WebhookFailed     int           `env:"SEAHUB_OPS_THRESHOLD_WEBHOOK_FAILED" envDefault:"0" key:"seahub.ops.threshold.webhook-failed" min:"0" help:"payment webhooks failed in the window"`
	OrderNew          int           `env:"SEAHUB_OPS_THRESHOLD_ORDER_NEW" envDefault:"0" key:"seahub.ops.threshold.order-new" min:"0" help:"fewest new orders in the window; 0 never alerts"`
	CommissionNew     int           `env:"SEAHUB_OPS_THRESHOLD_COMMISSION_NEW" envDefault:"20000" key:"seahub.ops.threshold.commission-new" min:"0" help:"new commission records in the window"`
	RiskNew           int           `env:"SEAHUB_OPS_THRESHOLD_RISK_NEW" envDefault:"100" key:"seahub.ops.threshold.risk-new" min:"0" help:"risk events in the window"`

	OutboxAge      time.Duration `env:"SEAHUB_OPS_THRESHOLD_OUTBOX_AGE" envDefault:"5m" key:"seahub.ops.threshold.outbox-age" min:"100ms" help:"age from which a waiting event counts as overdue"`
	OutboxOverdue  int           `env:"SEAHUB_OPS_THRESHOLD_OUTBOX_OVERDUE" envDefault:"0" key:"seahub.ops.threshold.outbox-overdue" min:"0" help:"overdue events in the outbox"`
	PublishSilence time.Duration `env:"SEAHUB_OPS_THRESHOLD_PUBLISH_SILENCE" envDefault:"60s" key:"seahub.ops.threshold.publish-silence" min:"0s" help:"time without a confirmed publish while events wait"`
	RelayPass      time.Duration `env:"SEAHUB_OPS_THRESHOLD_RELAY_PASS" envDefault:"60s" key:"seahub.ops.threshold.relay-pass" min:"0s" help:"time since a relay last looked at the outbox"`
	GroupBacklog   int           `env:"SEAHUB_OPS_THRESHOLD_GROUP_BACKLOG" envDefault:"10000" key:"seahub.ops.threshold.group-backlog" min:"0" help:"messages that a consumer group has still to finish"`
	GroupAge       time.Duration `env:"SEAHUB_OPS_THRESHOLD_GROUP_AGE" envDefault:"5m" key:"seahub.ops.threshold.group-age" min:"0s" help:"age of a group's oldest unfinished message"`
	InHandAge      time.Duration `env:"SEAHUB_OPS_THRESHOLD_IN_HAND_AGE" envDefault:"15m" key:"seahub.ops.threshold.in-hand-age" min:"0s" help:"age of the oldest event that a handler has in hand"`
	TaskOverdue    int           `env:"SEAHUB_OPS_THRESHOLD_TASK_OVERDUE" envDefault:"0" key:"seahub.ops.threshold.task-overdue" min:"0" help:"business rows of the event path that are overdue"`
	LeaseHeld      time.Duration `env:"SEAHUB_OPS_THRESHOLD_LEASE_HELD" envDefault:"30m" key:"seahub.ops.threshold.lease-held" min:"0s" help:"how long a task lock may be held"`
	CountedApart   int           `env:"SEAHUB_OPS_THRESHOLD_COUNTED_APART" envDefault:"100" key:"seahub.ops.threshold.counted-apart" min:"0" help:"counter events of the window that came too late for it"`
	AlertsWaiting  time.Duration `env:"SEAHUB_OPS_THRESHOLD_ALERTS_WAITING" envDefault:"2m" key:"seahub.ops.threshold.alerts-waiting" min:"0s" help:"age of the oldest message that Feishu has not taken"`
	MQEvents       int           `env:"SEAHUB_OPS_THRESHOLD_MQ_EVENTS" envDefault:"1000" key:"seahub.ops.threshold.mq-events" min:"1" help:"events an hour from which a message queue pays off"`
	MQWait         time.Duration `env:"SEAHUB_OPS_THRESHOLD_MQ_WAIT" envDefault:"30s" key:"seahub.ops.threshold.mq-wait" min:"1s" help:"wait of a due push that polling alone should not exceed"`
}

// byName are the thresholds as the rules name them.
func (t Thresholds) byName() map[string]float64 {
	out := map[string]float64{}
	v := reflect.ValueOf(t)
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("key")
		name := strings.ReplaceAll(key[strings.LastIndex(key, ".")+1:], "-", "_")
		if d, ok := v.Field(i).Interface().(time.Duration); ok {
			out[name] = d.Seconds()
		} else {
			out[name] = float64(v.Field(i).Int())
		}
	}
	return out
}

// Validate checks what single values cannot show.
func (c Config) Validate() error {
	var errs []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	s := c.Sweep
	add(s.KeepIDs < s.Window+s.Lateness, "SEAHUB_OPS_KEEP_IDS (seahub.ops.keep-ids) is %s, it must cover SEAHUB_OPS_WINDOW (seahub.ops.window) and SEAHUB_OPS_LATENESS (seahub.ops.lateness), %s together: an event could be counted twice", s.KeepIDs, s.Window+s.Lateness)
	add(s.Window%time.Minute != 0, "SEAHUB_OPS_WINDOW (seahub.ops.window) is %s: counts are kept by the minute, take whole ones", s.Window)
	add(s.StatementTimeout > s.Budget, "SEAHUB_OPS_STATEMENT_TIMEOUT (seahub.ops.statement-timeout) is %s, above SEAHUB_OPS_SWEEP_BUDGET (seahub.ops.sweep-budget) %s", s.StatementTimeout, s.Budget)
	for _, hook := range []struct{ name, value string }{
		{"SEAHUB_FEISHU_HOOK (seahub.feishu.hook)", c.Alert.FeishuHook},
		{"SEAHUB_ALERT_SECOND_HOOK (seahub.alert.second-hook)", c.Alert.SecondHook},
	} {
		u, err := url.Parse(hook.value)
		add(hook.value != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == ""), "%s is not an http or https address (its value is a secret and not shown)", hook.name)
	}
	return errors.Join(errs...)
}
