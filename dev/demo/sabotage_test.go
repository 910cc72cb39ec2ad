package demo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/books"
	"github.com/seahub/seahub-mq/dev/demo"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
	"github.com/seahub/seahub-mq/pkg/testenv/feishufake"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

// run is the evidence of a small good run: a push to a live and a dead device, one that
// was rolled back, coupons of each fate, a campaign, and an alert.
func run() (books.Plan, books.Tables, books.Record) {
	plan := books.Plan{
		Committed:  []books.Commit{{PushID: "p1", UserID: "u1", Text: "hello"}},
		RolledBack: []string{"r1"},
		DeadTokens: []string{"dead"},
	}
	tables := books.Tables{
		Pushes:    []books.PushRow{{ID: "p1", UserID: "u1", Status: "SENT"}},
		Devices:   []books.DeviceRow{{ID: "d1", UserID: "u1", Token: "live", Active: true}, {ID: "d2", UserID: "u1", Token: "dead"}},
		Events:    []books.EventRow{{EventID: "push:p1", AggregateID: "p1", Status: "PUBLISHED"}},
		Fallbacks: []books.Fallback{{Task: "push-dispatch", Instance: "one"}},
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	plan.Country = "id"
	plan.Coupons = []books.Coupon{{ID: "c1", Fate: books.Due, Due: at}, {ID: "c2", Fate: books.Redeemed, Due: at},
		{ID: "c3", Fate: books.Kept, Due: at.Add(time.Hour), Extended: true}}
	tables.Coupons = []books.CouponRow{{ID: "c1", Status: "EXPIRED"}, {ID: "c2", Status: "USED"}, {ID: "c3", Status: "ISSUED"}}
	tables.Expirations = []books.Expiration{{CouponID: "c1", From: "ISSUED", Due: at, At: at}}
	product := books.Product{ID: "p", Name: "Kopi", Lowest: "1", Highest: "2", Currency: "IDR"}
	plan.Campaigns = []books.Campaign{{ID: "7", Products: []books.Product{product}}}
	tables.Products = []books.ProductRow{{CampaignID: "7", Product: product, Active: true, Link: "VALID"}}
	plan.MustTell = []books.MustTell{{Rule: "ConsumerLag", Since: at, Fault: "it was stopped"}}
	card := "id-test id\ntask: x\nvalue: 3s\nsince: now\nrequest: sweep-1\nalert: abc, episode 1\nrunbook"
	var record books.Record
	record.Told = demo.Told([]feishufake.Message{
		{At: at.Add(time.Second), Title: "[critical][id] ConsumerLag", Text: card},
		{At: at.Add(2 * time.Second), Title: "[resolved][id] ConsumerLag", Text: card},
	})
	record.Calls = demo.Calls([]tiktokfake.Request{
		{Call: tiktokfake.CallCampaigns, Status: 200}, {Call: tiktokfake.CallProducts, Campaign: "7", Status: 500},
		{Call: tiktokfake.CallProducts, Campaign: "7", Status: 200}, {Call: tiktokfake.CallLinks, Campaign: "7", Status: 200},
		{Call: tiktokfake.CallShare, Product: "p", Status: 302},
	})
	record.Requests = demo.Record([]fcmfake.Request{
		{At: at, Token: "live", CollapseID: "p1", Tag: "p1", Body: "hello", Verdict: "ambiguous-close", Accepted: true},
		{At: at.Add(time.Second), Token: "live", CollapseID: "p1", Tag: "p1", Body: "hello", Verdict: "accept", Accepted: true},
		{At: at, Token: "dead", CollapseID: "p1", Tag: "p1", Body: "hello", Verdict: "unregistered"},
	})
	return plan, tables, record
}

func TestTheGoodRunBalances(t *testing.T) {
	plan, tables, record := run()
	v, err := demo.Judge("", plan, tables, record)
	require.NoError(t, err)
	require.True(t, v.Balanced(), "%+v", v.Imbalances)
}

func TestEverySabotageIsCaught(t *testing.T) {
	for _, s := range demo.Sabotages() {
		t.Run(s.Name, func(t *testing.T) {
			plan, tables, record := run()
			v, err := demo.Judge(s.Name, plan, tables, record)
			require.NoError(t, err)
			require.False(t, v.Balanced())
		})
	}
}
