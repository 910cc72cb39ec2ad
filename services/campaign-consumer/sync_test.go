package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

func TestACampaignIsSynced(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBenchOn(t, s, tiktokfake.Options{})
		c := tiktokfake.NewCampaign(1, 120)
		c.Products[0].ID, c.Products[1].ID = "9007199254740993", "9223372036854775807"
		c.Products[2].Lowest, c.Products[2].Inventory, c.Products[2].Commission, c.Products[2].Available = "0.10", 0, 0, false
		c.Products[3].FailLinks = 1
		b.fake.Add(c)
		p := b.pod(t)
		b.start(t, p, "r1", c.ID)
		require.Equal(t, eventbus.VerdictDone, handle(t, p, c.ID, "r1").Verdict)
		require.Equal(t, "DONE complete 120 gone=0", squeeze(b.round(t, c.ID)))
		require.EqualValues(t, 120, b.count(t, "active = 1"))
		require.EqualValues(t, 119, b.count(t, "link_status = 'VALID' AND share_link IS NOT NULL AND link_checked_at IS NOT NULL"))
		require.EqualValues(t, 1, b.count(t, "product_id = ? AND share_link IS NULL AND link_status = 'UNKNOWN'", c.Products[3].ID))
		for _, id := range []string{"9007199254740993", "9223372036854775807"} {
			require.EqualValues(t, 1, b.count(t, "product_id = ? AND share_link LIKE 'https://affiliate.tiktok.com/api/v1/share/%'", id))
		}
		require.EqualValues(t, 1, b.count(t, "product_id = ? AND lowest_price = '0.10' AND inventory = 0 AND total_commission_bp = 0 AND available = 0", c.Products[2].ID))
		require.EqualValues(t, 1, b.count(t, "product_id = ? AND lowest_price = '10005.50' AND highest_price = '20005' AND currency = 'IDR' AND total_commission_bp = 1005 AND title = 'Kopi Susu 1-5 ☕'", c.Products[5].ID))
		counts := b.fake.Counts()
		require.Equal(t, 3, counts[tiktokfake.CallProducts])
		require.Equal(t, 3, counts[tiktokfake.CallLinks])
		require.Equal(t, 119, counts[tiktokfake.CallShare])
		require.Empty(t, b.fake.Problems())

		require.Equal(t, eventbus.VerdictDone, handle(t, p, c.ID, "r1").Verdict, "a replay is done, and does nothing")
		require.Len(t, b.fake.Requests(), counts[tiktokfake.CallAssets]+3+3+119)
		require.Equal(t, eventbus.VerdictSkip, handle(t, p, c.ID, "r0").Verdict)
		require.Equal(t, eventbus.VerdictSkip, handle(t, p, "1", "r1").Verdict)
	})
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// Only our own columns are written, all of them, zero values too; links that exist stay.
func TestUpsertTouchesItsOwnColumnsOnly(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBenchOn(t, s, tiktokfake.Options{})
		c := tiktokfake.NewCampaign(1, 10)
		b.fake.Add(c)
		p := b.pod(t)
		b.start(t, p, "r1", c.ID)
		finish(t, p, c.ID, "r1")
		link := b.text(t, "SELECT share_link FROM tiktok_partner_campaign_products WHERE product_id = ?", c.Products[1].ID)
		s.Exec(t, "UPDATE tiktok_partner_campaign_products SET pinned = 1, operator_note = 'keep' WHERE product_id = ?", c.Products[1].ID)
		s.Exec(t, "UPDATE tiktok_partner_campaign_products SET active = 0 WHERE product_id = ?", c.Products[2].ID)
		// To the app, an empty text may be no link as well.
		s.Exec(t, "UPDATE tiktok_partner_campaign_products SET share_link = '' WHERE product_id = ?", c.Products[3].ID)
		b.fake.Change(c.ID, func(c *tiktokfake.Campaign) {
			q := c.Products[1]
			q.Lowest, q.Inventory, q.Sales, q.Available, q.Name, q.Commission = "0", 0, 0, false, "", 0
		})
		b.start(t, p, "r2", c.ID)
		finish(t, p, c.ID, "r2")
		require.EqualValues(t, 1, b.count(t, `product_id = ? AND pinned = 1 AND operator_note = 'keep' AND lowest_price = '0' AND inventory = 0
			AND sales = 0 AND available = 0 AND title = '' AND total_commission_bp = 0 AND share_link = ?`, c.Products[1].ID, link))
		require.EqualValues(t, 10, b.count(t, "active = 1"), "a row that came back is active again")
		require.EqualValues(t, 1, b.count(t, "product_id = ? AND share_link LIKE 'https://%'", c.Products[3].ID))
		require.Equal(t, 2, b.fake.Counts()[tiktokfake.CallLinks], "once for each that has none")
		b.start(t, p, "r3", c.ID)
		finish(t, p, c.ID, "r3")
		require.Equal(t, 2, b.fake.Counts()[tiktokfake.CallLinks], "links are made once")
	})
}

