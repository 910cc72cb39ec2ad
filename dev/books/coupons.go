package books

import "time"

// Fate is how a coupon's story ended for the business.
type Fate string

// The fates. Due was reached, or a person was faster.
const (
	Due      Fate = "due"
	Redeemed Fate = "redeemed"
	// Kept was extended beyond the run.
	Kept Fate = "extended"
)

// Coupon is a coupon as the feeder left it.
type Coupon struct {
	ID   string
	Fate Fate
	// Due is its last due time, Extended that it was put off at least once.
	Due      time.Time
	Extended bool
}

// CouponRow is a row of user_coupons.
type CouponRow struct{ ID, Status string }

// Expiration is one change of a coupon to EXPIRED, as the database itself noted it.
type Expiration struct {
	CouponID, From string
	// Due is what the row said before the change, which happened At.
	Due, At time.Time
}

const (
	statusExpired = "EXPIRED"
	statusUsed    = "USED"
)

func (a *audit) checkCoupons() {
	rows := map[string]string{}
	for _, r := range a.tables.Coupons {
		rows[r.ID] = r.Status
	}
	expired := map[string][]Expiration{}
	for _, e := range a.tables.Expirations {
		expired[e.CouponID] = append(expired[e.CouponID], e)
	}
	for _, c := range a.plan.Coupons {
		status, ok := rows[c.ID]
		if !ok {
			a.broken(promiseCouponOnce, "coupon %s: no row", c.ID)
			continue
		}
		a.checkCoupon(c, status, expired[c.ID])
		delete(expired, c.ID)
	}
	for id := range expired {
		a.broken(promiseCouponOnce, "coupon %s: expired, and nobody issued it", id)
	}
}

func (a *audit) checkCoupon(c Coupon, status string, expired []Expiration) {
	for _, e := range expired {
		if e.At.Before(e.Due) || e.At.Before(c.Due) {
			a.broken(promiseCouponEarly, "coupon %s: expired at %s, due at %s", c.ID, clock(e.At), clock(c.Due))
		}
	}
	switch c.Fate {
	case Due:
		a.totals.Expired++
		if status != statusExpired || len(expired) != 1 {
			a.broken(promiseCouponOnce, "coupon %s: %s, %d times expired", c.ID, status, len(expired))
		}
	case Redeemed:
		a.totals.Redeemed++
		if status != statusUsed || len(expired) != 0 {
			a.broken(promiseCouponKept, "coupon %s: redeemed, and now %s, %d times expired", c.ID, status, len(expired))
		}
	case Kept:
		a.totals.Kept++
		if status == statusExpired || len(expired) != 0 {
			a.broken(promiseCouponKept, "coupon %s: extended, and now %s, %d times expired", c.ID, status, len(expired))
		}
	}
	if c.Extended && c.Fate == Due {
		a.totals.PutOff++
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
