package e2e

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

// campaignSlice is long enough for the small campaigns of the scenarios, so that each is
// one event; the lease must outlast a slice, one request and the last write.
const (
	campaignSlice   = 8 * time.Second
	campaignTimeout = 2 * time.Second
	campaignLease   = 15 * time.Second
)

func campaignEnv() map[string]string {
	return map[string]string{
		"SEAHUB_TIKTOK_RATE":           "1000",
		"SEAHUB_TIKTOK_RATE_MAX":       "1000",
		"SEAHUB_TIKTOK_TIMEOUT":        campaignTimeout.String(),
		"SEAHUB_CAMPAIGN_LINK_RATE":    "5000",
		"SEAHUB_CAMPAIGN_LINK_TIMEOUT": campaignTimeout.String(),
		"SEAHUB_CAMPAIGN_EVERY":        "1h",
		"SEAHUB_CAMPAIGN_POLL_EVERY":   pollEvery.String(),
		"SEAHUB_CAMPAIGN_OVERDUE_BY":   overdueBy.String(),
		"SEAHUB_CAMPAIGN_LEASE":        campaignLease.String(),
		"SEAHUB_CAMPAIGN_SLICE":        campaignSlice.String(),
		"SEAHUB_CAMPAIGN_RETRY_BASE":   "200ms",
		"SEAHUB_CAMPAIGN_RETRY_MAX":    "2s",
		"SEAHUB_BUS_HANDLER_TIMEOUT":   campaignLease.String(),
	}
}

// campaignSubject: a piece of work is a campaign that the platform lists once, so that it
// has one round. Its effect is a look at its page. Links are made for its products once,
// whatever is repeated.
func campaignSubject() subject {
	return subject{
		service: "campaign-consumer", flag: "campaign-sync", overdueBy: overdueBy, announced: true, env: campaignEnv(),
		statusSQL: "SELECT state FROM mq_campaign_round WHERE campaign_id = ?", final: "DONE",
		doneSQL: "SELECT COUNT(*) FROM mq_campaign_round WHERE state = 'DONE'", atMost: 10,
		patient: map[string]string{"SEAHUB_CAMPAIGN_OVERDUE_BY": patience.String()},
		prepare: func(w *world) {
			w.offered = map[string]bool{}
			ctx, cancel := context.WithCancel(w.t.Context())
			var listing sync.WaitGroup
			listing.Go(func() { w.list(ctx) })
			w.t.Cleanup(func() { cancel(); listing.Wait() })
		},
		one: func(w *world) string { return w.offer() },
		writer: func(w *world) func(context.Context) {
			return func(context.Context) { w.offer() }
		},
		undone:    undoneCampaign,
		aggregate: func(id string) string { return event.CampaignAggregateID(stack.Country, id) },
		onceEach: func(w *world, ids ...string) {
			for _, id := range ids {
				require.Equal(w.t, 1, w.answered(tiktokfake.CallLinks, id), "campaign %s", id)
				require.Equal(w.t, campaignProducts, w.count(`SELECT COUNT(*) FROM tiktok_partner_campaign_products
					WHERE campaign_id = ? AND active = 1 AND link_status = 'VALID'`, id), "campaign %s", id)
			}
			require.Empty(w.t, w.TikTok.Problems())
		},
		effects: func(w *world) int { return w.answered(tiktokfake.CallProducts) },
		disturb: func(w *world) {
			w.TikTok.Program(tiktokfake.Rule{Call: tiktokfake.CallProducts, Status: 500, Message: "later", Times: 3})
		},
		fails: func(w *world) { w.exec("RENAME TABLE mq_campaign_product TO mq_campaign_product_gone") },
		mends: func(w *world) { w.exec("RENAME TABLE mq_campaign_product_gone TO mq_campaign_product") },
	}
}

// campaignProducts is how many products a campaign has.
const campaignProducts = 2

// offer makes the platform list one more campaign.
func (w *world) offer() string {
	c := tiktokfake.NewCampaign(int(w.ids.Add(1)), campaignProducts)
	w.TikTok.Add(c)
	w.remember(c.ID)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offered[c.ID] = true
	return c.ID
}

// list makes the next listing come at once while campaigns wait for one, and takes those
// off the list that had theirs. A listing that is under way when the next one is asked
// for leaves that unheard, and one that has begun rounds asks for no other: no campaign
// is listed twice.
func (w *world) list(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
		w.mu.Lock()
		open := slices.Collect(maps.Keys(w.offered))
		w.mu.Unlock()
		if len(open) == 0 {
			continue
		}
		in := "campaign_id IN ('" + strings.Join(open, "','") + "')"
		rows, err := w.DB.QueryContext(ctx, "SELECT campaign_id FROM mq_campaign_round WHERE "+in)
		if err != nil {
			continue // the test says so itself, if it is not meant to be
		}
		for rows.Next() {
			var id string
			if rows.Scan(&id) == nil {
				w.withdraw(id)
			}
		}
		if rows.Close() != nil || rows.Err() != nil {
			continue
		}
		w.mu.Lock()
		open = slices.Collect(maps.Keys(w.offered))
		w.mu.Unlock()
		if len(open) == 0 {
			continue
		}
		in = "campaign_id IN ('" + strings.Join(open, "','") + "')"
		_, _ = w.DB.ExecContext(ctx, `UPDATE mq_campaign_listing SET due_at = NOW(3)
			WHERE due_at > NOW(3) AND NOT EXISTS (SELECT 1 FROM mq_campaign_round WHERE `+in+`)`)
	}
}

// withdraw takes a campaign off the platform's list.
func (w *world) withdraw(id string) {
	w.TikTok.Change(id, func(c *tiktokfake.Campaign) { c.Status = "CLOSED" })
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.offered, id)
}

// answered counts the calls of a kind that got what they asked for, of one campaign or of all.
func (w *world) answered(call tiktokfake.Call, campaign ...string) (n int) {
	for _, r := range w.TikTok.Requests() {
		if r.Call == call && r.Status == 200 && r.Code == 0 && (len(campaign) == 0 || r.Campaign == campaign[0]) {
			n++
		}
	}
	return n
}

// undoneCampaign is one whose round the database takes back, since its event could not be
// written beside it.
func undoneCampaign(w *world) string {
	w.exec(`CREATE TRIGGER refuse BEFORE INSERT ON outbox_event FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by the test'`)
	id := w.offer()
	testenv.Eventually(w.t, soon, "the listing fails", func() bool {
		return w.count("SELECT COALESCE(MAX(failures), 0) FROM mq_campaign_listing") > 0
	})
	require.Empty(w.t, w.statusOf(id), "neither the round nor the event is there")
	w.withdraw(id)
	w.exec("DROP TRIGGER refuse")
	return id
}