// A reason that is cut in the middle of a character is one that the column would refuse.
func TestReasonsFitTheirColumn(t *testing.T) {
	require.Equal(t, strings.Repeat("x", 499), short(strings.Repeat("x", 499)+"ö and more"))
	require.Equal(t, "ab", short("a\xffb"))
}

// One whole round that misses a product decides nothing; a second one does. Cut, short,
// truncated and failed rounds never do.
func TestGoneTakesWholeRounds(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	c := tiktokfake.NewCampaign(1, 130)
	b.fake.Add(c)
	p := b.pod(t)
	rounds := 0
	run := func() string {
		rounds++
		id := fmt.Sprint("r", rounds)
		b.start(t, p, id, c.ID)
		finish(t, p, c.ID, id)
		return squeeze(b.round(t, c.ID))
	}
	require.Equal(t, "DONE complete 130 gone=0", run())
	lost := c.Products[7].ID
	b.fake.Change(c.ID, func(c *tiktokfake.Campaign) { c.Products = append(c.Products[:7:7], c.Products[8:]...) })
	for paging, want := range map[tiktokfake.Paging]string{
		tiktokfake.PagingCut:     "DONE 50 gone=0",
		tiktokfake.PagingRepeat:  "DONE truncated 50 gone=0",
		tiktokfake.PagingEndless: "DONE truncated 50 gone=0",
	} {
		b.fake.Change(c.ID, func(c *tiktokfake.Campaign) { c.Paging = paging })
		for range 3 {
			require.Equal(t, want, run(), paging)
		}
	}
	b.fake.Change(c.ID, func(c *tiktokfake.Campaign) { c.Paging = tiktokfake.PagingFine })
	b.fake.Program(tiktokfake.Rule{Call: tiktokfake.CallProducts, Skip: 1, Status: 500, Body: "oops"})
	require.Contains(t, run(), "FAILED")
	b.fake.Unprogram()
	require.EqualValues(t, 130, b.count(t, "active = 1"))

	require.Equal(t, "DONE complete 129 gone=0", run())
	require.EqualValues(t, 130, b.count(t, "active = 1"), "one miss is not enough")
	require.Equal(t, "DONE complete 129 gone=1", run())
	require.EqualValues(t, 1, b.count(t, "active = 0 AND product_id = ?", lost))
	require.Equal(t, "DONE complete 129 gone=0", run())
}

// A list that shifts between pages shows some products twice and others not at all: no
// product of the campaign is called gone for it.
func TestAShiftingListDeactivatesNothing(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	c := tiktokfake.NewCampaign(1, 200)
	c.Paging = tiktokfake.PagingDrift
	b.fake.Add(c)
	p := b.pod(t)
	for i := range 6 {
		id := fmt.Sprint("r", i)
		b.start(t, p, id, c.ID)
		finish(t, p, c.ID, id)
	}
	active := map[string]bool{}
	b.fake.Change(c.ID, func(c *tiktokfake.Campaign) {
		for _, q := range c.Products {
			active[q.ID] = true
		}
	})
	for id := range active {
		require.Zero(t, b.count(t, "product_id = ? AND active = 0", id))
	}
}

func TestADeadPageTokenStartsTheCampaignAgainOnce(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	c := tiktokfake.NewCampaign(1, 120)
	c.Paging = tiktokfake.PagingDead
	b.fake.Add(c)
	p := b.pod(t)
	b.start(t, p, "r1", c.ID)
	finish(t, p, c.ID, "r1")
	require.Equal(t, "DONE complete 120 gone=0", squeeze(b.round(t, c.ID)))
	require.Equal(t, 5, b.fake.Counts()[tiktokfake.CallProducts])
	require.Equal(t, 120, b.fake.Counts()[tiktokfake.CallShare], "looks of this round are not repeated")
}

