package books_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/books"
)

// whole adds to the balanced run: coupons due, put off, redeemed and extended; a campaign
// of 60 products that a second event went on with and read a page again; and two alerts,
// one of them twice.
func whole() *evidence {
	e := balanced()
	e.plan.Country = "id"
	e.plan.Coupons = []books.Coupon{
		{ID: "c1", Fate: books.Due, Due: at(5)}, {ID: "c2", Fate: books.Due, Due: at(9), Extended: true},
		{ID: "c3", Fate: books.Redeemed, Due: at(5)}, {ID: "c4", Fate: books.Kept, Due: at(9000), Extended: true},
	}
	e.tables.Coupons = []books.CouponRow{{"c1", "EXPIRED"}, {"c2", "EXPIRED"}, {"c3", "USED"}, {"c4", "ACTIVE"}}
	e.tables.Expirations = []books.Expiration{
		{CouponID: "c1", From: "ISSUED", Due: at(5), At: at(5)}, {CouponID: "c2", From: "ACTIVE", Due: at(9), At: at(10)},
	}
	campaign := books.Campaign{ID: "7"}
	for i := range 60 {
		p := books.Product{ID: fmt.Sprint("p", i), Name: "Kopi", Lowest: "1.50", Highest: "2", Currency: "IDR", Commission: 100, Sales: i}
		campaign.Products = append(campaign.Products, p)
		e.tables.Products = append(e.tables.Products, books.ProductRow{CampaignID: "7", Product: p, Active: true, Link: "VALID"})
		e.call(books.KindShare, "", p.ID)
	}
	e.plan.Campaigns = []books.Campaign{campaign}
	e.call(books.KindList, "", "")
	for range 3 {
		e.call(books.KindProducts, "7", "")
	}
	e.call(books.KindLinks, "7", "")
	e.call(books.KindLinks, "7", "")
	e.event("campaign:id:7:r1", "id:7", "PUBLISHED")
	e.event("campaign:id:7:r1:n2", "id:7", "PUBLISHED")
	e.plan.MustTell = []books.MustTell{{Rule: "ConsumerLag", Since: at(3), Fault: "it was stopped"}}
	e.tell(4, "ConsumerLag", false, 1)
	e.tell(6, "ConsumerLag", true, 1)
	e.tell(2, "OutboxBacklog", false, 1)
	e.tell(3, "OutboxBacklog", true, 1)
	e.tell(7, "OutboxBacklog", false, 2)
	e.tell(8, "OutboxBacklog", true, 2)
	return e
}

func (e *evidence) call(kind, campaign, product string) {
	e.calls = append(e.calls, books.Call{Kind: kind, Campaign: campaign, Product: product, Answered: true})
}

func (e *evidence) tell(second int, rule string, resolved bool, episode int) {
	e.told = append(e.told, books.Told{At: at(second), Rule: rule, Resolved: resolved, Alert: "alert of " + rule, Episode: episode})
}

func (e *evidence) expire(id string, second int) {
	e.tables.Expirations = append(e.tables.Expirations, books.Expiration{CouponID: id, From: "ISSUED", Due: at(5), At: at(second)})
}

func TestCouponsCampaignsAndAlertsBalance(t *testing.T) {
	v := whole().check()
	require.True(t, v.Balanced(), "%+v", v.Imbalances)
	require.Equal(t, []int{2, 1, 1, 1, 1, 60, 66, 3}, []int{v.Totals.Expired, v.Totals.PutOff, v.Totals.Redeemed, v.Totals.Kept,
		v.Totals.Campaigns, v.Totals.Products, v.Totals.Calls, v.Totals.Alerts})
}

