package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seahub/seahub-mq/test/bench/internal/meter"
	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
	"github.com/seahub/seahub-mq/test/bench/internal/stat"
)

// contender is one way to drain a backlog.
type contender struct {
	key, what string
	// share is the part of the backlog that it gets: the naive relay would take the
	// run's whole time.
	share int
	// relays is how many processes of ours drain; otherwise drain does, in this process.
	relays    int
	drain     func(b *bed, ctx context.Context, n int, done *atomic.Int64) error
	pinned    bool
	publishes bool
}

var contenders = []contender{
	{key: "floor", what: "floor: claim and mark, nothing published", share: 1, drain: (*bed).drainFloor},
	{key: "relay", what: "one relay", share: 1, relays: 1, publishes: true},
	{key: "relay2", what: "two relays", share: 1, relays: 2, publishes: true},
	{key: "pinned", what: "one relay, an old snapshot open", share: 1, relays: 1, pinned: true, publishes: true},
	{key: "naive", what: "naive relay, row by row", share: 10, drain: (*bed).drainNaive, publishes: true},
}

// drained is one measurement of a contender.
type drained struct {
	Rate float64 `json:"events_per_s"`
	// CPU and Peak are of relay processes only.
	CPU  float64 `json:"cpu_s_per_100k"`
	Peak float64 `json:"rss_mb"`
	// Flat is the rate of the last third over that of the first.
	Flat float64 `json:"last_third_over_first"`
	// The floor's time by statement, in seconds per 100,000 events.
	Claim  float64 `json:"claim_s_per_100k,omitempty"`
	Mark   float64 `json:"mark_s_per_100k,omitempty"`
	Commit float64 `json:"commit_s_per_100k,omitempty"`
	books
}

// stallAfter is how long nothing may move before a drain has failed.
const stallAfter = 30 * time.Second

// runDrains drains the backlog in rounds: every contender in each, each round
// beginning with another one, after a smaller round that does not count.
func runDrains(ctx context.Context, b *bed, r *report) error {
	for round := 0; round <= b.Rounds; round++ {
		for _, c := range stat.Turn(contenders, round) {
			n := max(b.Events/c.share, min(b.Events, 4*b.Batch))
			if round == 0 {
				n = min(n, 20*b.Batch)
			}
			d, err := b.drainOnce(ctx, c, n)
			if err != nil {
				return fmt.Errorf("%s: %w", c.what, err)
			}
			if round == 0 {
				continue
			}
			r.drained(c.key, d)
			b.p.Step("drain %d/%d: %s: %s events/s", round, b.Rounds, c.what, sheet.Count(d.Rate))
		}
		if round == 0 {
			b.p.Step("warmed up: drained a small backlog by each of %d", len(contenders))
		}
	}
	return nil
}

func (b *bed) drainOnce(ctx context.Context, c contender, n int) (d drained, err error) {
	if err := b.topic.reset(ctx); err != nil {
		return d, err
	}
	if err := b.fill(ctx, n); err != nil {
		return d, err
	}
	if c.pinned {
		release, err := b.pin(ctx)
		if err != nil {
			return d, err
		}
		defer release()
	}
	if c.relays == 0 {
		b.floor = split{}
		d, err = b.drainHere(ctx, c, n)
		per := func(t time.Duration) float64 { return t.Seconds() / float64(n) * 1e5 }
		d.Claim, d.Mark, d.Commit = per(b.floor.claim), per(b.floor.mark), per(b.floor.commit)
	} else {
		err = b.withRelays(c.relays, func(rs relays) error {
			d, err = b.watch(ctx, n, b.topic.count, rs)
			if err != nil {
				return err
			}
			// The last batch is still to be marked.
			return b.awaitMarked(ctx)
		})
	}
	if err != nil {
		return d, err
	}
	if left, err := b.pending(ctx); err != nil || left > 0 {
		return d, fmt.Errorf("%d events are left: %w", left, err)
	}
	if c.publishes {
		d.books, err = balance(ctx, b.topic, 0, n)
	}
	return d, err
}

