package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

// Flag off: the poll lists and syncs everything by itself, and writes no event.
func TestThePollAloneIsTheOldSync(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBenchOn(t, s, tiktokfake.Options{})
		campaigns := many(7, 0, 1, 51, 120)
		b.fake.Add(campaigns...)
		p := b.pod(t)
		beats := atomic.Int64{}
		scope := everything()
		scope.Beat = func() { beats.Add(1) }
		done, err := p.Poll(t.Context(), scope)
		require.NoError(t, err)
		require.Equal(t, task.Result{Rows: 7}, done)
		require.Positive(t, beats.Load())
		for _, c := range campaigns {
			require.Equal(t, fmt.Sprintf("DONE complete %d gone=0", len(c.Products)), squeeze(b.round(t, c.ID)))
		}
		require.Zero(t, s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"))
		require.EqualValues(t, 1, s.QueryInt(t, "SELECT COUNT(*) FROM mq_campaign_listing WHERE campaigns = 7 AND started = 7 AND truncated = 0 AND due_at > "+now+" + INTERVAL 50 MINUTE"))
		calls := len(b.fake.Requests())
		done, err = p.Poll(t.Context(), everything())
		require.NoError(t, err)
		require.Zero(t, done.Rows, "nothing is due")
		require.Len(t, b.fake.Requests(), calls)
	})
}

// Flag on: the poll lists; each campaign gets a row and an event in one transaction, and
// none while a round of it waits or runs.
func TestRoundsAreNotPiledUp(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBenchOn(t, s, tiktokfake.Options{}, func(c *Config) { c.Every = 100 * time.Millisecond })
		campaigns := many(12, 3)
		b.fake.Add(campaigns...)
		p := b.pod(t)
		p.eventOwns = func(string) bool { return true }
		nobody := task.Scope{Owns: func(string, time.Time) bool { return false }}
		for range 5 {
			_, err := p.Poll(t.Context(), nobody)
			require.NoError(t, err)
			time.Sleep(150 * time.Millisecond)
		}
		require.EqualValues(t, 12, s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"))
		require.EqualValues(t, 12, s.QueryInt(t, `SELECT COUNT(*) FROM outbox_event e JOIN mq_campaign_round r
			ON e.event_id = CONVERT(CONCAT('campaign:id:', r.campaign_id, ':', r.round) USING utf8mb4) COLLATE utf8mb4_bin WHERE r.state = 'PENDING'`))
		first := b.text(t, "SELECT round FROM mq_campaign_round WHERE campaign_id = ?", campaigns[0].ID)
		finish(t, p, campaigns[0].ID, first)
		_, err := p.Poll(t.Context(), nobody)
		require.NoError(t, err)
		require.EqualValues(t, 13, s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"), "only the campaign that had finished")
		require.NotEqual(t, first, b.text(t, "SELECT round FROM mq_campaign_round WHERE campaign_id = ?", campaigns[0].ID))
	})
}

func TestListingStopsAtFivePages(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	b.fake.Add(many(520, 0)...)
	p := b.pod(t)
	p.eventOwns = func(string) bool { return true }
	_, err := p.Poll(t.Context(), task.Scope{Owns: func(string, time.Time) bool { return false }})
	require.NoError(t, err)
	require.Equal(t, maxListPages, b.fake.Counts()[tiktokfake.CallCampaigns])
	require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_campaign_listing WHERE campaigns = 500 AND truncated = 1"))
	require.EqualValues(t, 500, b.s.QueryInt(t, "SELECT COUNT(*) FROM outbox_event"))
}

