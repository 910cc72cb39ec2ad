package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/test/bench/internal/stat"
)

// The writers of the late part: an ordinary event, and what the relay's watch over the
// last seconds misses.
const (
	ordinary      = "ordinary"
	ordinaryAlone = "ordinary, none of the others there"
	lateCommit    = "committed up to 2 s late"
	wholeSeconds  = "whole seconds"
	hoursAhead    = "3 hours ahead"
	hoursBehind   = "3 hours behind"
)

const (
	// oddRate is how many events a second each odd kind writes.
	oddRate = 5
	// sweepPromise is how old an event may become that only the sweep finds
	// (docs/operations.md).
	sweepPromise = 5 * time.Second
	lateMost     = 2 * time.Second
)

// odd are the kinds beside the ordinary ones, and how each changes the row that it has
// appended, before its commit.
var odd = []struct{ name, createdAt string }{
	{lateCommit, ""},
	{wholeSeconds, "CAST(DATE_FORMAT(NOW(3), '%Y-%m-%d %H:%i:%s') AS DATETIME)"},
	{hoursAhead, "NOW(3) + INTERVAL 3 HOUR"},
	{hoursBehind, "NOW(3) - INTERVAL 3 HOUR"},
}

// oddAll is the rate of all kinds together.
func oddAll() int { return slowRate + oddRate*len(odd) }

// kindOf spreads the kinds evenly over the events of a load.
func kindOf(i int) string {
	period := oddAll() / oddRate
	if k := i % period; k%(period/len(odd)) == 0 && k/(period/len(odd)) < len(odd) {
		return odd[k/(period/len(odd))].name
	}
	return ordinary
}

// change makes an odd event of one that was appended.
func change(ctx context.Context, tx *sql.Tx, kind, eventID string, i int) error {
	for _, o := range odd {
		if o.name != kind {
			continue
		}
		if o.createdAt == "" {
			return pause(ctx, time.Duration(i)*37*time.Millisecond%lateMost)
		}
		_, err := tx.ExecContext(ctx, "UPDATE outbox_event SET created_at = "+o.createdAt+" WHERE event_id = ?", eventID)
		return err
	}
	return nil
}

// runLate measures latency by kind of writer, and that of ordinary ones without the others.
func runLate(ctx context.Context, b *bed, r *report) error {
	length := time.Duration(b.LatencySeconds) * time.Second
	return b.session(ctx, r, func() error {
		return b.withRelays(1, func(relays) error {
			if err := b.catchUp(ctx); err != nil {
				return err
			}
			for round := 1; round <= b.Rounds; round++ {
				for _, mixed := range stat.Turn([]bool{false, true}, round) {
					l := b.lateLoad(mixed, length)
					if err := b.run(ctx, l, true, nil); err != nil {
						return err
					}
					r.late(l, mixed)
				}
				b.p.Step("late %d/%d: ordinary ones p50 %.1f ms beside the others, %.1f ms alone", round, b.Rounds,
					last(r.raw.Late[ordinary]).P50, last(r.raw.Late[ordinaryAlone]).P50)
			}
			return b.awaitMarked(ctx)
		})
	})
}

func (b *bed) lateLoad(mixed bool, length time.Duration) *load {
	if !mixed {
		return b.newLoad(slowRate, length)
	}
	l := b.newLoad(oddAll(), length)
	l.kindOf, l.writers = kindOf, 2*writers // some of them are held up before their commit
	return l
}

func last(v []latency) latency {
	if len(v) == 0 {
		return latency{}
	}
	return v[len(v)-1]
}

// late files the latencies of a load by kind.
func (r *report) late(l *load, mixed bool) {
	byKind := map[string][]time.Duration{}
	for i, at := range l.readable {
		kind := ordinaryAlone
		if mixed {
			kind = kindOf(i)
		}
		if at > 0 {
			byKind[kind] = append(byKind[kind], max(0, at-l.committed[i]))
		}
	}
	for kind, d := range byKind {
		r.raw.Late[kind] = append(r.raw.Late[kind], latencyOf(d))
	}
}

// kinds in the order of the table.
func kinds() []string {
	all := []string{ordinaryAlone, ordinary}
	for _, o := range odd {
		all = append(all, o.name)
	}
	return all
}

// within reports whether every event of a kind was readable as soon as is promised.
func within(v []latency) string {
	for _, l := range v {
		if l.Max > stat.Milliseconds(sweepPromise) {
			return fmt.Sprintf("no (%.1f s)", l.Max/1000)
		}
	}
	return "yes"
}
