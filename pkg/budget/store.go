package budget

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// spanFactor packs two durations of microseconds into the one number that an UPDATE
// can return: the wait in the upper half, the length of the grant in the lower.
const spanFactor = 1 << 32

// The statements. Assignments take effect from left to right on both servers, so that
// a column on the right of an earlier assignment is the new one. LAST_INSERT_ID(x)
// sends x back with the statement's own answer: a grant is one round trip.
const (
	// sqlGrown is the rate as it has grown until now.
	sqlGrown = `LEAST(?, GREATEST(?, rate + ? * GREATEST(0, TIMESTAMPDIFF(MICROSECOND, rate_at, NOW(6))) / 1000000))`

	sqlTake = `UPDATE mq_budget SET
		rate     = ` + sqlGrown + `,
		rate_at  = GREATEST(rate_at, NOW(6)),
		start_at = GREATEST(next_at, paused_until, NOW(6) - INTERVAL CAST((? - 1) * 1000000 / rate AS SIGNED) MICROSECOND),
		granted  = LAST_INSERT_ID(GREATEST(0, TIMESTAMPDIFF(MICROSECOND, NOW(6), start_at)) * ? + CAST(? * 1000000 / rate AS SIGNED)),
		next_at  = start_at + INTERVAL CAST(? * 1000000 / rate AS SIGNED) MICROSECOND
		WHERE name = ? AND GREATEST(next_at, paused_until) <= NOW(6) + INTERVAL ? MICROSECOND`

	sqlFreeIn = `SELECT TIMESTAMPDIFF(MICROSECOND, NOW(6), GREATEST(next_at, paused_until)) FROM mq_budget WHERE name = ?`

	sqlPausedFor = `SELECT TIMESTAMPDIFF(MICROSECOND, NOW(6), paused_until) FROM mq_budget WHERE name = ?`

	sqlCreate = `INSERT IGNORE INTO mq_budget (name, rate, rate_at, next_at, start_at, paused_until, slowed_at)
		VALUES (?, ?, NOW(6), NOW(6), NOW(6), NOW(6) - INTERVAL 1 MINUTE, NOW(6) - INTERVAL 1 MINUTE)`

	// The halving looks at slowed_at before it is set.
	sqlSlow = `UPDATE mq_budget SET
		rate         = IF(slowed_at <= NOW(6) - INTERVAL 1 SECOND, GREATEST(?, ` + sqlGrown + ` / 2), rate),
		slowed_at    = IF(slowed_at <= NOW(6) - INTERVAL 1 SECOND, NOW(6), slowed_at),
		paused_until = GREATEST(paused_until, NOW(6) + INTERVAL ? MICROSECOND),
		rate_at      = GREATEST(rate_at, paused_until, NOW(6))
		WHERE name = ?`

	sqlState = `SELECT rate, TIMESTAMPDIFF(MICROSECOND, NOW(6), paused_until),
		TIMESTAMPDIFF(MICROSECOND, NOW(6), GREATEST(next_at, paused_until)) FROM mq_budget WHERE name = ?`
)

func (b *Budget) take(ctx context.Context, n int, patience time.Duration) (Grant, bool, error) {
	s := b.spec
	r, err := b.db.ExecContext(ctx, sqlTake, s.Most, s.Least, s.Recover, s.Burst, int64(spanFactor), n, n,
		s.Name, patience.Microseconds())
	if err != nil {
		return Grant{}, false, fmt.Errorf("take from budget %s: %w", s.Name, err)
	}
	if rows, err := r.RowsAffected(); err != nil || rows != 1 {
		return Grant{}, false, err
	}
	packed, err := r.LastInsertId()
	if err != nil {
		return Grant{}, false, fmt.Errorf("take from budget %s: %w", s.Name, err)
	}
	return Grant{
		Wait:  time.Duration(packed/spanFactor) * time.Microsecond,
		Every: time.Duration(packed%spanFactor) * time.Microsecond / time.Duration(n),
	}, true, nil
}

// freeIn says when the next unit is free; known is false while the row does not exist.
func (b *Budget) freeIn(ctx context.Context) (after time.Duration, known bool, err error) {
	return b.duration(ctx, sqlFreeIn)
}

func (b *Budget) pausedFor(ctx context.Context) (time.Duration, error) {
	d, _, err := b.duration(ctx, sqlPausedFor)
	return d, err
}

func (b *Budget) duration(ctx context.Context, query string) (time.Duration, bool, error) {
	var us int64
	err := b.db.QueryRowContext(ctx, query, b.spec.Name).Scan(&us)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("read budget %s: %w", b.spec.Name, err)
	}
	return time.Duration(us) * time.Microsecond, true, nil
}

func (b *Budget) create(ctx context.Context) error {
	if _, err := b.db.ExecContext(ctx, sqlCreate, b.spec.Name, b.spec.Start); err != nil {
		return fmt.Errorf("make budget %s: %w", b.spec.Name, err)
	}
	return nil
}

func (b *Budget) slow(ctx context.Context, pause time.Duration) (int64, error) {
	s := b.spec
	r, err := b.db.ExecContext(ctx, sqlSlow, s.Least, s.Most, s.Least, s.Recover, pause.Microseconds(), s.Name)
	if err != nil {
		return 0, fmt.Errorf("slow budget %s: %w", s.Name, err)
	}
	return r.RowsAffected()
}

// State reads the budget; one that nobody used yet has its starting rate.
func (b *Budget) State(ctx context.Context) (State, error) {
	var st State
	var paused, queued int64
	err := b.db.QueryRowContext(ctx, sqlState, b.spec.Name).Scan(&st.Rate, &paused, &queued)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return State{Rate: b.spec.Start}, nil
	case err != nil:
		return st, fmt.Errorf("read budget %s: %w", b.spec.Name, err)
	}
	st.PausedFor = max(0, time.Duration(paused)*time.Microsecond)
	st.QueuedFor = max(0, time.Duration(queued)*time.Microsecond)
	return st, nil
}
