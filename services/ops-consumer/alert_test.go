package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// One life of an alert, minute by minute.
func TestAdvance(t *testing.T) {
	c := AlertConfig{ClearFor: 2 * time.Minute, Repeat: 10 * time.Minute, RepeatCritical: 5 * time.Minute, RetellAfter: 3 * time.Minute}
	start := time.Date(2026, 7, 19, 8, 0, 0, 0, time.UTC)
	one, two := 1.0, 2.0
	a := alert{Severity: severityWarning}
	for minute, look := range []struct {
		truth truth
		value *float64
		state string
		tell  string
	}{
		{no, nil, "", ""},
		{yes, &one, statePending, ""},
		{no, nil, stateResolved, ""},            // shorter than its time: never told
		{yes, &one, statePending, ""},           // 3
		{dontKnow, nil, statePending, ""},       // moves nothing
		{yes, &one, stateFiring, kindFiring},    // 5: has held for two minutes
		{yes, &two, stateFiring, ""},            // risen, too soon to tell
		{dontKnow, nil, stateFiring, ""},        // 7
		{yes, &two, stateFiring, kindWorse},     // 8
		{no, &one, stateFiring, ""},             // it flaps
		{yes, &two, stateFiring, ""},            // 10
		{no, &one, stateFiring, ""},             // again
		{yes, &two, stateFiring, ""},            // 12
		{yes, &two, stateFiring, ""},            //
		{yes, &two, stateFiring, ""},            //
		{yes, &two, stateFiring, ""},            //
		{yes, &two, stateFiring, ""},            //
		{yes, &two, stateFiring, ""},            //
		{yes, &two, stateFiring, kindRepeat},    // 18: ten minutes after it was told
		{no, &one, stateFiring, ""},             //
		{dontKnow, nil, stateFiring, ""},        // 20
		{no, &one, stateResolved, kindResolved}, // 21: has been gone for two minutes
		{no, nil, stateResolved, ""},            //
		{yes, &one, statePending, ""},           //
		{yes, &one, statePending, ""},           //
		{yes, &one, stateFiring, kindFiring},    // 25: a second episode
	} {
		if look.truth == yes {
			a.Value = look.value
		}
		st := advance(a, look.truth, start.Add(time.Duration(minute)*time.Minute), c, 2*time.Minute, true)
		require.Equal(t, look.state, st.alert.State, "minute %d", minute)
		require.Equal(t, look.tell, st.tell, "minute %d", minute)
		a = st.alert
	}
	require.Equal(t, 2, a.Episode)
}

