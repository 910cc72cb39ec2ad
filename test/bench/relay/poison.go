package main

import (
	"context"
	"fmt"

	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
	"github.com/seahub/seahub-mq/test/bench/internal/stat"
)

const (
	// backedOff are as many rows that wait for a later attempt: more than a batch.
	backedOff = 1000

	clean    = "ordinary events alone"
	poisoned = "one always refused, 1,000 backed off"
)

// runPoison drains a backlog as it is, and one with an event in it that the broker always
// refuses and a page of backed-off ones before it.
func runPoison(ctx context.Context, b *bed, r *report) error {
	for round := 0; round <= b.Rounds; round++ {
		for _, c := range stat.Turn([]string{clean, poisoned}, round) {
			n := b.PoisonEvents
			if round == 0 {
				n = min(n, 4*b.Batch)
			}
			d, err := b.drainPoisoned(ctx, n, c == poisoned)
			if err != nil {
				return fmt.Errorf("%s: %w", c, err)
			}
			if round == 0 {
				continue // the warm-up
			}
			r.raw.Poison[c] = append(r.raw.Poison[c], d)
			b.p.Step("poison %d/%d: %s: %s events/s", round, b.Rounds, c, sheet.Count(d.Rate))
		}
	}
	return nil
}

func (b *bed) drainPoisoned(ctx context.Context, n int, withPoison bool) (d drained, err error) {
	if err := b.topic.reset(ctx); err != nil {
		return d, err
	}
	if err := b.fill(ctx, n); err != nil {
		return d, err
	}
	left := 0
	if withPoison {
		if left, err = b.poison(ctx, n); err != nil {
			return d, err
		}
	}
	err = b.withRelays(1, func(rs relays) error {
		if d, err = b.watch(ctx, n, b.topic.count, rs); err != nil {
			return err
		}
		return await(ctx, stallAfter, "all others are marked", func(ctx context.Context) (bool, error) {
			got, err := b.pending(ctx)
			return got == left, err
		})
	})
	if err != nil {
		return d, err
	}
	if withPoison {
		var failed, waiting int
		err := b.db.QueryRowContext(ctx, "SELECT SUM(status = 'FAILED'), SUM(status = 'PENDING' AND retry_count = 0) FROM outbox_event WHERE status <> 'PUBLISHED'").
			Scan(&failed, &waiting)
		if err != nil || failed != 1 || waiting != backedOff {
			return d, fmt.Errorf("%d events FAILED and %d untouched, not 1 and %d: %w", failed, waiting, backedOff, err)
		}
	}
	d.books, err = balance(ctx, b.topic, 0, n)
	return d, err
}

// poison adds the rows that are in the way and returns how many they are. No broker takes
// a tag with a blank.
func (b *bed) poison(ctx context.Context, n int) (int, error) {
	for _, stmt := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, status, retry_count, created_at)
			SELECT 'obepoison', 'poison', 'NOT A TAG', 'push_task', '1', '{}', 'PENDING', 0, created_at
			FROM outbox_event WHERE event_id = CONCAT('push:', ?)`, []any{n / 2}},
		{`INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, status, retry_count, created_at, available_at)
			SELECT CONCAT('obeoff', n), CONCAT('off:', n), 'PUSH_DISPATCH', 'push_task', '1', '{}', 'PENDING', 0,
				NOW(3) - INTERVAL 2 HOUR, NOW(3) + INTERVAL 1 DAY
			FROM bench_numbers WHERE n < ?`, []any{backedOff}},
	} {
		if _, err := b.db.ExecContext(ctx, stmt.sql, stmt.args...); err != nil {
			return 0, fmt.Errorf("put rows in the way: %w", err)
		}
	}
	return backedOff + 1, nil
}
