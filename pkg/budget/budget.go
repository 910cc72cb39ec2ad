// Package budget shares rate budgets between replicas, by rows of mq_budget: so many
// units a second per name, whoever spends them.
//
// # Protocol
//
// A budget is a queue of units, each 1/rate seconds long. next_at says when the next
// one is free. A grant is one UPDATE that moves next_at behind the units granted and
// returns when the first of them begins; the caller waits until then. There is no
// transaction that spans statements, so a process that dies or freezes can hold nobody
// up: it wastes at most the units that it was granted. All times are the database's.
//
//	       granted to A          granted to B      free
//	──────┬───┬───┬───┬───┬───┬───────┬───────┬────────▶
//	     now  a1  a2  a3      b1      b2     next_at
//
// # Pace
//
// The rate grows by Spec.Recover a second, up to Spec.Most. Slow, which callers use
// when the other side says that it is too much, halves it and may close the budget for
// as long as that side asked; halvings within a second count as one, since many
// requests in flight meet the same refusal. What was granted before a pause and has not
// begun is given up by Wait, so that nothing is sent during a pause.
package budget

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// Errors that callers test.
var (
	// ErrBusy: the units would not come within the caller's patience; nothing was
	// taken. Errors of this kind are *BusyError.
	ErrBusy = errors.New("budget is spent")
	// ErrSpec: the budget is described wrongly.
	ErrSpec = errors.New("budget is not usable as specified")
)

// BusyError says when it is worth to ask again.
type BusyError struct {
	Name  string
	After time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s: %s, free in %s", ErrBusy, e.Name, e.After.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrBusy) true.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// Longest times that a row can express.
const (
	maxName     = 64
	maxPatience = 15 * time.Minute
	maxPause    = 24 * time.Hour
	minRate     = 0.001
)

// Spec describes a budget. Name and all rates are the same in every process; a change
// takes effect with the next grant.
type Spec struct {
	// Name is at most 64 bytes.
	Name string
	// Start is the rate of a budget that is new, in units a second.
	Start float64
	// Least and Most bound the rate.
	Least, Most float64
	// Recover is by how much the rate grows in a second.
	Recover float64
	// Burst is how many units may be taken at once after an idle time; 0 means 1.
	Burst int
}

func (s Spec) check() error {
	switch {
	case s.Name == "" || len(s.Name) > maxName:
		return fmt.Errorf("%w: name %q must have 1 to %d bytes", ErrSpec, s.Name, maxName)
	case s.Least < minRate || s.Start < s.Least || s.Most < s.Start:
		return fmt.Errorf("%w: %s: need %g <= Least <= Start <= Most, have %g, %g, %g", ErrSpec, s.Name, minRate, s.Least, s.Start, s.Most)
	case s.Recover < 0 || s.Burst < 0:
		return fmt.Errorf("%w: %s: Recover and Burst must not be negative", ErrSpec, s.Name)
	}
	return nil
}

// Grant is what Take gave.
type Grant struct {
	// Wait is how long until the first unit may be spent.
	Wait time.Duration
	// Every is the distance between the units.
	Every time.Duration
}

// Budget is one rate budget. Safe for concurrent use.
type Budget struct {
	db   *sql.DB
	spec Spec
}

// New makes a Budget on a pool from db.OpenSQL; it does not dial.
func New(pool *sql.DB, spec Spec) (*Budget, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	if spec.Burst == 0 {
		spec.Burst = 1
	}
	return &Budget{db: pool, spec: spec}, nil
}

// Name is the budget's name.
func (b *Budget) Name() string { return b.spec.Name }

// Take takes n units if the first of them begins within patience, at most 15 minutes;
// otherwise the error is ErrBusy and nothing was taken. The caller spends the units
// after the grant's wait, in the grant's distances.
func (b *Budget) Take(ctx context.Context, n int, patience time.Duration) (Grant, error) {
	if n < 1 {
		return Grant{}, fmt.Errorf("%w: %s: %d units were asked for", ErrSpec, b.spec.Name, n)
	}
	patience = min(max(patience, 0), maxPatience)
	for attempt := 1; ; attempt++ {
		g, granted, err := b.take(ctx, n, patience)
		if err != nil || granted {
			return g, err
		}
		after, known, err := b.freeIn(ctx)
		switch {
		case err != nil:
			return Grant{}, err
		case known && (after > patience || attempt > 1):
			return Grant{}, &BusyError{Name: b.spec.Name, After: max(after, time.Millisecond)}
		case !known:
			if err := b.create(ctx); err != nil {
				return Grant{}, err
			}
		}
	}
}

// Wait takes n units and returns when the first may be spent. If the budget was closed
// meanwhile it asks again, as long as patience lasts.
func (b *Budget) Wait(ctx context.Context, n int, patience time.Duration) (Grant, error) {
	end := time.Now().Add(patience)
	for {
		g, err := b.Take(ctx, n, time.Until(end))
		if err != nil {
			return Grant{}, err
		}
		if g.Wait < time.Millisecond {
			return g, nil
		}
		if !backoff.Sleep(ctx, g.Wait) {
			return Grant{}, fmt.Errorf("waiting for budget %s: %w", b.spec.Name, context.Cause(ctx))
		}
		paused, err := b.pausedFor(ctx)
		if err != nil {
			return Grant{}, err
		}
		if paused <= 0 {
			return g, nil
		}
	}
}

// Slow tells that the other side refused for too much: the rate is halved, and nothing
// more is granted until pause has passed (0: no pause).
func (b *Budget) Slow(ctx context.Context, pause time.Duration) error {
	pause = min(max(pause, 0), maxPause)
	n, err := b.slow(ctx, pause)
	if err != nil || n > 0 {
		return err
	}
	if err := b.create(ctx); err != nil {
		return err
	}
	_, err = b.slow(ctx, pause)
	return err
}

// State is a budget for people and metrics.
type State struct {
	Rate      float64
	PausedFor time.Duration
	// QueuedFor is how long a unit taken now would have to wait.
	QueuedFor time.Duration
}
