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

// newCampaignWorld is a system with campaigns of many pages, which the platform keeps
// listing: what the acceptance list has no place for.
func newCampaignWorld(t *testing.T, campaigns ...*tiktokfake.Campaign) *world {
	t.Helper()
	sub := campaignSubject()
	sub.prepare = nil
	w := newWorldOf(t, sub)
	w.TikTok.Add(campaigns...)
	return w
}

// Links take so long while the world is to stand still: what is under way stays under
// way, however slow the machine is.
const standstill = time.Minute

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
	t.Parallel()
	campaigns := campaignsOf(500)
	w := newCampaignWorld(t, campaigns...)
	w.Env["SEAHUB_CAMPAIGN_LINK_PARALLEL"] = "2"
	w.Env["SEAHUB_CAMPAIGN_LINK_TIMEOUT"] = "5s"
	w.TikTok.SetDelay(0, 20*time.Millisecond)
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
	w.TikTok.SetDelay(0, standstill) // in the middle of a page
	require.NoError(t, first.Kill())
	w.TikTok.SetDelay(0, 0)
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
	t.Parallel()
	campaigns := campaignsOf(200, 120)
	w := newCampaignWorld(t, campaigns...)
	w.Env["SEAHUB_CAMPAIGN_LINK_PARALLEL"] = "2"
	w.TikTok.SetDelay(0, 10*time.Millisecond)
	w.flagSince()
	w.relay("relay-1")
	first := w.consumer("consume-1", "consume")
	w.consumer("poll-1", "poll")
	testenv.Eventually(t, soon, "it is at work", func() bool { return w.rounds("RUNNING") > 0 && w.count("SELECT MAX(pages) FROM mq_campaign_round") > 0 })
	w.TikTok.SetDelay(0, standstill)
	require.NoError(t, first.Freeze())
	w.TikTok.SetDelay(0, 0)
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

// The token ends in the middle of a run of two pods: one refresh, nothing fails, and no
// secret is in any log.
func TestCampaignTokenEndsMidRun(t *testing.T) {
	t.Parallel()
	campaigns := campaignsOf(150, 150, 150, 150)
	w := newCampaignWorld(t, campaigns...)
	w.TikTok.SetDelay(0, 5*time.Millisecond)
	w.flagSince()
	w.relay("relay-1")
	logs := []*stack.Service{w.consumer("consume-1", "consume"), w.consumer("consume-2", "consume"), w.consumer("poll-1", "poll")}
	testenv.Eventually(t, soon, "it is at work", func() bool { return w.TikTok.Counts()[tiktokfake.CallProducts] > 3 })
	w.TikTok.SetDelay(0, time.Second) // nobody is done before the token is
	w.TikTok.ExpireAccess()
	w.TikTok.SetDelay(0, 0)
	w.awaitRounds(3*soon, 4)
	require.Equal(t, 1, w.TikTok.Counts()[tiktokfake.CallRefresh])
	require.Zero(t, w.rounds("FAILED"))
	for _, s := range logs {
		for _, secret := range []string{"TTP_", "TTR_", w.TikTok.AppSecret()} {
			require.False(t, strings.Contains(s.LogTail(), secret), "%s has a secret in its log", s.Name)
		}
	}
}
