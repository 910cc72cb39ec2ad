package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

// campaignLease is how soon the campaign of a pod that died is taken over: a lease must
// outlast a slice, one request and the last write.
const campaignLease = 10 * time.Second

// newCampaignWorld is a system for campaign-consumer. Its work comes from the platform
// and not from a transaction of the app's, and comes again with every round, so that it
// has scenarios of its own.
func newCampaignWorld(t *testing.T, link time.Duration, campaigns ...*tiktokfake.Campaign) *world {
	t.Helper()
	sub := subject{
		service: "campaign-consumer", flag: "campaign-sync", overdueBy: overdueBy,
		env: map[string]string{
			"SEAHUB_TIKTOK_RATE":           "1000",
			"SEAHUB_TIKTOK_RATE_MAX":       "1000",
			"SEAHUB_TIKTOK_TIMEOUT":        "4s",
			"SEAHUB_CAMPAIGN_LINK_RATE":    "5000",
			"SEAHUB_CAMPAIGN_EVERY":        "1h",
			"SEAHUB_CAMPAIGN_POLL_EVERY":   pollEvery.String(),
			"SEAHUB_CAMPAIGN_OVERDUE_BY":   overdueBy.String(),
			"SEAHUB_CAMPAIGN_LEASE":        campaignLease.String(),
			"SEAHUB_CAMPAIGN_SLICE":        "400ms",
			"SEAHUB_CAMPAIGN_RETRY_BASE":   "200ms",
			"SEAHUB_CAMPAIGN_RETRY_MAX":    "2s",
			"SEAHUB_BUS_HANDLER_TIMEOUT":   "12s",
			"SEAHUB_CAMPAIGN_LINK_TIMEOUT": "4s",
		},
	}
	w := newWorldOf(t, sub, func(o *stack.Options) { o.TikTok.LinkDelay = link })
	w.TikTok.Add(campaigns...)
	return w
}

// rounds counts the rounds in a state.
func (w *world) rounds(state string) int {
	return w.count("SELECT COUNT(*) FROM mq_campaign_round WHERE state = ?", state)
}

func (w *world) awaitRounds(bound time.Duration, n int) {
	w.t.Helper()
	testenv.Eventually(w.t, bound, fmt.Sprintf("%d campaigns are synced", n), func() bool {
		return w.count("SELECT COUNT(*) FROM mq_campaign_round WHERE state = 'DONE' AND complete = 1") == n
	})
}

// inStep demands that the app's table is what the platform has, and nothing is gone.
func (w *world) inStep(campaigns ...*tiktokfake.Campaign) {
	w.t.Helper()
	for _, c := range campaigns {
		require.Equal(w.t, len(c.Products), w.count(`SELECT COUNT(*) FROM tiktok_partner_campaign_products
			WHERE campaign_id = ? AND active = 1 AND link_status = 'VALID'`, c.ID))
	}
	require.Zero(w.t, w.count("SELECT COUNT(*) FROM tiktok_partner_campaign_products WHERE active = 0"))
	require.Empty(w.t, w.TikTok.Problems())
}

func campaignsOf(sizes ...int) []*tiktokfake.Campaign {
	var out []*tiktokfake.Campaign
	for i, n := range sizes {
		out = append(out, tiktokfake.NewCampaign(i, n))
	}
	return out
}

// Kill -9 in the middle of a campaign: another pod goes on at the cursor, one page at
// most is asked for again, and nothing is marked as gone.
func TestCampaignSurvivesItsPod(t *testing.T) {
	campaigns := campaignsOf(500)
	w := newCampaignWorld(t, 20*time.Millisecond, campaigns...)
	w.Env["SEAHUB_CAMPAIGN_LINK_PARALLEL"] = "2"
	w.Env["SEAHUB_CAMPAIGN_SLICE"] = "1m" // one event would do it all
	w.Env["SEAHUB_CAMPAIGN_LEASE"] = "70s"
	w.Env["SEAHUB_BUS_HANDLER_TIMEOUT"] = "70s"
	w.flagSince()
	w.relay("relay-1")
	first := w.consumer("consume-1", "consume")
	w.consumer("poll-1", "poll")
	testenv.Eventually(t, soon, "the campaign is in its third page", func() bool {
		return w.count("SELECT COALESCE(MAX(pages), 0) FROM mq_campaign_round") >= 2
	})
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, first.Kill())
	before := w.count("SELECT pages FROM mq_campaign_round")
	fence := w.count("SELECT fence FROM mq_campaign_round")
	pagesBefore := w.TikTok.Counts()[tiktokfake.CallProducts]
	// A lease that lasts a minute would be waited for; it ends now, as it would then.
	w.exec("UPDATE mq_campaign_round SET lease_until = NOW(3)")
	w.consumer("consume-2", "consume")
	w.awaitRounds(3*soon, 1)
	require.Greater(t, w.count("SELECT fence FROM mq_campaign_round"), fence)
	require.LessOrEqual(t, w.TikTok.Counts()[tiktokfake.CallProducts], 11, "one page at most came twice")
	require.Less(t, pagesBefore, 10)
	require.Less(t, before, 10)
	w.inStep(campaigns...)

	// What the dead one would still write carries an old fence: its statement finds no row.
	res, err := w.DB.ExecContext(t.Context(), "UPDATE mq_campaign_round SET page_token = 'late' WHERE fence = ? AND state = 'RUNNING'", fence)
	require.NoError(t, err)
	n, err := res.RowsAffected()
	require.NoError(t, err)
	require.Zero(t, n)
}