func TestCapsOfARun(t *testing.T) {
	b := newBench(t, tiktokfake.Options{}, func(c *Config) { c.PageSize, c.LinkFresh = 1, time.Hour })
	c := tiktokfake.NewCampaign(1, 103)
	b.fake.Add(c)
	p := b.pod(t)
	b.start(t, p, "r1", c.ID)
	finish(t, p, c.ID, "r1")
	require.Equal(t, "DONE truncated 100 gone=0", squeeze(b.round(t, c.ID)))
	require.Equal(t, maxProductPages, b.fake.Counts()[tiktokfake.CallProducts])
	require.Equal(t, "more than 100 pages", b.text(t, "SELECT last_error FROM mq_campaign_round"))
	require.Equal(t, "more than 5000 products", cutBy(cursor{token: "x", pages: 50, products: 5000}, nil))
	require.Empty(t, cutBy(cursor{pages: 100, products: 5000}, nil))

	b.start(t, p, "r2", c.ID)
	finish(t, p, c.ID, "r2")
	require.Equal(t, 100, b.fake.Counts()[tiktokfake.CallShare], "a link that is fresh is not looked at again")
}

// A slice that ends in the middle of a page keeps what it did: the next one looks at
// the rest, whoever it is.
func TestSlicesGoOnWhereTheLastEnded(t *testing.T) {
	b := newBench(t, tiktokfake.Options{LinkDelay: 20 * time.Millisecond}, func(c *Config) {
		c.Slice, c.LinkParallel = 150*time.Millisecond, 2
	})
	c := tiktokfake.NewCampaign(1, 100)
	b.fake.Add(c)
	pods := []*poller{b.pod(t), b.pod(t)}
	b.start(t, pods[0], "r1", c.ID)
	slices := 0
	testenv.Eventually(t, 60*time.Second, "the round ends", func() bool {
		slices++
		require.Equal(t, eventbus.VerdictDone, handle(t, pods[slices%2], c.ID, "r1").Verdict)
		return strings.HasPrefix(b.round(t, c.ID), "DONE")
	})
	require.Greater(t, slices, 3)
	require.Equal(t, "DONE complete 100 gone=0", squeeze(b.round(t, c.ID)))
	require.Equal(t, 100, b.fake.Counts()[tiktokfake.CallShare])
	require.Equal(t, 2, b.fake.Counts()[tiktokfake.CallLinks], "links of a cut page are kept")
	require.EqualValues(t, slices-1, b.s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE event_type = 'CAMPAIGN_PRODUCT_SYNC' AND event_id LIKE ?", "campaign:id:"+c.ID+":r1:a%"))
}

// A slice ends between two pages, so that none is asked for twice.
func TestASliceBeginsNoPageThatItMayNotEnd(t *testing.T) {
	b := newBench(t, tiktokfake.Options{LinkDelay: 60 * time.Millisecond}, func(c *Config) { c.Slice, c.LinkParallel = 4*time.Second, 10 })
	c := tiktokfake.NewCampaign(1, 10*b.cfg.PageSize)
	b.fake.Add(c)
	p := b.pod(t)
	b.start(t, p, "r1", c.ID)
	slices := 0
	testenv.Eventually(t, 60*time.Second, "the round ends", func() bool {
		slices++
		require.Equal(t, eventbus.VerdictDone, handle(t, p, c.ID, "r1").Verdict)
		return strings.HasPrefix(b.round(t, c.ID), "DONE")
	})
	require.Greater(t, slices, 1)
	require.Equal(t, 10, b.fake.Counts()[tiktokfake.CallProducts])
}

// A worker that was frozen in the middle of a page finds its writes refused.
func TestALateWriteIsRefusedByTheFence(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBenchOn(t, s, tiktokfake.Options{}, func(c *Config) { c.Lease = time.Second })
		c := tiktokfake.NewCampaign(1, 60)
		b.fake.Add(c)
		p := b.pod(t)
		b.start(t, p, "r1", c.ID)
		late, _, err := p.store.leaseRound(t.Context(), c.ID, "r1", "late", time.Second)
		require.NoError(t, err)
		out := handle(t, p, c.ID, "r1")
		require.Equal(t, eventbus.VerdictRetry, out.Verdict, "held by another")
		require.NoError(t, out.Err, "waiting is no failure")
		time.Sleep(1100 * time.Millisecond)
		finish(t, p, c.ID, "r1")
		before := b.rows(t)
		old := []*entry{{product: product{ID: idText(c.Products[0].ID), Name: "stale"}}}
		require.ErrorIs(t, p.store.save(t.Context(), late, time.Second, old, &cursor{token: "x"}, 2), errFenced)
		require.ErrorIs(t, p.store.renew(t.Context(), late, time.Second), errFenced)
		require.ErrorIs(t, p.store.restart(t.Context(), late), errFenced)
		require.ErrorIs(t, p.store.giveBack(t.Context(), late, 0, nil, true), errFenced)
		require.ErrorIs(t, p.store.fail(t.Context(), late, errSliceOver), errFenced)
		_, err = p.store.finish(t.Context(), late, "", 1)
		require.ErrorIs(t, err, errFenced)
		require.Equal(t, before, b.rows(t))
		require.Equal(t, "DONE complete 60 gone=0", squeeze(b.round(t, c.ID)))
		require.Zero(t, s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"))
	})
}