func TestPlantedImbalancesOfCouponsCampaignsAndAlerts(t *testing.T) {
	for name, plant := range map[string]struct {
		do      func(e *evidence)
		promise string
		names   string
	}{
		"a coupon did not expire": {func(e *evidence) {
			e.tables.Coupons[0].Status = "ISSUED"
			e.tables.Expirations = e.tables.Expirations[1:]
		},
			"EXPIRED, once", "coupon c1: ISSUED, 0 times"},
		"a coupon expired twice": {func(e *evidence) { e.expire("c1", 7) },
			"EXPIRED, once", "coupon c1: EXPIRED, 2 times"},
		"a coupon expired early": {func(e *evidence) { e.tables.Expirations[0].At = at(4) },
			"before its time", "coupon c1"},
		"a coupon expired at its old time": {func(e *evidence) { e.tables.Expirations[1].Due = at(5); e.tables.Expirations[1].At = at(6) },
			"before its time", "coupon c2"},
		"a redeemed coupon expired": {func(e *evidence) { e.tables.Coupons[2].Status = "EXPIRED"; e.expire("c3", 6) },
			"redeemed or extended", "coupon c3"},
		"a redeemed coupon is open again": {func(e *evidence) { e.tables.Coupons[2].Status = "ISSUED" },
			"redeemed or extended", "coupon c3"},
		"an extended coupon expired": {func(e *evidence) {
			e.tables.Coupons[3].Status = "EXPIRED"
			e.tables.Expirations = append(e.tables.Expirations, books.Expiration{CouponID: "c4", Due: at(9000), At: at(9001)})
		},
			"redeemed or extended", "coupon c4"},
		"a coupon is gone": {func(e *evidence) {
			e.tables.Coupons = e.tables.Coupons[1:]
			e.tables.Expirations = e.tables.Expirations[1:]
		},
			"EXPIRED, once", "coupon c1: no row"},
		"a coupon that nobody issued": {func(e *evidence) { e.expire("c9", 6) },
			"EXPIRED, once", "coupon c9"},
		"a product is missing": {func(e *evidence) { e.tables.Products = e.tables.Products[1:] },
			"row by row", "product p0 has no row"},
		"a product too many": {func(e *evidence) {
			e.tables.Products = append(e.tables.Products, books.ProductRow{CampaignID: "7", Product: books.Product{ID: "x"}})
		},
			"row by row", "product x is in the table only"},
		"another price":      {func(e *evidence) { e.tables.Products[5].Lowest = "1.5" }, "row by row", "product p5"},
		"marked as gone":     {func(e *evidence) { e.tables.Products[5].Active = false }, "row by row", "product p5"},
		"a link not checked": {func(e *evidence) { e.tables.Products[5].Link = "UNKNOWN" }, "row by row", "product p5"},
		"a page too often":   {func(e *evidence) { e.call(books.KindProducts, "7", "") }, "no more than the sync needs", "4 pages read, 3"},
		"links made again":   {func(e *evidence) { e.call(books.KindLinks, "7", "") }, "no more than the sync needs", "links were made 3 times, 2"},
		"a link seen twice":  {func(e *evidence) { e.call(books.KindShare, "", "p3") }, "no more than the sync needs", "product p3 was looked at 2 times"},
		"listed twice":       {func(e *evidence) { e.call(books.KindList, "", "") }, "no more than the sync needs", "listed 2 times"},
		"a rule is broken":   {func(e *evidence) { e.calls[0].Problem = "bad sign" }, "no more than the sync needs", "bad sign"},
		"nobody heard": {func(e *evidence) { e.told = e.told[2:] },
			"each fault that they must hear of", "it was stopped"},
		"heard before": {func(e *evidence) { e.told[0].At, e.told[1].At = at(1), at(2) },
			"each fault that they must hear of", "it was stopped"},
		"told twice":           {func(e *evidence) { e.tell(5, "ConsumerLag", false, 1) }, "told once and resolved once", "told 2 times, resolved 1"},
		"never resolved":       {func(e *evidence) { e.told = e.told[:5] }, "told once and resolved once", "episode 2: told 1 times, resolved 0"},
		"resolved and no more": {func(e *evidence) { e.told = e.told[1:]; e.plan.MustTell = nil }, "told once and resolved once", "told 0 times, resolved 1"},
		"a card lacks a trace": {func(e *evidence) { e.told[0].Lacks = "trace or request" }, "a card names", "trace or request"},
	} {
		t.Run(name, func(t *testing.T) {
			e := whole()
			plant.do(e)
			v := e.check()
			require.Len(t, v.Imbalances, 1, "%+v", v.Imbalances)
			require.Contains(t, v.Imbalances[0].Promise, plant.promise)
			require.Contains(t, strings.Join(v.Imbalances[0].Cases, "\n"), plant.names)
		})
	}
}

// A campaign without products is asked for once; what was refused does not count.
func TestCallsThatAreNeeded(t *testing.T) {
	e := balanced()
	e.plan.Campaigns = []books.Campaign{{ID: "8"}}
	e.call(books.KindProducts, "8", "")
	e.calls = append(e.calls, books.Call{Kind: books.KindProducts, Campaign: "8"})
	require.True(t, e.check().Balanced())
	e.call(books.KindProducts, "8", "")
	require.False(t, e.check().Balanced())
}
