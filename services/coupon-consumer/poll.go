package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/task"
)

const (
	// scanLock is the lease that keeps scans of several processes from overlapping.
	scanLock = "coupon-expire-scan"
	// overdueEnough rows are counted exactly, beyond that it is "at least".
	overdueEnough = 1000
)

// Poll implements task.Poller: one scan, unless another process is at it. A coupon that
// the scan owns is expired by it at once; for any other it writes an event, since
// nothing else happens at the moment at which a coupon's time comes.
func (e *expirer) Poll(ctx context.Context, s task.Scope) (task.Result, error) {
	var t tally
	began := time.Now()
	err := e.leases.Hold(ctx, scanLock, e.cfg.ScanLease, func(ctx context.Context, _ *lease.Held) error {
		return e.scan(ctx, s, &t)
	})
	if errors.Is(err, lease.ErrHeld) {
		return task.Result{}, nil
	}
	if t.expired+t.appended > 0 {
		zerolog.Ctx(ctx).Info().Int("expired", t.expired).Int("events", t.appended).Bool("fallback", s.Fallback).
			Dur("took", time.Since(began)).Dur("longest_transaction", t.longest).Msg("scanned coupons")
	}
	return task.Result{Rows: t.expired}, err
}

// tally is what a scan did.
type tally struct {
	expired, appended int
	longest           time.Duration // of its transactions
	failed            error         // the first failure that did not end it
}

