package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

// pipe measures the way of events from outbox to consumers, reading MySQL only: relay
// and consumers leave what they know in mq_task_health. Each part fails by itself.
func (s *sweeper) pipe(ctx context.Context, r reader) []figure {
	var out []figure
	for _, part := range []struct {
		// names are the figures that are unknown when the part fails.
		names   []string
		measure func(ctx context.Context, r reader) ([]figure, error)
	}{
		{[]string{"outbox_overdue", "outbox_pending_age", "publish_silence", "relay_pass_age"}, s.outbox},
		{[]string{"outbox_failed"}, s.failed},
		{[]string{"group_backlog", "group_oldest_age", "group_in_hand_age", "group_retention_share", "group_fuse_share"}, s.groups},
		{[]string{"task_overdue", "fallback_active"}, s.tasks},
		{[]string{"dead_letters"}, s.deadLetters},
		{[]string{"lease_held"}, s.heldLeases},
		{[]string{"zone_offset"}, s.zone},
		{[]string{"alerts_waiting", "alerts_waiting_age", "alerts_refused"}, s.waiting},
	} {
		figures, err := part.measure(ctx, r)
		if err != nil {
			s.metrics.unknown.Inc()
			for _, name := range part.names {
				out = append(out, unknown(name, "", "", err))
			}
			continue
		}
		out = append(out, figures...)
	}
	return out
}

func (s *sweeper) outbox(ctx context.Context, r reader) ([]figure, error) {
	age := s.cfg.Thresholds.OutboxAge.Microseconds()
	overdue, err := r.number(ctx, sqlOutboxOverdue, age, age)
	if err != nil {
		return nil, err
	}
	oldest, o, pending, err := r.oldestPending(ctx)
	if err != nil {
		return nil, err
	}
	pass, confirm, note, err := r.relayAges(ctx, s.store.country)
	if err != nil {
		return nil, err
	}
	// While nothing waits there is nothing to confirm, and what came a second ago has
	// not been refused for an hour.
	silence := 0.0
	if pending {
		silence = max(0, oldest)
		if confirm != nil {
			silence = min(silence, *confirm)
		}
	}
	figures := []figure{
		known("outbox_overdue", "", unitRows, overdue),
		known("outbox_pending_age", "", unitSeconds, max(0, oldest)),
		known("publish_silence", "", unitSeconds, silence),
		{Name: "relay_pass_age", Unit: unitSeconds, Source: sourcePipe, Value: pass},
	}
	if pass == nil {
		figures[3].Note = "no relay has told of a pass yet"
	}
	for i := range figures {
		figures[i].Task, figures[i].origin = "outbox-relay", o
		if note != "" {
			figures[i].Note = note
		}
	}
	return figures, nil
}

func (s *sweeper) failed(ctx context.Context, r reader) (out []figure, err error) {
	err = r.each(ctx, sqlOutboxFailed, func(row *sql.Rows) error {
		var eventType, first string
		var n float64
		if err := row.Scan(&eventType, &n, &first); err != nil {
			return err
		}
		f := known("outbox_failed", eventType, unitRows, n)
		f.Task = "outbox-relay"
		if parts := strings.SplitN(first, "|", 4); len(parts) == 4 {
			f.origin = originOf(parts[1], parts[2], parts[3])
		}
		out = append(out, f)
		return nil
	})
	return out, err
}

func (s *sweeper) groups(ctx context.Context, r reader) (out []figure, err error) {
	groups, err := r.groups(ctx, s.store.country)
	for _, g := range groups {
		share := (*float64)(nil)
		if g.Oldest != nil {
			v := *g.Oldest / s.cfg.Sweep.Retention.Seconds()
			share = &v
		}
		figures := []figure{
			{Name: "group_backlog", Unit: unitRows, Value: g.Backlog},
			{Name: "group_oldest_age", Unit: unitSeconds, Value: g.Oldest},
			{Name: "group_retention_share", Unit: unitShare, Value: share},
		}
		if s.cfg.MQ.Provider == provider.RedisStreams {
			figures = append(figures, figure{Name: "group_fuse_share", Unit: unitShare, Value: s.fuseShare(g.Backlog)})
		}
		for _, f := range figures {
			f.Subject, f.Task, f.Source = g.Name, g.Task, sourcePipe
			if f.Value == nil {
				f.Note = "neither a consumer nor a relay has told it in the last minute"
			}
			out = append(out, f)
		}
		if g.InHand != nil { // without a consumer nobody has anything in hand
			f := known("group_in_hand_age", g.Name, unitSeconds, *g.InHand)
			f.Task = g.Task
			out = append(out, f)
		}
	}
	return out, err
}