// An order to stop gives the campaign back at once, with an event.
func TestStopGivesTheCampaignBack(t *testing.T) {
	b := newBench(t, tiktokfake.Options{LinkDelay: 30 * time.Millisecond}, func(c *Config) { c.LinkParallel = 1 })
	c := tiktokfake.NewCampaign(1, 100)
	b.fake.Add(c)
	p := b.pod(t)
	b.start(t, p, "r1", c.ID)
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, stop)
	began := time.Now()
	require.Equal(t, eventbus.VerdictDone, p.Handle(ctx, c.ID, delivery(t, c.ID, "r1", 1)).Verdict)
	require.Less(t, time.Since(began), 3*time.Second)
	require.Equal(t, "PENDING", strings.Fields(b.round(t, c.ID))[0])
	require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"))
	require.EqualValues(t, 50, b.count(t, "share_link IS NOT NULL"), "links of the cut page are kept")
}

// A campaign that was taken from a worker in the middle of its work ends that work, and
// a poll that loses its lock gives the campaign back.
func TestWhoLosesTheCampaignStops(t *testing.T) {
	t.Parallel()
	b := newBench(t, tiktokfake.Options{LinkDelay: 30 * time.Millisecond}, func(c *Config) { c.LinkParallel, c.Lease = 1, time.Second })
	c := tiktokfake.NewCampaign(1, 700)
	b.fake.Add(c)
	p := b.pod(t)
	b.start(t, p, "r1", c.ID)
	out := make(chan eventbus.Outcome, 1)
	go func() { out <- p.Handle(t.Context(), c.ID, delivery(t, c.ID, "r1", 1)) }()
	testenv.Eventually(t, 10*time.Second, "it is at work", func() bool { return strings.HasPrefix(b.round(t, c.ID), "RUNNING") })
	time.Sleep(200 * time.Millisecond)
	b.s.Exec(t, "UPDATE mq_campaign_round SET fence = fence + 1, owner = 'another', lease_until = "+now+" + INTERVAL 1 HOUR")
	select {
	case got := <-out:
		require.Equal(t, eventbus.VerdictDone, got.Verdict, "an hour is waited for by a delayed event")
	case <-time.After(10 * time.Second):
		t.Fatal("it still works")
	}
	require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event"))

	b.s.Exec(t, "UPDATE mq_campaign_round SET lease_until = "+now)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		_, _ = p.Poll(t.Context(), everything())
	}()
	testenv.Eventually(t, 10*time.Second, "the poll has it", func() bool {
		return b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_campaign_round WHERE state = 'RUNNING' AND owner <> 'another'") == 1
	})
	b.s.Exec(t, "UPDATE mq_lease SET owner = 'another', fence = fence + 1 WHERE name LIKE 'campaign-sync:%'")
	select {
	case <-lost:
	case <-time.After(pollLease):
		t.Fatal("the poll goes on without its lock")
	}
	require.Equal(t, "PENDING", strings.Fields(b.round(t, c.ID))[0])
}

// A process that freezes in the middle of a write holds the row's lock, though not for
// longer than its lease: then another takes the campaign over.
func TestAFrozenWriteFreesTheCampaign(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBenchOn(t, s, tiktokfake.Options{}, func(c *Config) { c.Lease = 4 * time.Second })
		c := tiktokfake.NewCampaign(1, 60)
		b.fake.Add(c)
		frozen, p := b.pod(t), b.pod(t)
		b.start(t, p, "r1", c.ID)
		r, _, err := frozen.store.leaseRound(t.Context(), c.ID, "r1", "frozen", b.cfg.Lease)
		require.NoError(t, err)
		tx := frozen.store.db.Begin()
		require.NoError(t, frozen.store.hold(tx, r, b.cfg.Lease))
		testenv.Eventually(t, 3*b.cfg.Lease, "another does it", func() bool {
			handle(t, p, c.ID, "r1")
			return strings.HasPrefix(b.round(t, c.ID), "DONE")
		})
		require.Error(t, tx.Exec("UPDATE mq_campaign_round SET page_token = 'late'").Error)
		require.Error(t, tx.Commit().Error)
		require.Equal(t, "DONE complete 60 gone=0", squeeze(b.round(t, c.ID)))
	})
}