func (e *expirer) scan(ctx context.Context, s task.Scope, t *tally) error {
	for _, status := range openStatuses() {
		err := e.eachPage(ctx, status, s.OverdueBy, func(page []coupon) (bool, error) {
			err := e.work(ctx, s, page, t)
			if s.Beat != nil {
				s.Beat()
			}
			switch {
			case err == nil:
			case ctx.Err() != nil, db.IsUnavailable(err):
				return false, err
			case t.failed == nil: // a batch that fails holds up no other
				t.failed = err
			}
			return backoff.Sleep(ctx, e.cfg.ScanPause), nil
		})
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return t.failed
}

// eachPage walks through the due coupons of a status until f says no or all were seen.
func (e *expirer) eachPage(ctx context.Context, status string, by time.Duration, f func([]coupon) (bool, error)) error {
	for after := beforeAll(); ; {
		page, err := e.store.duePage(ctx, status, by, after, e.cfg.ScanBatch)
		if err != nil || len(page) == 0 {
			return err
		}
		if more, err := f(page); err != nil || !more {
			return err
		}
		if len(page) < e.cfg.ScanBatch {
			return nil
		}
		after = page[len(page)-1]
	}
}

// work decides about a page, coupon by coupon. The time by which a coupon belongs to
// the scan or to events is the one at which its event was or would be written: a change
// of the flag is binding for it or not, whenever the coupon itself was issued.
func (e *expirer) work(ctx context.Context, s task.Scope, page []coupon, t *tally) error {
	var mine, theirs []coupon
	for _, c := range page {
		if s.Owns(c.ID, c.ReadAt) {
			mine = append(mine, c)
		} else {
			theirs = append(theirs, c)
		}
	}
	if s.Fallback { // the rest is nobody's fault
		return e.expire(ctx, mine, byFallback, t)
	}
	err := e.expire(ctx, mine, byScan, t)
	if len(theirs) == 0 || err != nil && db.IsUnavailable(err) {
		return err
	}
	return errors.Join(err, e.leaveToEvents(ctx, s, theirs, t))
}

// leaveToEvents writes the events that are missing. A coupon whose event is older than
// its time was extended after it: its event is used up, so the scan expires it. One
// whose event is older than the last change of the flag may have been skipped by a
// handler and is the scan's too.
func (e *expirer) leaveToEvents(ctx context.Context, s task.Scope, coupons []coupon, t *tally) error {
	written, err := e.store.eventTimes(ctx, coupons)
	if err != nil {
		return err
	}
	var fresh, extended, skipped []coupon
	for _, c := range coupons {
		switch at, exists := written[c.eventID()]; {
		case !exists:
			fresh = append(fresh, c)
		case usedUp(c, at):
			extended = append(extended, c)
		case s.Owns(c.ID, at):
			skipped = append(skipped, c)
		}
	}
	return errors.Join(e.expire(ctx, extended, byExtension, t), e.expire(ctx, skipped, byScan, t), e.announce(ctx, fresh, t))
}

func usedUp(c coupon, written time.Time) bool { return written.Before(c.ExpiresAt) }

func (e *expirer) expire(ctx context.Context, coupons []coupon, by string, t *tally) error {
	if len(coupons) == 0 {
		return nil
	}
	ids := make([]string, len(coupons))
	for i, c := range coupons {
		ids[i] = c.ID
	}
	began := time.Now()
	n, err := e.store.expireBatch(ctx, ids)
	e.took("expire", time.Since(began), t)
	t.expired += n
	e.metrics.expired.WithLabelValues(by).Add(float64(n))
	return err
}

// announce writes events. Ids of which no event can be made (too long, not ASCII, or
// equal to another one to the outbox's collation) must neither stop the scan nor keep
// their coupons alive: the scan expires those itself.
func (e *expirer) announce(ctx context.Context, coupons []coupon, t *tally) error {
	var events []event.Event
	var unfit, fit []coupon
	for _, c := range coupons {
		ev, err := event.CouponExpired(c.UserID, c.ID)
		if err != nil {
			e.complain(ctx, c, err)
			unfit = append(unfit, c)
			continue
		}
		events, fit = append(events, ev), append(fit, c)
	}
	return errors.Join(e.expire(ctx, unfit, byScan, t), e.append(ctx, fit, events, t))
}

func (e *expirer) append(ctx context.Context, coupons []coupon, events []event.Event, t *tally) error {
	if len(events) == 0 {
		return nil
	}
	began := time.Now()
	n, err := e.store.appendEvents(ctx, events)
	e.took("append", time.Since(began), t)
	if !errors.Is(err, outbox.ErrIDClash) {
		t.appended += n
		e.metrics.events.Add(float64(n))
		return err
	}
	if len(events) == 1 {
		e.complain(ctx, coupons[0], err)
		return e.expire(ctx, coupons, byScan, t)
	}
	half := len(events) / 2
	return errors.Join(e.append(ctx, coupons[:half], events[:half], t), e.append(ctx, coupons[half:], events[half:], t))
}

func (e *expirer) complain(ctx context.Context, c coupon, err error) {
	e.metrics.unfit.Inc()
	zerolog.Ctx(ctx).Warn().Err(err).Str("user_coupon_id", c.ID).Msg("no event can be made of this coupon, the scan expires it")
}

func (e *expirer) took(kind string, d time.Duration, t *tally) {
	t.longest = max(t.longest, d)
	e.metrics.seconds.WithLabelValues(kind).Observe(d.Seconds())
}

// Overdue implements task.Poller. What the scan itself will expire is not the event
// path's to be late with.
func (e *expirer) Overdue(ctx context.Context, by time.Duration, owned func(string, time.Time) bool) (task.Overdue, error) {
	var o task.Overdue
	for _, status := range openStatuses() {
		err := e.eachPage(ctx, status, by, func(page []coupon) (bool, error) {
			err := e.countOverdue(ctx, page, owned, &o)
			return o.Rows < overdueEnough, err
		})
		if err != nil {
			return o, fmt.Errorf("count overdue coupons: %w", err)
		}
	}
	return o, nil
}

func (e *expirer) countOverdue(ctx context.Context, page []coupon, owned func(string, time.Time) bool, o *task.Overdue) error {
	var theirs []coupon
	for _, c := range page {
		if owned(c.ID, c.ReadAt) {
			theirs = append(theirs, c)
		}
	}
	written, err := e.store.eventTimes(ctx, theirs)
	if err != nil {
		return err
	}
	for _, c := range theirs {
		if at, exists := written[c.eventID()]; exists && (usedUp(c, at) || !owned(c.ID, at)) {
			continue
		}
		o.Rows++
		o.Oldest = max(o.Oldest, time.Duration(c.Late)*time.Microsecond)
	}
	return nil
}