// fuseShare is how much of Redis' memory fuse a backlog takes. The stream is trimmed behind
// the slowest group, so this is what makes it long; at 1 it is cut, read or not.
func (s *sweeper) fuseShare(backlog *float64) *float64 {
	if backlog == nil {
		return nil
	}
	share := *backlog / float64(s.cfg.MQ.Redis.MaxLen)
	return &share
}

func (s *sweeper) tasks(ctx context.Context, r reader) (out []figure, err error) {
	tasks, err := r.tasks(ctx, s.store.country)
	for _, t := range tasks {
		if t.Watched {
			f := figure{Name: "task_overdue", Subject: t.Name, Unit: unitRows, Source: sourcePipe, Task: t.Name, Value: t.Overdue}
			if f.Value == nil {
				f.Note = "no poll process has told it in the last minute"
			}
			out = append(out, f)
		}
		f := known("fallback_active", t.Name, unitState, 0)
		if t.Fallback {
			*f.Value = 1
		}
		f.Task, f.Note = t.Name, t.Reason
		out = append(out, f)
	}
	return out, err
}

func (s *sweeper) deadLetters(ctx context.Context, r reader) (out []figure, err error) {
	dead, err := r.deadLetters(ctx)
	for _, d := range dead {
		f := known("dead_letters", d.Name, unitRows, d.N)
		f.origin = d.origin
		out = append(out, f)
	}
	return out, err
}

func (s *sweeper) heldLeases(ctx context.Context, r reader) (out []figure, err error) {
	err = r.each(ctx, sqlLeases, func(row *sql.Rows) error {
		var name string
		var held float64
		err := row.Scan(&name, &held)
		out = append(out, known("lease_held", name, unitSeconds, held))
		return err
	})
	return out, err
}

// zone compares the writers' clocks and zones with the database's.
func (s *sweeper) zone(ctx context.Context, _ reader) ([]figure, error) {
	z, err := outbox.NewStore(s.store.pool).CheckZone(ctx)
	if err != nil {
		return nil, err
	}
	f := known("zone_offset", "", unitSeconds, z.Suspect.Seconds())
	if z.Suspect < 0 {
		// Nothing written for whole hours looks the same: that is said, not alerted.
		*f.Value, f.Note = 0, z.Hint
	} else if z.Suspect > 0 {
		f.Note = z.Hint
	}
	return []figure{f}, nil
}

// waiting measures the alerts' own way to people.
func (s *sweeper) waiting(ctx context.Context, r reader) ([]figure, error) {
	var n, age float64
	if err := r.conn.QueryRowContext(ctx, sqlMessagesWaiting, s.store.country, routeFeishu).Scan(&n, &age); err != nil {
		return nil, err
	}
	refused, err := r.number(ctx, sqlMessagesRefused, s.store.country, routeFeishu)
	if err != nil {
		return nil, err
	}
	waits := known("alerts_waiting_age", "", unitSeconds, age)
	waits.Note = fmt.Sprintf("%.0f messages wait", n)
	return []figure{known("alerts_waiting", "", unitRows, n), waits, known("alerts_refused", "", unitRows, refused)}, nil
}

// advise is the self-assessment: would a message queue pay off here? It is about what
// polling costs users, and about how much there is to carry.
func (s *sweeper) advise(ctx context.Context, r reader, figures []figure) figure {
	f := figure{Name: "mq_recommended", Unit: unitState, Source: sourcePipe}
	published, err := r.number(ctx, sqlPublishedHour)
	if err != nil {
		f.Note = err.Error()
		return f
	}
	t := s.cfg.Thresholds
	wait := 0.0
	for _, other := range figures {
		if other.Name == "push_oldest_wait" && other.Value != nil {
			wait = *other.Value
		}
	}
	v := 0.0
	switch {
	case wait > t.MQWait.Seconds():
		v = 1
		f.Note = fmt.Sprintf("MQ recommended: the oldest due push waits %s, more than %s", show(&wait, unitSeconds), t.MQWait)
	case published >= float64(t.MQEvents):
		v = 1
		f.Note = fmt.Sprintf("MQ recommended: %.0f events in the last hour, from %d on polling costs more", published, t.MQEvents)
	default:
		f.Note = fmt.Sprintf("MQ not needed for now: %.0f events in the last hour, the oldest due push waits %s; polling would do", published, show(&wait, unitSeconds))
	}
	f.Value = &v
	return f
}