// What the pipe looks like decides which alert fires, and each resolves.
func TestThePipe(t *testing.T) {
	for name, tt := range map[string]struct {
		set   func(t *testing.T, b *bench)
		calm  string // a statement that ends it
		rules []string
	}{
		"all is well": {func(t *testing.T, b *bench) {
			b.event(t, "1", "PENDING", time.Second)
			b.group(t, "g", "5", "1000", 0)
		}, "", nil},
		"an old event": {func(t *testing.T, b *bench) { b.event(t, "1", "PENDING", 6*time.Minute) },
			"UPDATE outbox_event SET status = 'PUBLISHED'", []string{"OutboxBacklog"}},
		"old, but backed off": {func(t *testing.T, b *bench) {
			b.event(t, "1", "PENDING", 6*time.Minute, "available_at = NOW(3) + INTERVAL 1 MINUTE")
		}, "", nil},
		"old, but freshly requeued": {func(t *testing.T, b *bench) {
			b.event(t, "1", "PENDING", 6*24*time.Hour, "requeued_at = NOW(3)")
		}, "", nil},
		"requeued long ago": {func(t *testing.T, b *bench) {
			b.event(t, "1", "PENDING", 6*24*time.Hour, "requeued_at = NOW(3) - INTERVAL 6 MINUTE")
		}, "UPDATE outbox_event SET status = 'PUBLISHED'", []string{"OutboxBacklog"}},
		"failed events": {func(t *testing.T, b *bench) { b.event(t, "1", "FAILED", time.Second) },
			"UPDATE outbox_event SET status = 'PENDING'", []string{"OutboxFailed"}},
		"no confirm while something waits": {func(t *testing.T, b *bench) {
			b.relayAlive(t, time.Hour)
			b.event(t, "1", "PENDING", 2*time.Minute)
		}, "UPDATE outbox_event SET status = 'PUBLISHED'", []string{"PublishSilent"}},
		"no confirm, nothing waits": {func(t *testing.T, b *bench) { b.relayAlive(t, time.Hour) }, "", nil},
		"an hour without a confirm, an event of just now": {func(t *testing.T, b *bench) {
			b.relayAlive(t, time.Hour)
			b.event(t, "1", "PENDING", time.Second)
		}, "", nil},
		"no relay passes": {func(t *testing.T, b *bench) {
			b.exec(t, "UPDATE mq_task_health SET last_pass_at = NOW(3) - INTERVAL 2 MINUTE")
		}, "UPDATE mq_task_health SET last_pass_at = NOW(3)", []string{"RelaySilent"}},
		"a large backlog": {func(t *testing.T, b *bench) { b.group(t, "g", "1001", "1000", 0) },
			"UPDATE mq_task_health SET backlog = 0", []string{"ConsumerBacklog"}},
		"an old message": {func(t *testing.T, b *bench) { b.group(t, "g", "1", "301000", 0) },
			"UPDATE mq_task_health SET oldest_age_ms = 0", []string{"ConsumerLag"}},
		"past half the retention": {func(t *testing.T, b *bench) { b.group(t, "g", "1", "130000000", 0) },
			"UPDATE mq_task_health SET oldest_age_ms = 0", []string{"ConsumerLag", "RetentionNear"}},
		"past half of the memory fuse": {func(t *testing.T, b *bench) { b.group(t, "g", "1000001", "1000", 0) },
			"UPDATE mq_task_health SET backlog = 0", []string{"ConsumerBacklog", "RedisMemoryFuse"}},
		"a broker without a memory fuse": {func(t *testing.T, b *bench) {
			b.cfg.MQ.Provider = provider.RocketMQ
			b.group(t, "g", "1000001", "1000", 0)
		}, "UPDATE mq_task_health SET backlog = 0", []string{"ConsumerBacklog"}},
		"backlog unknown": {func(t *testing.T, b *bench) { b.group(t, "g", "NULL", "NULL", 0) },
			"UPDATE mq_task_health SET backlog = 0, oldest_age_ms = 0 WHERE consumer_group = 'g'", []string{"GroupUnknown"}},
		"nobody tells any more": {func(t *testing.T, b *bench) { b.group(t, "g", "0", "0", 2*time.Minute) },
			"UPDATE mq_task_health SET updated_at = NOW(3)", []string{"GroupUnknown"}},
		"a stuck handler": {func(t *testing.T, b *bench) {
			b.group(t, "g", "1", "1000", 0)
			b.exec(t, "UPDATE mq_task_health SET in_hand_age_ms = 1000000 WHERE consumer_group = 'g'")
		}, "UPDATE mq_task_health SET in_hand_age_ms = 0", []string{"ConsumerStuck"}},
		"overdue rows": {func(t *testing.T, b *bench) {
			b.group(t, "g", "1", "1000", 0)
			b.exec(t, "UPDATE mq_task_health SET overdue = 3 WHERE consumer_group = 'g'")
		}, "UPDATE mq_task_health SET overdue = 0", []string{"RowsOverdue"}},
		"fallback": {func(t *testing.T, b *bench) {
			b.exec(t, `INSERT INTO mq_task_health (task, instance, country, role, fallback, fallback_reason, updated_at)
				VALUES ('push-dispatch', 'fallback:id', 'id', 'fallback', 1, 'rows are overdue', NOW(3))`)
		}, "UPDATE mq_task_health SET fallback = 0", []string{"FallbackActive"}},
		"dead letters": {func(t *testing.T, b *bench) {
			b.exec(t, `INSERT INTO mq_dead_letter (dedup_key, consumer_group, topic, tag, event_id, body, headers_json, attempts, reason, last_error, created_at, updated_at)
				VALUES ('k', 'g', 't', 'x', 'push:1', '', '{"request-id":"req-7"}', 1, '', '', NOW(3), NOW(3))`)
		}, "UPDATE mq_dead_letter SET status = 'DISCARDED'", []string{"DeadLetters"}},
		"a lease held too long": {func(t *testing.T, b *bench) {
			b.exec(t, "INSERT INTO mq_lease VALUES ('coupon-scan', 'o', 1, NOW(3) - INTERVAL 1 HOUR, NOW(3) + INTERVAL 1 HOUR)")
		}, "DELETE FROM mq_lease WHERE name = 'coupon-scan'", []string{"LeaseHeldLong"}},
		"a writer in another zone": {func(t *testing.T, b *bench) { b.event(t, "1", "PUBLISHED", -7*time.Hour) },
			"DELETE FROM outbox_event", []string{"ZoneMismatch"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, testenv.MariaDB(t))
			b.relayAlive(t, 0)
			tt.set(t, b)
			b.sweepNow(t)
			var want []string
			for _, r := range tt.rules {
				want = append(want, "firing "+r+" QUEUED")
			}
			require.ElementsMatch(t, want, b.messages(t))
			if tt.calm == "" {
				return
			}
			b.exec(t, tt.calm)
			b.sweepNow(t)
			for _, r := range tt.rules {
				want = append(want, "resolved "+r+" QUEUED")
			}
			require.ElementsMatch(t, want, b.messages(t))
			require.Zero(t, b.number(t, "SELECT COUNT(*) FROM mq_alert WHERE state <> 'RESOLVED'"))
		})
	}
}

