package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/task"
)

const (
	reportEvery = 2 * time.Second
	// lookTimeout bounds one question to the broker about one group.
	lookTimeout = 2 * time.Second
	// reportTask is the relay's name in mq_task_health.
	reportTask = "outbox-relay"
)

// report tells, in mq_task_health, when the relay last looked and last got a confirm,
// and what the broker says of each consumer group. Whoever watches the pipe reads only
// MySQL, and a group whose consumers are all gone must still be seen.
type report struct {
	self     *task.Reporter
	groups   map[string]*task.Reporter
	country  string
	told     time.Time // when a failure was last logged
	forgot   bool
	seenOnce map[string]bool // groups that the broker has known in this process's time
}

func newReport(pool *sql.DB, country string) *report {
	instance := lease.NewOwner()
	r := &report{
		self:   task.NewReporter(pool, reportTask, country, instance, task.RoleRelay),
		groups: map[string]*task.Reporter{}, country: country, seenOnce: map[string]bool{},
	}
	for name, group := range consumerGroups(country) {
		// One row for all relays: the latest look counts, whoever looked.
		r.groups[group] = task.NewReporter(pool, string(name), country, "watch:"+group, task.RoleWatch)
	}
	return r
}

// consumerGroups are the groups by their task.
func consumerGroups(country string) map[flags.Name]string {
	return map[flags.Name]string{
		flags.PushDispatch: eventbus.Group(country, "push_dispatch"),
		flags.CouponExpire: eventbus.Group(country, "coupon_expire"),
		flags.CampaignSync: eventbus.Group(country, "campaign_sync"),
		flags.OpsSnapshot:  eventbus.Group(country, "ops_snapshot"),
	}
}

// run reports until ctx ends.
func (r *report) run(ctx context.Context, snapshot func() outbox.Snapshot, look driver.Inspector) error {
	for backoff.Sleep(ctx, reportEvery) {
		s := snapshot()
		rep := task.Report{LastConfirm: s.LastConfirm, Note: noteOf(s)}
		if s.Slot >= 0 { // a standby's look at its lease is no pass
			rep.LastPass = s.LastPass
		}
		r.write(ctx, r.self, rep)
		if s.Slot >= 0 {
			r.lookAtGroups(ctx, look)
		}
	}
	return nil
}

// runIdle reports a relay that has nothing to publish to.
func (r *report) runIdle(ctx context.Context, why string) error {
	for backoff.Sleep(ctx, reportEvery) {
		r.write(ctx, r.self, task.Report{Note: why})
	}
	return nil
}

func noteOf(s outbox.Snapshot) string {
	switch {
	case s.Failing != "":
		return fmt.Sprintf("publishing fails (%s) since %s", s.Failing, s.FailingSince.UTC().Format(time.RFC3339))
	case s.DatabaseError != nil:
		return "the database fails since " + s.DatabaseSince.UTC().Format(time.RFC3339)
	case s.Slot < 0:
		return "standing by"
	}
	return ""
}

// lookAtGroups writes what the broker tells. A group that does not exist has no row; one
// that did, and of which nothing can be learned now, is unknown and not empty.
func (r *report) lookAtGroups(ctx context.Context, look driver.Inspector) {
	for group, reporter := range r.groups {
		lookCtx, cancel := context.WithTimeout(ctx, lookTimeout)
		g, err := look.Group(lookCtx, eventbus.Topic(r.country), group)
		cancel()
		if err == nil && g.Backlog.Known {
			r.seenOnce[group] = true
		}
		if !r.seenOnce[group] || ctx.Err() != nil {
			continue
		}
		rep := task.Report{Group: group, Backlog: -1, OldestAge: -1}
		if err == nil && g.Backlog.Known {
			rep.Backlog = g.Backlog.N
		}
		if err == nil && g.OldestAge.Known {
			rep.OldestAge = g.OldestAge.D
		}
		r.write(ctx, reporter, rep)
	}
}

// write is best effort: a report that fails is repeated anyway.
func (r *report) write(ctx context.Context, to *task.Reporter, rep task.Report) {
	err := to.Write(ctx, rep)
	if err == nil {
		if !r.forgot {
			r.forgot = r.self.Forget(ctx) == nil
		}
		return
	}
	if ctx.Err() == nil && time.Since(r.told) > time.Minute {
		r.told = time.Now()
		zerolog.Ctx(ctx).Warn().Err(err).Msg("the relay's health row cannot be written")
	}
}