// drainHere runs a contender in this process.
func (b *bed) drainHere(ctx context.Context, c contender, n int) (drained, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done atomic.Int64
	ended := make(chan error, 1)
	go func() { // ends with ctx at the latest, and is waited for
		err := c.drain(b, ctx, n, &done)
		if err != nil {
			cancel(err)
		}
		ended <- err
	}()
	d, err := b.watch(ctx, n, func(context.Context) (int, error) { return int(done.Load()), nil }, nil)
	if err != nil {
		cancel(err)
	}
	if e := <-ended; e != nil {
		return d, e
	}
	return d, err
}

// point is how far a drain was at a time.
type point struct {
	at time.Duration
	n  int
}

// watch follows a drain of n events. The first tenth does not count: processes start
// and connect in it, one after the other.
func (b *bed) watch(ctx context.Context, n int, progress func(context.Context) (int, error), rs relays) (drained, error) {
	began := time.Now()
	var first meter.Usage
	var points []point
	counting := false
	for last := (point{n: -1}); last.n < n; {
		got, err := progress(ctx)
		if err != nil {
			return drained{}, fmt.Errorf("after %d of %d events: %w", last.n, n, err)
		}
		now := point{time.Since(began), got}
		if !counting && got >= n/10 {
			counting = true
			if first, err = rs.usage(); err != nil {
				return drained{}, err
			}
		}
		if counting {
			points = append(points, now)
		}
		if got > last.n {
			last = now
		} else if now.at-last.at > stallAfter {
			return drained{}, fmt.Errorf("stands still after %d of %d events", got, n)
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return drained{}, err
		}
	}
	end, err := rs.usage()
	if err != nil {
		return drained{}, err
	}
	d := drained{Rate: rate(points), Flat: flatness(points), Peak: float64(end.Peak) / (1 << 20)}
	if events := points[len(points)-1].n - points[0].n; events > 0 {
		d.CPU = (end.CPU - first.CPU).Seconds() / float64(events) * 1e5
	}
	return d, nil
}

// rate is events per second between the first and the last point.
func rate(points []point) float64 {
	if len(points) == 0 {
		return 0
	}
	a, z := points[0], points[len(points)-1]
	if z.at <= a.at {
		return 0
	}
	return float64(z.n-a.n) / (z.at - a.at).Seconds()
}

// flatness is the rate of the last third of the events over that of the first; 1 when
// there are too few points to tell.
func flatness(points []point) float64 {
	if len(points) < 4 {
		return 1
	}
	a, z := points[0].n, points[len(points)-1].n
	var head, tail []point
	for _, p := range points {
		if p.n <= a+(z-a)/3 {
			head = append(head, p)
		}
		if p.n >= z-(z-a)/3 {
			tail = append(tail, p)
		}
	}
	first, last := rate(head), rate(tail)
	if first == 0 || last == 0 {
		return 1
	}
	return last / first
}

// awaitMarked waits until the relay has marked what it has sent.
func (b *bed) awaitMarked(ctx context.Context) error {
	return await(ctx, stallAfter, "the last events are marked", func(ctx context.Context) (bool, error) {
		left, err := b.pending(ctx)
		return left == 0, err
	})
}

// pin opens a snapshot, as a backup or a forgotten report does: the server keeps every
// row version and every delete-marked index entry from now on.
func (b *bed) pin(ctx context.Context) (release func(), err error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a snapshot: %w", err)
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a snapshot: %w", err), conn.Close())
	}
	release = func() { _, _ = tx.Rollback(), conn.Close() }
	var n int // a snapshot begins with its first read
	if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE event_id = 'push:0'").Scan(&n); err != nil {
		release()
		return nil, fmt.Errorf("open a snapshot: %w", err)
	}
	return release, nil
}