// The same with a lease that runs out by itself, a frozen pod and one that thaws: what
// it still writes is refused, and the table is as if it had never thawed.
func TestAFrozenPodChangesNothingWhenItThaws(t *testing.T) {
	campaigns := campaignsOf(200, 120)
	w := newCampaignWorld(t, 10*time.Millisecond, campaigns...)
	w.Env["SEAHUB_CAMPAIGN_LINK_PARALLEL"] = "2"
	w.flagSince()
	w.relay("relay-1")
	first := w.consumer("consume-1", "consume")
	w.consumer("poll-1", "poll")
	testenv.Eventually(t, soon, "it is at work", func() bool { return w.rounds("RUNNING") > 0 && w.count("SELECT MAX(pages) FROM mq_campaign_round") > 0 })
	require.NoError(t, first.Freeze())
	w.consumer("consume-2", "consume")
	w.awaitRounds(3*soon, 2)
	before := w.count("SELECT COUNT(*) FROM tiktok_partner_campaign_products")
	w.inStep(campaigns...)
	require.NoError(t, first.Thaw())
	time.Sleep(2 * time.Second)
	w.inStep(campaigns...)
	require.Equal(t, before, w.count("SELECT COUNT(*) FROM tiktok_partner_campaign_products"))
	require.Equal(t, 2, w.rounds("DONE"))
}

// Flag off: the poll alone does it all, with the broker down, and writes no event.
func TestCampaignsByTheOldPoll(t *testing.T) {
	campaigns := campaignsOf(10, 0, 60)
	w := newCampaignWorld(t, 0, campaigns...)
	require.NoError(t, w.Redis.Kill())
	w.relay("relay-1")
	w.consumer("consume-1", "consume")
	poll := w.consumer("poll-1", "poll")
	w.awaitRounds(soon, 3)
	w.inStep(campaigns...)
	require.Zero(t, w.count("SELECT COUNT(*) FROM outbox_event"))
	require.Zero(t, w.fallbackRuns())
	w.readyReason(poll)
	require.NoError(t, w.Redis.Restart(t.Context()))
}

// Nobody consumes: the poll steps in for what is overdue, once, and steps back.
func TestCampaignFallback(t *testing.T) {
	campaigns := campaignsOf(5, 5, 5, 5)
	w := newCampaignWorld(t, 0, campaigns...)
	w.Env["SEAHUB_CAMPAIGN_EVERY"] = "2s"
	w.flagSince()
	w.relay("relay-1")
	poll := w.consumer("poll-1", "poll")
	testenv.Eventually(t, 3*soon, "the fallback is active", func() bool { return w.fallbackRuns() == 1 })
	w.awaitRounds(soon, 4)
	w.inStep(campaigns...)
	w.consumer("consume-1", "consume")
	testenv.Eventually(t, 3*soon, "the fallback has ended", func() bool {
		return w.count("SELECT COUNT(*) FROM mq_task_health WHERE fallback = 1") == 0
	})
	require.Zero(t, w.metric(poll, "seahub_task_poll_rows_total", map[string]string{"kind": "poll"}))
	w.inStep(campaigns...)
}

// Flips and rollout steps under rounds that never end coming: every campaign is synced
// all the time, the table is right, and the fallback has nothing to do.
func TestCampaignFlips(t *testing.T) {
	campaigns := campaignsOf(30, 1, 60, 10, 10, 10, 120, 10)
	w := newCampaignWorld(t, time.Millisecond, campaigns...)
	w.Env["SEAHUB_CAMPAIGN_EVERY"] = "1s"
	w.Env["SEAHUB_CAMPAIGN_OVERDUE_BY"] = "8s"
	w.relay("relay-1")
	w.consumer("consume-1", "consume")
	w.consumer("consume-2", "consume")
	w.consumer("poll-1", "poll")
	w.consumer("poll-2", "poll")
	for _, percent := range []int{100, 0, 40, 100, 0, 100} {
		w.flag(percent, false)
		time.Sleep(3 * time.Second)
	}
	w.flag(100, true)
	w.awaitRounds(soon, len(campaigns))
	w.inStep(campaigns...)
	require.Zero(t, w.fallbackRuns())
	require.Zero(t, w.count("SELECT COUNT(*) FROM mq_dead_letter"))
	require.Positive(t, w.count("SELECT COUNT(*) FROM outbox_event"))
}

// The token ends in the middle of a run of two pods: one refresh, nothing fails, and no
// secret is in any log.
func TestCampaignTokenEndsMidRun(t *testing.T) {
	campaigns := campaignsOf(150, 150, 150, 150)
	w := newCampaignWorld(t, 5*time.Millisecond, campaigns...)
	w.flagSince()
	w.relay("relay-1")
	logs := []*stack.Service{w.consumer("consume-1", "consume"), w.consumer("consume-2", "consume"), w.consumer("poll-1", "poll")}
	testenv.Eventually(t, soon, "it is at work", func() bool { return w.TikTok.Counts()[tiktokfake.CallProducts] > 3 })
	w.TikTok.ExpireAccess()
	w.awaitRounds(3*soon, 4)
	require.Equal(t, 1, w.TikTok.Counts()[tiktokfake.CallRefresh])
	require.Zero(t, w.rounds("FAILED"))
	for _, s := range logs {
		for _, secret := range []string{"TTP_", "TTR_", w.TikTok.AppSecret()} {
			require.False(t, strings.Contains(s.LogTail(), secret), "%s has a secret in its log", s.Name)
		}
	}
}
