package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/task"
)

// expirer does the work: one coupon for the handler, batches of them for the scan, both
// by the same condition.
type expirer struct {
	cfg     Config
	store   store
	leases  *lease.Store
	metrics *metrics
}

// RowID implements task.Work. The rollout goes by the user_coupons row, here as in the
// scan.
func (e *expirer) RowID(d eventbus.Delivery) (string, error) {
	p, err := event.DecodeCouponExpire(d.Body)
	return p.UserCouponID, err
}

// Handle implements task.Work: the event path.
func (e *expirer) Handle(ctx context.Context, id string, d eventbus.Delivery) eventbus.Outcome {
	expired, err := e.store.expireIfDue(ctx, id)
	if err != nil {
		return task.Retry(err, d.Attempt)
	}
	if expired {
		e.metrics.expired.WithLabelValues(byEvent).Inc()
		return task.Done("coupon is " + statusExpired)
	}
	return e.refused(ctx, id, d)
}

// refused finds out why a coupon was not to be expired.
func (e *expirer) refused(ctx context.Context, id string, d eventbus.Delivery) eventbus.Outcome {
	s, err := e.store.standingOf(ctx, id)
	switch {
	case err != nil:
		return task.Retry(err, d.Attempt)
	case !s.Open:
		e.metrics.refused.WithLabelValues("final").Inc()
		return task.Done("coupon is " + s.Status + " already")
	case s.DueIn > task.LongWait:
		// The event was for the old time and there is no other one: the scan finds that
		// it is older than the coupon's new time, and does it itself.
		e.metrics.refused.WithLabelValues("extended").Inc()
		return task.Done("coupon was extended, the scan expires it when it is due")
	}
	e.metrics.refused.WithLabelValues("not_due").Inc()
	out := eventbus.RetryAfter(max(s.DueIn, 0)+50*time.Millisecond+rand.N(200*time.Millisecond), nil)
	out.Reason = "coupon is not due yet"
	return out
}
