package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
	"github.com/seahub/seahub-mq/test/bench/internal/stat"
)

const (
	// slowRate and fastRate are the loads that latency is measured at.
	slowRate = 200
	fastRate = 1000
	// settle lets what a start or the part before has left go by.
	settle = 2 * time.Second
)

// session empties outbox and broker, runs f and checks that every event that f had
// written was published. f says how many relays run by calling withRelays.
func (b *bed) session(ctx context.Context, r *report, f func() error) error {
	if _, err := b.db.ExecContext(ctx, "TRUNCATE TABLE outbox_event"); err != nil {
		return fmt.Errorf("empty the outbox: %w", err)
	}
	if err := b.topic.reset(ctx); err != nil {
		return err
	}
	first := b.next
	if err := f(); err != nil {
		return err
	}
	sum, err := balance(ctx, b.topic, first, b.next-first)
	r.raw.Books.add(sum)
	return err
}

// latency of one load, in milliseconds.
type latency struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
	N   int     `json:"events"`
}

func latencyOf(d []time.Duration) latency {
	s := stat.SpanOf(d)
	return latency{stat.Milliseconds(s.P50), stat.Milliseconds(s.P99), stat.Milliseconds(s.Max), s.N}
}

// runLatency measures from COMMIT's return to the message's being readable, while the
// relay has nothing else to do.
func runLatency(ctx context.Context, b *bed, r *report) error {
	length := time.Duration(b.LatencySeconds) * time.Second
	return b.session(ctx, r, func() error {
		return b.withRelays(1, func(relays) error {
			if _, err := b.apply(ctx, slowRate, settle, true, nil); err != nil {
				return fmt.Errorf("warm up: %w", err)
			}
			for round := 1; round <= b.Rounds; round++ {
				for _, perSecond := range stat.Turn([]int{slowRate, fastRate}, round) {
					l, err := b.apply(ctx, perSecond, length, true, nil)
					if err != nil {
						return fmt.Errorf("at %d a second: %w", perSecond, err)
					}
					got := latencyOf(l.latencies())
					r.raw.Latency[strconv.Itoa(perSecond)] = append(r.raw.Latency[strconv.Itoa(perSecond)], got)
					b.p.Step("latency %d/%d: at %d events/s: p50 %.1f ms, p99 %.1f ms", round, b.Rounds, perSecond, got.P50, got.P99)
				}
			}
			return b.awaitMarked(ctx)
		})
	})
}

// idle is what a relay without events costs.
type idle struct {
	CPUPercent float64 `json:"cpu_pct"`
	Statements float64 `json:"statements_per_s"`
	RSS        float64 `json:"rss_mb"`
}

// runIdle watches a relay that has nothing to do, on an empty table.
func runIdle(ctx context.Context, b *bed, r *report) error {
	length := time.Duration(b.IdleSeconds) * time.Second
	return b.session(ctx, r, func() error {
		return b.withRelays(1, func(rs relays) error {
			// One event, or the relay has never known another life.
			if _, err := b.apply(ctx, 10, time.Second, true, nil); err != nil {
				return err
			}
			b.p.Step("idle: watching for %s", length)
			if err := pause(ctx, settle); err != nil {
				return err
			}
			asked, err := b.statements(ctx)
			if err != nil {
				return err
			}
			before, err := rs.usage()
			if err != nil {
				return err
			}
			began := time.Now()
			if err := pause(ctx, length); err != nil {
				return err
			}
			after, err := rs.usage()
			if err != nil {
				return err
			}
			took := time.Since(began).Seconds()
			answered, err := b.statements(ctx)
			if err != nil {
				return err
			}
			r.raw.Idle = idle{
				CPUPercent: 100 * (after.CPU - before.CPU).Seconds() / took,
				Statements: float64(answered-asked-1) / took, // our own look is one
				RSS:        float64(after.Peak) / (1 << 20),
			}
			b.p.Step("idle: %.2f %% of a core, %.1f statements/s", r.raw.Idle.CPUPercent, r.raw.Idle.Statements)
			return nil
		})
	})
}

