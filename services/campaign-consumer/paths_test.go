package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

// world are campaigns of all sizes with products of all kinds.
func world(campaigns, products int) []*tiktokfake.Campaign {
	kinds := []tiktokfake.LinkKind{tiktokfake.LinkGone, tiktokfake.LinkForbidden, tiktokfake.LinkPage, tiktokfake.LinkLie, tiktokfake.LinkPlain}
	var out []*tiktokfake.Campaign
	for i := range campaigns {
		n := products / campaigns
		if i%2 == 0 {
			n -= i // sizes that are no multiple of a page
		} else {
			n += i - 1
		}
		c := tiktokfake.NewCampaign(i, n)
		for j, p := range c.Products {
			if j%40 == 7 {
				p.Link = kinds[(i+j)%len(kinds)]
			}
		}
		out = append(out, c)
	}
	return out
}

// deliver is relay and broker in one: it hands the outbox's events, and the delayed ones
// that are due, to pods, now and then twice, until stop.
func deliver(ctx context.Context, t *testing.T, b *bench, pods []*poller, handlers int) (wait func()) {
	jobs := make(chan eventbus.Delivery)
	var all sync.WaitGroup
	for i := range handlers * len(pods) {
		all.Go(func() {
			p := pods[i%len(pods)]
			for d := range jobs {
				id, err := p.RowID(d)
				if err != nil {
					t.Errorf("row id: %v", err)
					continue
				}
				for d.Attempt = 1; ; d.Attempt++ {
					out := p.Handle(ctx, id, d)
					if out.Verdict != eventbus.VerdictRetry || ctx.Err() != nil {
						break
					}
					time.Sleep(max(out.After, 20*time.Millisecond))
				}
			}
		})
	}
	all.Go(func() {
		defer close(jobs)
		for ctx.Err() == nil {
			for _, table := range []string{"outbox_event", "mq_delayed_event"} {
				publish(ctx, b, table, jobs)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return all.Wait
}

func publish(ctx context.Context, b *bench, table string, jobs chan<- eventbus.Delivery) {
	due := "status = 'PENDING'"
	if table == "mq_delayed_event" {
		due = "due_at <= " + now
	}
	rows, err := b.s.DB.QueryContext(ctx, "SELECT event_id, payload_json FROM "+table+" WHERE "+due)
	if err != nil {
		return
	}
	var found []eventbus.Delivery
	for rows.Next() {
		var d eventbus.Delivery
		var body string
		if rows.Scan(&d.Key, &body) == nil {
			d.Tag, d.Body = string(event.CampaignProductSync), json.RawMessage(body)
			found = append(found, d)
		}
	}
	_ = rows.Close()
	for _, d := range found {
		remove := "UPDATE outbox_event SET status = 'PUBLISHED' WHERE event_id = ?"
		if table == "mq_delayed_event" {
			remove = "DELETE FROM mq_delayed_event WHERE event_id = ?"
		}
		if _, err := b.s.DB.ExecContext(ctx, remove, d.Key); err != nil {
			return
		}
		for range 1 + rand.IntN(5)/4 { // one in five comes twice
			select {
			case jobs <- d:
			case <-ctx.Done():
				return
			}
		}
	}
}

// The event path and the serial path on the same platform: the same table, row by row,
// and no more requests.
func TestBothPathsEndInTheSameTable(t *testing.T) {
	t.Parallel()
	const campaigns, products, call = 20, 4000, 10 * time.Millisecond
	var rows [2][]string
	var requests [2]map[tiktokfake.Call]int
	var took [2]time.Duration
	run := func(t *testing.T, i int, byEvents bool) {
		b := newBench(t, tiktokfake.Options{Delay: call, LinkDelay: call}, func(c *Config) { c.Slice = 30 * time.Second; c.Lease = 60 * time.Second })
		b.fake.Add(world(campaigns, products)...)
		pods := []*poller{b.pod(t), b.pod(t)}
		began := time.Now()
		scope := everything()
		ctx, stop := context.WithCancel(t.Context())
		wait := func() {}
		if byEvents {
			scope.Owns = func(string, time.Time) bool { return false }
			pods[0].eventOwns = func(string) bool { return true }
			wait = deliver(ctx, t, b, pods, 8)
		}
		_, err := pods[0].Poll(t.Context(), scope)
		require.NoError(t, err)
		testenv.Eventually(t, 3*time.Minute, "all campaigns are synced", func() bool {
			return b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_campaign_round WHERE state = 'DONE' AND complete = 1") == campaigns
		})
		took[i] = time.Since(began)
		stop()
		wait()
		require.Empty(t, b.fake.Problems())
		rows[i], requests[i] = b.rows(t), b.fake.Counts()
	}
	t.Run("serial", func(t *testing.T) { run(t, 0, false) })
	t.Run("events", func(t *testing.T) { run(t, 1, true) })
	require.Len(t, rows[0], products)
	require.Len(t, rows[1], products)
	for i, row := range rows[0] {
		require.Equal(t, row, rows[1][i])
	}
	for name, n := range requests[1] {
		require.LessOrEqual(t, n, requests[0][name], name)
	}
	t.Logf("serial %s, events with 2 pods %s: %.1f times; requests %v and %v", took[0], took[1], float64(took[0])/float64(took[1]), requests[0], requests[1])
}

// Whatever happens to the pods on the way (answers that fail, tokens that end, pages
// that die, orders to stop, slices that are too short), no product is lost, none is
// called gone, and each campaign ends.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, tiktokfake.Options{LinkDelay: time.Millisecond}, func(c *Config) {
		c.Slice, c.Lease, c.RetryBase, c.RetryMax, c.MaxFailures = 600*time.Millisecond, 2*time.Second, 10*time.Millisecond, 100*time.Millisecond, 1000
	})
	campaigns := world(12, 1800)
	for i, c := range campaigns {
		if i%3 == 0 {
			c.Paging = tiktokfake.PagingDead
		}
	}
	b.fake.Add(campaigns...)
	pods := []*poller{b.pod(t), b.pod(t), b.pod(t)}
	pods[0].eventOwns = func(string) bool { return true }
	for range 40 {
		kinds := []tiktokfake.Rule{{Status: 500, Body: "oops"}, {Drop: true}, {Code: 36009002, RetryAfter: "1"}, {Code: 36009007}, {Body: "{}"}}
		r := kinds[rand.IntN(len(kinds))]
		r.Call = []tiktokfake.Call{tiktokfake.CallProducts, tiktokfake.CallLinks}[rand.IntN(2)]
		r.Skip, r.Times = rand.IntN(60), 1
		b.fake.Program(r)
	}
	ctx, stop := context.WithCancel(t.Context())
	handlers, stopHandlers := context.WithCancel(ctx)
	wait := deliver(handlers, t, b, pods, 4)
	_, err := pods[0].Poll(t.Context(), task.Scope{Owns: func(string, time.Time) bool { return false }})
	require.NoError(t, err)
	done := func() bool {
		return b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_campaign_round WHERE state = 'DONE' AND complete = 1") == 12
	}
	for i := 0; !done() && i < 40; i++ {
		time.Sleep(time.Duration(100+rand.IntN(400)) * time.Millisecond)
		switch i % 4 {
		case 1:
			b.fake.ExpireAccess()
		case 3: // all handlers are told to stop; what they had in hand comes again
			stopHandlers()
			wait()
			b.s.Exec(t, "UPDATE outbox_event SET status = 'PENDING'")
			handlers, stopHandlers = context.WithCancel(ctx)
			wait = deliver(handlers, t, b, pods, 4)
		}
	}
	testenv.Eventually(t, 60*time.Second, "all campaigns are synced", done)
	stop()
	stopHandlers()
	wait()
	total := 0
	for _, c := range campaigns {
		total += len(c.Products)
	}
	require.EqualValues(t, total, b.count(t, "active = 1"))
	require.EqualValues(t, 0, b.count(t, "active = 0"))
	require.EqualValues(t, total, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_campaign_product p JOIN mq_campaign_round r ON p.campaign_id = r.campaign_id AND p.seen_round = r.round"))
	require.Equal(t, tokenOK, b.text(t, "SELECT state FROM mq_tiktok_token"))
}
