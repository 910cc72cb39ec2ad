package demo

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seahub/seahub-mq/dev/books"
)

const (
	// couponsFrom is when the first coupon comes due, couponsFor over which time all do.
	couponsFrom = 3 * time.Second
	couponsFor  = 32 * time.Second
	// putOffBy is how long a short extension is, keptBy a long one.
	putOffBy = 4 * time.Second
	keptBy   = 24 * time.Hour
	// couponOwners share the coupons.
	couponOwners = 700
	// businessWriters redeem and extend.
	businessWriters = 3
)

// coupons plays the business of coupons: they are there already and come due one after
// the other, while people redeem some and have others extended, many in the very moment.
type coupons struct {
	db *sql.DB

	mu   sync.Mutex
	plan map[string]books.Coupon
}

// deed is what somebody does with a coupon.
type deed struct {
	at     time.Time
	coupon string
	redeem bool
	until  time.Time // of an extension
	fate   books.Fate
}

const openCoupon = "status IN ('CLAIMABLE', 'ISSUED', 'ACTIVE')"

// play writes n coupons and does the deeds when their time comes.
func (c *coupons) play(ctx context.Context, n int) error {
	var base time.Time
	if err := c.db.QueryRowContext(ctx, "SELECT NOW(3)").Scan(&base); err != nil {
		return fmt.Errorf("read the database's time: %w", err)
	}
	var all []books.Coupon
	var deeds []deed
	for i := range n {
		due := base.Add(couponsFrom + time.Duration(i)*couponsFor/time.Duration(n)).Truncate(time.Millisecond)
		cp := books.Coupon{ID: fmt.Sprintf("coupon-%05d", i), Fate: books.Due, Due: due}
		all = append(all, cp)
		if d, ok := deedFor(i, cp); ok {
			deeds = append(deeds, d)
		}
	}
	if err := c.issue(ctx, all...); err != nil {
		return err
	}
	slices.SortFunc(deeds, func(a, b deed) int { return a.at.Compare(b.at) })
	work := make(chan deed)
	errs := make(chan error, businessWriters)
	for range businessWriters {
		go func() { errs <- c.doAll(ctx, work) }()
	}
	skew := time.Since(base) // the database's clock is this one's, or nearly
	for _, d := range deeds {
		if pause(ctx, time.Until(d.at)-skew) != nil {
			break
		}
		select {
		case work <- d:
		case <-ctx.Done():
		}
	}
	close(work)
	var err error
	for range businessWriters {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return err
}

// deedFor spreads the deeds: of twenty coupons three are redeemed and three extended,
// most of them around the time at which they expire, so that some people come too late.
func deedFor(i int, c books.Coupon) (deed, bool) {
	moment := c.Due.Add(time.Duration(i*7919%1500-400) * time.Millisecond)
	early := c.Due.Add(-2 * time.Second)
	switch i % 20 {
	case 3:
		return deed{at: early, coupon: c.ID, redeem: true, fate: books.Redeemed}, true
	case 7, 11:
		return deed{at: moment, coupon: c.ID, redeem: true, fate: books.Redeemed}, true
	case 5:
		return deed{at: early, coupon: c.ID, until: c.Due.Add(keptBy), fate: books.Kept}, true
	case 13:
		return deed{at: moment, coupon: c.ID, until: c.Due.Add(keptBy), fate: books.Kept}, true
	case 17:
		return deed{at: moment, coupon: c.ID, until: c.Due.Add(putOffBy), fate: books.Due}, true
	}
	return deed{}, false
}

// issue writes coupons and remembers them.
func (c *coupons) issue(ctx context.Context, all ...books.Coupon) error {
	c.mu.Lock()
	for _, cp := range all {
		c.plan[cp.ID] = cp
	}
	c.mu.Unlock()
	for from := 0; from < len(all); from += insertRows {
		some := all[from:min(len(all), from+insertRows)]
		var args []any
		for i, cp := range some {
			args = append(args, cp.ID, fmt.Sprintf("user-%04d", (from+i)%couponOwners), []string{"ISSUED", "ACTIVE", "CLAIMABLE"}[i%3], cp.Due)
		}
		rows := strings.TrimSuffix(strings.Repeat("(?, ?, 'welcome', ?, ?, NOW(3) - INTERVAL 30 DAY),", len(some)), ",")
		if _, err := c.db.ExecContext(ctx, "INSERT INTO user_coupons (id, user_id, coupon_id, status, expires_at, created_at) VALUES "+rows, args...); err != nil {
			return fmt.Errorf("issue coupons: %w", err)
		}
	}
	return nil
}

// another issues one that is due now.
func (c *coupons) another(ctx context.Context, id string) error {
	var now time.Time
	if err := c.db.QueryRowContext(ctx, "SELECT NOW(3)").Scan(&now); err != nil {
		return fmt.Errorf("read the database's time: %w", err)
	}
	return c.issue(ctx, books.Coupon{ID: id, Fate: books.Due, Due: now})
}

func (c *coupons) doAll(ctx context.Context, work <-chan deed) error {
	var failed error
	for d := range work {
		if err := c.do(ctx, d); err != nil && ctx.Err() == nil && failed == nil {
			failed = err
		}
	}
	return failed
}

// do is what the app does for somebody. Who comes too late changes nothing: the coupon
// has expired.
func (c *coupons) do(ctx context.Context, d deed) error {
	statement, args := "UPDATE user_coupons SET status = 'USED' WHERE id = ? AND "+openCoupon, []any{d.coupon}
	if !d.redeem {
		statement, args = "UPDATE user_coupons SET expires_at = ? WHERE id = ? AND "+openCoupon, []any{d.until, d.coupon}
	}
	res, err := c.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return fmt.Errorf("redeem or extend %s: %w", d.coupon, err)
	}
	n, err := res.RowsAffected()
	if err != nil || n == 0 {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cp := c.plan[d.coupon]
	cp.Fate = d.fate
	if !d.redeem {
		cp.Due, cp.Extended = d.until, true
	}
	c.plan[d.coupon] = cp
	return nil
}

func (c *coupons) done() []books.Coupon {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []books.Coupon
	for _, cp := range c.plan {
		all = append(all, cp)
	}
	slices.SortFunc(all, func(a, b books.Coupon) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// couponsOpen counts the coupons that have yet to expire in this run.
func (r *run) couponsOpen(ctx context.Context) (open, expired int, err error) {
	err = r.stack.DB.QueryRowContext(ctx, `SELECT COALESCE(SUM(`+openCoupon+` AND expires_at < NOW(3) + INTERVAL 1 HOUR), 0),
		COALESCE(SUM(status = 'EXPIRED'), 0) FROM user_coupons`).Scan(&open, &expired)
	if err != nil {
		return 0, 0, fmt.Errorf("count coupons: %w", err)
	}
	return open, expired, nil
}
