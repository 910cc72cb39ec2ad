package main

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/seahub/seahub-mq/pkg/event"
)

// Each statement below stops at a number of rows and goes by an index that is ours, or
// reads a table that is small by its nature (mq_task_health, mq_lease).
const (
	// Rows in the order of their creation; an age counts from the requeue, and what is
	// backed off waits on purpose.
	sqlOutboxOverdue = `SELECT COUNT(*) FROM (SELECT created_at, requeued_at, available_at
		FROM outbox_event FORCE INDEX (idx_status_created)
		WHERE status = 'PENDING' AND created_at <= NOW(3) - INTERVAL ? MICROSECOND ORDER BY created_at LIMIT 50000) t
		WHERE COALESCE(requeued_at, created_at) <= NOW(3) - INTERVAL ? MICROSECOND
		  AND (available_at IS NULL OR available_at <= NOW(3))`
	sqlOutboxOldest = `SELECT age, event_id, traceparent, request_id FROM (
		SELECT TIMESTAMPDIFF(MICROSECOND, COALESCE(requeued_at, created_at), NOW(3)) / 1000000 AS age, available_at,
		       event_id, COALESCE(traceparent, '') AS traceparent, COALESCE(request_id, '') AS request_id
		FROM outbox_event FORCE INDEX (idx_status_created)
		WHERE status = 'PENDING' ORDER BY created_at LIMIT 1000) t
		WHERE available_at IS NULL OR available_at <= NOW(3) ORDER BY age DESC LIMIT 1`
	sqlOutboxFailed = `SELECT event_type, COUNT(*), MIN(CONCAT(DATE_FORMAT(created_at, '%Y%m%d%H%i%s%f'), '|', event_id, '|',
		COALESCE(traceparent, ''), '|', COALESCE(request_id, '')))
		FROM (SELECT event_type, created_at, event_id, traceparent, request_id FROM outbox_event FORCE INDEX (idx_status_created)
		      WHERE status = 'FAILED' ORDER BY created_at LIMIT 10000) t GROUP BY event_type`
	sqlPublishedHour = `SELECT COUNT(*) FROM (SELECT 1 FROM outbox_event FORCE INDEX (idx_status_created)
		WHERE status = 'PUBLISHED' AND created_at >= NOW(3) - INTERVAL 1 HOUR LIMIT 100001) t`

	// The latest of all relays; NULL where none has told yet.
	sqlRelay = `SELECT TIMESTAMPDIFF(MICROSECOND, MAX(last_pass_at), NOW(3)) / 1000000,
		TIMESTAMPDIFF(MICROSECOND, MAX(last_confirm_at), NOW(3)) / 1000000
		FROM mq_task_health WHERE task = 'outbox-relay' AND country = ?`
	sqlRelayNotes = `SELECT note FROM mq_task_health WHERE task = 'outbox-relay' AND country = ?
		AND updated_at > NOW(3) - INTERVAL 1 MINUTE AND note IS NOT NULL AND note <> 'standing by'
		ORDER BY updated_at DESC LIMIT 1`
	// Members and relays tell the same of a group; the greatest of what is fresh counts.
	// Without a fresh word that knows the backlog it is NULL, so unknown.
	sqlGroups = `SELECT task, consumer_group,
		MAX(IF(updated_at > NOW(3) - INTERVAL 1 MINUTE, backlog, NULL)),
		MAX(IF(updated_at > NOW(3) - INTERVAL 1 MINUTE, oldest_age_ms, NULL)) / 1000,
		MAX(IF(updated_at > NOW(3) - INTERVAL 1 MINUTE, in_hand_age_ms, NULL)) / 1000
		FROM mq_task_health WHERE country = ? AND consumer_group IS NOT NULL
		GROUP BY task, consumer_group`
	// Without a fresh word on what is overdue that is unknown, if there was one of late.
	sqlTasks = `SELECT task, MAX(IF(updated_at > NOW(3) - INTERVAL 1 MINUTE, overdue, NULL)),
		MAX(overdue IS NOT NULL AND updated_at > NOW(3) - INTERVAL 1 DAY), MAX(fallback),
		COALESCE(MAX(IF(fallback = 1, fallback_reason, NULL)), '')
		FROM mq_task_health WHERE country = ? AND task <> 'outbox-relay' GROUP BY task`
	sqlDeadLetters = `SELECT consumer_group, COUNT(*), MIN(id) FROM (SELECT consumer_group, id FROM mq_dead_letter
		WHERE status = 'OPEN' LIMIT 10000) t GROUP BY consumer_group`
	sqlDeadLetter = `SELECT event_id, headers_json FROM mq_dead_letter WHERE id = ?`
	// Leases that are held for as long as their process lives are no locks of a task.
	sqlLeases = `SELECT name, TIMESTAMPDIFF(MICROSECOND, locked_at, NOW(3)) / 1000000 FROM mq_lease
		WHERE locked_until > NOW(3) AND name NOT LIKE 'outbox-relay:%' AND name NOT LIKE 'ops-sender:%'`
	sqlMessagesWaiting = `SELECT COUNT(*), COALESCE(MAX(TIMESTAMPDIFF(MICROSECOND, created_at, NOW(3))), 0) / 1000000
		FROM (SELECT created_at FROM mq_alert_message WHERE country = ? AND route = ? AND status = 'QUEUED' LIMIT 10000) t`
	sqlMessagesRefused = `SELECT COUNT(*) FROM mq_alert_message WHERE country = ? AND route = ? AND status = 'REFUSED'
		AND created_at > NOW(3) - INTERVAL 1 HOUR`
)