// statements is how many the server has run for clients since its start, those of the
// prepared protocol included.
func (b *bed) statements(ctx context.Context) (sum int64, err error) {
	rows, err := b.db.QueryContext(ctx, "SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Com_stmt_prepare', 'Com_stmt_close')")
	if err != nil {
		return 0, fmt.Errorf("count statements: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return 0, fmt.Errorf("count statements: %w", err)
		}
		sum += n
	}
	return sum, rows.Err()
}

// writing is what the business's own transactions took, in milliseconds.
type writing struct {
	Commit latency `json:"commit"`
	Whole  latency `json:"transaction"`
}

// The circumstances that writers are measured in.
const (
	alone    = "without a relay"
	relayed  = "with a relay"
	brokenBy = "during an outage of the broker"
)

// runWriters measures the writers' own transactions without a relay, beside one, and
// beside one whose broker is down.
func runWriters(ctx context.Context, b *bed, r *report) error {
	length := time.Duration(b.WriterSeconds) * time.Second
	measure := func(relayed bool) (w writing, err error) {
		l, err := b.apply(ctx, slowRate, length, relayed, nil)
		if err != nil {
			return w, err
		}
		return writing{latencyOf(l.commit), latencyOf(l.whole)}, nil
	}
	circumstances := map[string]func() (writing, error){
		alone: func() (writing, error) { return measure(false) },
		relayed: func() (w writing, err error) {
			err = b.withRelays(1, func(relays) error {
				if err := b.catchUp(ctx); err != nil {
					return err
				}
				w, err = measure(true)
				return err
			})
			return w, err
		},
		brokenBy: func() (w writing, err error) {
			err = b.withRelays(1, func(relays) error {
				if err := b.catchUp(ctx); err != nil {
					return err
				}
				w, err = b.outage(ctx, func() (writing, error) { return measure(false) })
				return err
			})
			return w, err
		},
	}
	return b.session(ctx, r, func() error {
		for round := 1; round <= b.Rounds; round++ {
			for _, c := range stat.Turn([]string{alone, relayed, brokenBy}, round) {
				w, err := circumstances[c]()
				if err != nil {
					return fmt.Errorf("%s: %w", c, err)
				}
				r.raw.Writers[c] = append(r.raw.Writers[c], w)
				b.p.Step("writers %d/%d: %s: COMMIT p50 %.2f ms, p99 %.1f ms", round, b.Rounds, c, w.Commit.P50, w.Commit.P99)
			}
		}
		return b.withRelays(1, func(relays) error { return b.awaitMarked(ctx) })
	})
}

// catchUp waits until a relay that was just started works, and has nothing left to do.
func (b *bed) catchUp(ctx context.Context) error {
	if _, err := b.apply(ctx, 10, time.Second, true, nil); err != nil {
		return err
	}
	return b.awaitMarked(ctx)
}

// outage stops the broker, measures, and starts it again whatever came of that.
func (b *bed) outage(ctx context.Context, measure func() (writing, error)) (w writing, err error) {
	if err := b.topic.stop(ctx); err != nil {
		return w, err
	}
	w, err = measure()
	if err := errors.Join(err, b.topic.start(ctx)); err != nil {
		return w, err
	}
	return w, b.awaitMarked(ctx)
}

// ratioOf is the median over the rounds of what a figure of the writers is to what it
// is without us.
func ratioOf(with, without []writing, of func(writing) float64) float64 {
	column := func(ws []writing) []float64 {
		out := make([]float64, len(ws))
		for i := range ws {
			out[i] = of(ws[i])
		}
		return out
	}
	return stat.Median(stat.Ratios(column(with), column(without)))
}

func milliseconds(v float64) string {
	if v >= 100 {
		return sheet.Count(v)
	}
	return fmt.Sprintf("%.2f", v)
}
