package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/budget"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/task"
)

const (
	// pollLease is the task lock: one poll of a country works at a time.
	pollLease = 30 * time.Second
	// pollBatch is how many rounds the poll reads at a time, pagesAtMost how often.
	pollBatch   = 100
	pagesAtMost = 50
	// overdueEnough rounds are counted exactly, beyond that it is "at least".
	overdueEnough = 1000
)

// poller is the periodic side: it lists the campaigns, which starts their rounds, and
// syncs those that the scope gives it, one after the other.
type poller struct {
	*syncer
	locks *lease.Store
}

// Poll implements task.Poller. A poll that runs elsewhere makes this one a success.
func (p *poller) Poll(ctx context.Context, scope task.Scope) (task.Result, error) {
	if scope.Beat == nil {
		scope.Beat = func() {}
	}
	var done task.Result
	err := p.locks.Hold(ctx, "campaign-sync:"+p.cfg.Base.Country, pollLease, func(ctx context.Context, _ *lease.Held) error {
		listErr := p.listIfDue(ctx, scope)
		rows, err := p.syncDue(ctx, scope)
		done.Rows = rows
		return errors.Join(listErr, err)
	})
	if errors.Is(err, lease.ErrHeld) {
		return done, nil
	}
	return done, err
}

// listIfDue starts the next rounds when it is time. A failure of the platform's puts the
// listing off and is no failure of the poll.
func (p *poller) listIfDue(ctx context.Context, scope task.Scope) error {
	if scope.Fallback {
		return nil
	}
	l, err := p.store.dueListing(ctx)
	if err != nil || l == nil {
		return err
	}
	campaigns, started, truncated, err := p.list(ctx, l.Round, scope)
	if err == nil {
		zerolog.Ctx(ctx).Info().Str("round", l.Round).Int("campaigns", campaigns).Int("started", started).
			Str("truncated", truncated).Msg("campaigns listed")
		return p.store.listed(ctx, campaigns, started, truncated != "", p.cfg.Every)
	}
	if ctx.Err() != nil {
		return nil // told to stop; the next poll goes on with the same round
	}
	wait := backoff.Policy{Base: p.cfg.RetryBase, Max: p.cfg.Every}.Delay(l.Failures + 1)
	var later *laterError
	outside := errors.As(err, &later)
	if outside {
		wait = later.after
	}
	k, ofAPI := kindOf(err)
	if (ofAPI && k != transient) || errors.Is(err, errReauthorise) || errors.Is(err, errNoToken) {
		wait = p.cfg.Every // nothing that a sooner try could mend
		p.alarms.raise(ctx, err, p.metrics)
	}
	if putOff := p.store.listingFailed(ctx, wait, err); putOff != nil {
		return errors.Join(err, putOff)
	}
	zerolog.Ctx(ctx).Warn().Err(err).Dur("wait", wait).Msg("campaigns were not listed")
	return nil
}

// list reads the campaigns and starts a round of each that has none under way.
func (p *poller) list(ctx context.Context, roundID string, scope task.Scope) (campaigns, started int, truncated string, err error) {
	token, seen, known := "", map[string]bool{"": true}, map[idText]bool{}
	for pages := 1; ; pages++ {
		scope.Beat()
		answer, err := p.api.campaigns(ctx, token)
		if err != nil {
			return campaigns, started, "", err
		}
		for _, c := range answer.items {
			if known[c.ID] || c.ID == "" {
				continue
			}
			known[c.ID] = true
			campaigns++
			ok, err := p.store.startRound(ctx, string(c.ID), roundID, p.eventOwns(string(c.ID)))
			if err != nil {
				return campaigns, started, "", err
			}
			if ok {
				started++
			}
		}
		switch token = answer.next; {
		case token == "":
			return campaigns, started, "", nil
		case seen[token]:
			return campaigns, started, "page token came twice", nil
		case pages >= maxListPages:
			return campaigns, started, fmt.Sprintf("more than %d pages", maxListPages), nil
		}
		seen[token] = true
	}
}

// syncDue works through the due rounds in scope, one campaign after the other. A
// campaign that fails holds up no other; the database being away ends the pass.
func (p *poller) syncDue(ctx context.Context, scope task.Scope) (int, error) {
	worked := 0
	var failed error
	err := p.eachDue(ctx, scope.OverdueBy, func(row dueRow) (bool, error) {
		if !scope.Owns(row.CampaignID, row.CreatedAt) {
			return true, nil
		}
		// Listings come on time however long the serial work takes.
		if err := p.listIfDue(ctx, scope); err != nil {
			failed = err
		}
		switch err := p.syncOne(ctx, row, scope); {
		case err == nil:
			worked++
		case db.IsUnavailable(err):
			return false, err
		default:
			failed = fmt.Errorf("campaign %s: %w", row.CampaignID, err)
		}
		return ctx.Err() == nil, nil
	})
	return worked, errors.Join(err, failed)
}

func (p *poller) eachDue(ctx context.Context, by time.Duration, f func(dueRow) (more bool, err error)) error {
	var after dueRow
	for range pagesAtMost {
		rows, err := p.store.dueRounds(ctx, by, after, pollBatch)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if more, err := f(row); err != nil || !more {
				return err
			}
		}
		if len(rows) < pollBatch {
			return nil
		}
		after = rows[len(rows)-1]
	}
	return nil
}

// syncOne syncs one campaign as the old poll did. If the event path owns the campaign
// now, what is left gets an event: the poll may never look at it again.
func (p *poller) syncOne(ctx context.Context, row dueRow, scope task.Scope) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panicked with a value of type %T", v)
		}
	}()
	ctx, stop := beating(ctx, scope.Beat)
	defer stop()
	_, err = p.run(ctx, row.CampaignID, row.Round, p.serially(), func() bool { return p.eventOwns(row.CampaignID) })
	return err
}

// beating calls beat while a campaign is worked on: each of its steps is bounded by
// itself, all of them together are not.
func beating(ctx context.Context, beat func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for backoff.Sleep(ctx, time.Second) {
			beat()
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

// Overdue implements task.Poller.
func (p *poller) Overdue(ctx context.Context, by time.Duration, owned func(string, time.Time) bool) (task.Overdue, error) {
	var o task.Overdue
	err := p.eachDue(ctx, by, func(row dueRow) (bool, error) {
		if owned(row.CampaignID, row.CreatedAt) {
			o.Rows++
			o.Oldest = max(o.Oldest, time.Duration(row.Late)*time.Microsecond)
		}
		return o.Rows < overdueEnough, nil
	})
	return o, err
}

// gauges shows to metrics what all replicas share: the budgets and the authorisation.
func (p *poller) gauges(all ...*budget.Budget) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for backoff.Sleep(ctx, 10*time.Second) {
			p.show(ctx, all)
		}
		return nil
	}
}

// show leaves what it cannot read as it was.
func (p *poller) show(ctx context.Context, all []*budget.Budget) {
	for _, b := range all {
		if st, err := b.State(ctx); err == nil {
			p.metrics.budget(b.Name(), st)
		}
	}
	if left, err := p.store.authorisedFor(ctx); err == nil {
		p.metrics.authorised.WithLabelValues().Set(left.Seconds())
	}
}