// A listing that breaks off goes on later as the same round: nothing starts twice.
func TestAListingThatFailsGoesOn(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	b.fake.Add(many(150, 0)...)
	p := b.pod(t)
	b.fake.Program(tiktokfake.Rule{Call: tiktokfake.CallCampaigns, Skip: 1, Times: 3, Status: 502, Body: "oops"})
	_, err := p.Poll(t.Context(), everything())
	require.NoError(t, err, "the platform being down is no fault of the poll")
	testenv.Eventually(t, 10*time.Second, "the rest is listed", func() bool {
		_, err := p.Poll(t.Context(), everything())
		require.NoError(t, err)
		return b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_campaign_round WHERE state = 'DONE'") == 150
	})
	require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(DISTINCT round) FROM mq_campaign_round"))
	require.EqualValues(t, 150, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_campaign_round WHERE fence = 1"), "each synced once")
}

// Two polls at once do the work once.
func TestOnePollAtATime(t *testing.T) {
	b := newBench(t, tiktokfake.Options{LinkDelay: 3 * time.Millisecond})
	b.fake.Add(many(4, 40)...)
	var all sync.WaitGroup
	for range 3 {
		p := b.pod(t)
		all.Go(func() {
			if _, err := p.Poll(t.Context(), everything()); err != nil {
				t.Errorf("poll: %v", err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 160, b.fake.Counts()[tiktokfake.CallShare])
	require.EqualValues(t, 4, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_campaign_round WHERE state = 'DONE' AND fence = 1"))
}

func TestOverdueCountsOpenRoundsOnly(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	campaigns := many(4, 1)
	b.fake.Add(campaigns...)
	p := b.pod(t)
	b.start(t, p, "r1", ids(campaigns)...)
	b.s.Exec(t, "UPDATE mq_campaign_round SET due_at = "+now+" - INTERVAL 2 HOUR WHERE campaign_id = ?", campaigns[0].ID)
	b.s.Exec(t, "UPDATE mq_campaign_round SET state = 'RUNNING', lease_until = "+now+" - INTERVAL 3 HOUR WHERE campaign_id = ?", campaigns[1].ID)
	b.s.Exec(t, "UPDATE mq_campaign_round SET state = 'FAILED', due_at = "+now+" - INTERVAL 9 HOUR WHERE campaign_id = ?", campaigns[2].ID)
	owned := func(id string, _ time.Time) bool { return id != "x" }
	o, err := p.Overdue(t.Context(), time.Hour, owned)
	require.NoError(t, err)
	require.EqualValues(t, 2, o.Rows)
	require.InDelta(t, 3, o.Oldest.Hours(), 0.1)
	// The fallback works on these, and starts no listing.
	done, err := p.Poll(t.Context(), task.Scope{Owns: owned, OverdueBy: time.Hour, Fallback: true})
	require.NoError(t, err)
	require.Equal(t, 2, done.Rows)
	require.Zero(t, b.fake.Counts()[tiktokfake.CallCampaigns])
}

// What the poll cannot finish of a campaign that events own gets an event.
func TestThePollHandsOnWhatEventsOwn(t *testing.T) {
	b := newBench(t, tiktokfake.Options{}, func(c *Config) { c.RetryBase, c.RetryMax = time.Minute, time.Minute })
	c := tiktokfake.NewCampaign(1, 3)
	b.fake.Add(c)
	p := b.pod(t)
	p.eventOwns = func(string) bool { return true }
	b.fake.Program(tiktokfake.Rule{Call: tiktokfake.CallProducts, Status: 500, Body: "oops"})
	_, err := p.Poll(t.Context(), everything())
	require.NoError(t, err)
	require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event"))
}

// Three pods with fifty campaigns against a platform that takes less than they would
// like: together they keep near its pace, no call is made while it asked for a pause,
// and pauses cost no campaign an attempt.
func TestPodsShareThePlatformsPace(t *testing.T) {
	t.Parallel()
	const pause = 2 * time.Second
	b := newBench(t, tiktokfake.Options{QPS: 15, RetryAfter: pause}, func(c *Config) {
		c.APIRate, c.APIRateMax, c.LinkFresh = 40, 40, time.Hour
	})
	campaigns := many(50, 3)
	b.fake.Add(campaigns...)
	pods := []*poller{b.pod(t), b.pod(t), b.pod(t)}
	b.start(t, pods[0], "r1", ids(campaigns)...)
	var all sync.WaitGroup
	slots := make(chan struct{}, 24)
	for i, c := range campaigns {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			finish(t, pods[i%3], c.ID, "r1")
		})
	}
	all.Wait()
	require.EqualValues(t, 50, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_campaign_round WHERE state = 'DONE' AND complete = 1"))
	require.Zero(t, b.s.QueryInt(t, "SELECT SUM(failures) FROM mq_campaign_round"))
	refused := 0
	var until time.Time // of the pause that was asked for
	for _, r := range b.fake.Requests() {
		if r.Call == tiktokfake.CallShare {
			continue
		}
		if r.Code == 36009002 {
			refused++
			if r.At.After(until) {
				until = r.At.Add(pause)
			}
			continue
		}
		// What was in flight when the refusal came may still arrive.
		if left := until.Sub(r.At); left > 0 {
			require.Greater(t, left, pause/2, "a call in the middle of a pause")
		}
	}
	require.Positive(t, refused)
	t.Logf("%d calls, %d of them refused", len(b.fake.Requests()), refused)
	require.Less(t, refused, 60)
}