// Each message says where, what, since when, and by which id to look further.
func TestWhatAMessageSays(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	b.relayAlive(t, 0)
	b.event(t, "1", "FAILED", 2*time.Hour, "traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'")
	b.event(t, "2", "FAILED", time.Hour, "event_type = 'COUPON_EXPIRE', request_id = 'req-42'")
	b.event(t, "3", "PENDING", time.Hour)
	b.sweepNow(t)
	raw := func(rule string) string {
		return b.text(t, "SELECT GROUP_CONCAT(message_json) FROM mq_alert_message WHERE rule = ?", rule)
	}
	failed := raw("OutboxFailed")
	require.Equal(t, 1, b.number(t, "SELECT COUNT(*) FROM mq_alert_message WHERE rule = 'OutboxFailed'"), "one message for all types")
	for _, part := range []string{`"env":"id-test"`, `"country":"id"`, `"task":"outbox-relay"`, "PUSH_DISPATCH", "COUPON_EXPIRE", "0af7651916cd43dd8448eb211c80319c",
		"req-42", "push:1", `"value":"1"`, `"threshold":"0"`, "https://example.test/runbooks/OutboxFailed.md"} {
		require.Contains(t, failed, part)
	}
	require.Contains(t, raw("OutboxBacklog"), `"requestId":"sweep-`, "an event without ids: the sweep's")
}

// A restart repeats and forgets nothing, whoever sweeps; more FAILED events are told again.
func TestAlertsOutliveTheirProcess(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	b.relayAlive(t, 0)
	b.event(t, "1", "FAILED", time.Minute)
	dbc := db.Config{DSN: b.s.DSN, TimeZone: zone, MaxOpen: 8, DialTimeout: time.Second, IOTimeout: 10 * time.Second}
	for range 5 {
		b.sweepNow(t)
		b.exec(t, "UPDATE mq_ops_figure SET measured_at = measured_at - INTERVAL 1 HOUR")
		_, err := newSweeper(t, b.cfg, dbc).Poll(t.Context(), task.Scope{})
		require.NoError(t, err)
	}
	require.Equal(t, []string{"firing OutboxFailed QUEUED"}, b.messages(t))
	b.event(t, "2", "FAILED", time.Second)
	b.sweepNow(t)
	b.sweepNow(t)
	require.Equal(t, []string{"firing OutboxFailed QUEUED", "worse OutboxFailed QUEUED"}, b.messages(t))
	b.event(t, "3", "FAILED", time.Second)
	b.sweepNow(t)
	require.Equal(t, []string{"firing OutboxFailed QUEUED", "worse OutboxFailed QUEUED"}, b.messages(t), "one that waits still is replaced")
	require.Contains(t, b.text(t, "SELECT message_json FROM mq_alert_message WHERE kind = 'worse'"), `"value":"3"`)

	// What goes wrong with nobody watching is told by who comes next; so is its end.
	b.exec(t, "UPDATE outbox_event SET status = 'PUBLISHED'")
	_, err := newSweeper(t, b.cfg, dbc).Poll(t.Context(), task.Scope{})
	require.NoError(t, err)
	b.sweepNow(t)
	require.Equal(t, 1, b.number(t, "SELECT COUNT(*) FROM mq_alert_message WHERE kind = 'resolved'"))
	b.event(t, "4", "FAILED", time.Second)
	b.sweepNow(t)
	require.Equal(t, 2, b.number(t, "SELECT episode FROM mq_alert WHERE rule = 'OutboxFailed'"))
}

