package demo

import (
	"slices"
	"time"

	"github.com/seahub/seahub-mq/dev/books"
)

func couponEarly(e *evidence) bool {
	if len(e.tables.Expirations) == 0 {
		return false
	}
	x := &e.tables.Expirations[0]
	x.At = x.Due.Add(-time.Second)
	return true
}

func couponTwice(e *evidence) bool {
	if len(e.tables.Expirations) == 0 {
		return false
	}
	e.tables.Expirations = append(e.tables.Expirations, e.tables.Expirations[0])
	return true
}

func couponMissed(e *evidence) bool {
	if len(e.tables.Expirations) == 0 {
		return false
	}
	e.setCoupon(e.tables.Expirations[0].CouponID, "ISSUED")
	e.tables.Expirations = e.tables.Expirations[1:]
	return true
}

// couponTaken expires a coupon that somebody had seen to.
func couponTaken(e *evidence, fate books.Fate) bool {
	i := slices.IndexFunc(e.plan.Coupons, func(c books.Coupon) bool { return c.Fate == fate })
	if i < 0 {
		return false
	}
	c := e.plan.Coupons[i]
	e.setCoupon(c.ID, "EXPIRED")
	e.tables.Expirations = append(e.tables.Expirations, books.Expiration{CouponID: c.ID, From: "ISSUED", Due: c.Due, At: c.Due.Add(time.Second)})
	return true
}

func (e *evidence) setCoupon(id, status string) {
	for i := range e.tables.Coupons {
		if e.tables.Coupons[i].ID == id {
			e.tables.Coupons[i].Status = status
		}
	}
}

func dropProduct(e *evidence) bool {
	if len(e.tables.Products) == 0 {
		return false
	}
	e.tables.Products = e.tables.Products[1:]
	return true
}

func changeProduct(e *evidence) bool {
	if len(e.tables.Products) == 0 {
		return false
	}
	e.tables.Products[0].Lowest += "9"
	return true
}

func extraCall(e *evidence) bool {
	i := slices.IndexFunc(e.record.Calls, func(c books.Call) bool { return c.Kind == books.KindShare && c.Answered })
	if i < 0 {
		return false
	}
	e.record.Calls = append(e.record.Calls, e.record.Calls[i])
	return true
}

func loseAlert(e *evidence) bool {
	if len(e.plan.MustTell) == 0 {
		return false
	}
	rule := e.plan.MustTell[0].Rule
	e.record.Told = slices.DeleteFunc(e.record.Told, func(t books.Told) bool { return t.Rule == rule })
	return true
}

func alertTwice(e *evidence) bool {
	i := slices.IndexFunc(e.record.Told, func(t books.Told) bool { return !t.Resolved })
	if i < 0 {
		return false
	}
	e.record.Told = append(e.record.Told, e.record.Told[i])
	return true
}