// originOf makes an origin of columns.
func originOf(eventID, traceparent, requestID string) origin {
	return origin{EventID: eventID, TraceID: event.TraceID(traceparent), RequestID: requestID}
}

// oldestPending is the oldest event that could be published now; ok is false without one.
func (r reader) oldestPending(ctx context.Context) (age float64, o origin, ok bool, err error) {
	err = r.each(ctx, sqlOutboxOldest, func(row *sql.Rows) error {
		var id, trace, request string
		ok = true
		if err := row.Scan(&age, &id, &trace, &request); err != nil {
			return err
		}
		o = originOf(id, trace, request)
		return nil
	})
	return age, o, ok, err
}

// relayAges are how long ago a relay last looked, and last got a confirm; nil if never.
func (r reader) relayAges(ctx context.Context, country string) (pass, confirm *float64, note string, err error) {
	if err = r.conn.QueryRowContext(ctx, sqlRelay, country).Scan(&pass, &confirm); err != nil {
		return nil, nil, "", err
	}
	err = r.each(ctx, sqlRelayNotes, func(row *sql.Rows) error { return row.Scan(&note) }, country)
	return pass, confirm, note, err
}

// group is what is known of a consumer group; nil is unknown.
type group struct {
	Task, Name              string
	Backlog, Oldest, InHand *float64
}

func (r reader) groups(ctx context.Context, country string) (out []group, err error) {
	err = r.each(ctx, sqlGroups, func(row *sql.Rows) error {
		var g group
		err := row.Scan(&g.Task, &g.Name, &g.Backlog, &g.Oldest, &g.InHand)
		out = append(out, g)
		return err
	}, country)
	return out, err
}

// taskState is what the poll processes of a task tell.
type taskState struct {
	Name    string
	Overdue *float64
	// Watched says that somebody told of overdue rows within a day.
	Watched  bool
	Fallback bool
	Reason   string
}

func (r reader) tasks(ctx context.Context, country string) (out []taskState, err error) {
	err = r.each(ctx, sqlTasks, func(row *sql.Rows) error {
		var t taskState
		err := row.Scan(&t.Name, &t.Overdue, &t.Watched, &t.Fallback, &t.Reason)
		out = append(out, t)
		return err
	}, country)
	return out, err
}

// deadGroup is a group with open dead letters.
type deadGroup struct {
	Name   string
	N      float64
	oldest int64
	origin
}

func (r reader) deadLetters(ctx context.Context) (out []deadGroup, err error) {
	err = r.each(ctx, sqlDeadLetters, func(row *sql.Rows) error {
		var d deadGroup
		err := row.Scan(&d.Name, &d.N, &d.oldest)
		out = append(out, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		var id, raw string
		if err := r.conn.QueryRowContext(ctx, sqlDeadLetter, out[i].oldest).Scan(&id, &raw); err != nil {
			return nil, err
		}
		headers := map[string]string{}
		_ = json.Unmarshal([]byte(raw), &headers) // a letter without readable headers has no trace
		out[i].origin = originOf(id, headers[event.HeaderTraceparent], headers[event.HeaderRequestID])
	}
	return out, nil
}