// While Feishu is away two types of events fail more and more, one after the other: what
// waits says so of both, of each once.
func TestAWaitingMessageOfAnotherSubjectStays(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	b.relayAlive(t, 0)
	b.event(t, "1", "FAILED", time.Minute)
	b.event(t, "2", "FAILED", time.Minute, "event_type = 'COUPON_EXPIRE'")
	b.sweepNow(t)
	worse := func() string {
		return b.text(t, `SELECT GROUP_CONCAT(JSON_UNQUOTE(JSON_EXTRACT(message_json, '$.items[*].subject')), JSON_UNQUOTE(JSON_EXTRACT(message_json, '$.items[*].value'))
			ORDER BY id SEPARATOR ' ') FROM mq_alert_message WHERE kind = 'worse' AND status = 'QUEUED'`)
	}
	more := func(id, eventType string) {
		b.event(t, id, "FAILED", time.Second, "event_type = '"+eventType+"'")
		b.sweepNow(t)
	}
	more("3", "COUPON_EXPIRE")
	more("4", "PUSH_DISPATCH")
	require.Equal(t, `["COUPON_EXPIRE"]["2"] ["PUSH_DISPATCH"]["2"]`, worse(), "the one about coupons waits still")
	more("5", "COUPON_EXPIRE")
	require.Equal(t, `["PUSH_DISPATCH"]["2"] ["COUPON_EXPIRE"]["3"]`, worse())
	b.event(t, "6", "FAILED", time.Second)
	more("7", "COUPON_EXPIRE") // both at once
	require.Equal(t, 1, b.number(t, "SELECT COUNT(*) FROM mq_alert_message WHERE kind = 'worse'"))
	b.exec(t, "UPDATE mq_alert_message SET status = 'SENT'")
	more("8", "PUSH_DISPATCH")
	require.Equal(t, `["PUSH_DISPATCH"]["4"]`, worse())
	require.Equal(t, 2, b.number(t, "SELECT COUNT(*) FROM mq_alert_message WHERE kind = 'worse'"), "what was sent is not touched")
}

// Rows are overdue, and then nobody looks any more: that is no all-clear.
func TestOverdueThatNobodyCountsAnyMoreIsNotOver(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	b.relayAlive(t, 0)
	b.exec(t, `INSERT INTO mq_task_health (task, instance, country, role, overdue, updated_at)
		VALUES ('push-dispatch', 'p1', 'id', 'poll', 3, NOW(3)), ('push-dispatch', 'c1', 'id', 'consume', NULL, NOW(3))`)
	b.sweepNow(t)
	require.Equal(t, []string{"firing RowsOverdue QUEUED"}, b.messages(t))
	b.exec(t, "UPDATE mq_task_health SET updated_at = NOW(3) - INTERVAL 2 MINUTE WHERE instance = 'p1'")
	b.sweepNow(t)
	require.Equal(t, []string{"firing RowsOverdue QUEUED", "firing FigureUnknown QUEUED"}, b.messages(t))
	b.exec(t, "UPDATE mq_task_health SET updated_at = NOW(3), overdue = 0 WHERE instance = 'p1'")
	b.sweepNow(t)
	require.ElementsMatch(t, []string{"firing RowsOverdue QUEUED", "firing FigureUnknown QUEUED", "resolved RowsOverdue QUEUED", "resolved FigureUnknown QUEUED"}, b.messages(t))
}

func TestAdvice(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t), func(c *Config) { c.Thresholds.MQEvents = 3 })
	b.sweepNow(t)
	note := func() string { return b.text(t, "SELECT note FROM mq_ops_figure WHERE name = 'mq_recommended'") }
	require.True(t, strings.HasPrefix(note(), "MQ not needed"), note())
	for _, id := range []string{"1", "2", "3"} {
		b.event(t, id, "PUBLISHED", time.Minute)
	}
	b.sweepNow(t)
	v, _ := b.figure(t, "mq_recommended", "")
	require.EqualValues(t, 1, v)
	require.Contains(t, note(), "3 events in the last hour")
}
