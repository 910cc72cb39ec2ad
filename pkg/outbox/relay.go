package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/lease"
)

// LeasePrefix begins the names of the relay's leases; the slot's number follows.
const LeasePrefix = "outbox-relay:"

// Deps are what a relay works with.
type Deps struct {
	// Pool is a pool from OpenPool, for this relay alone.
	Pool *sql.DB
	// Leases is on another pool, so that renewals never wait for the work.
	Leases    *lease.Store
	Publisher Publisher
	// Metrics may be nil, Beat too. Beat is called again and again while the relay
	// makes progress, also while it stands by; at longest a pass or one statement on
	// a silent database lies between two calls.
	Metrics prometheus.Registerer
	Beat    func()
}

// Relay publishes the outbox while it holds a slot, and stands by otherwise.
type Relay struct {
	cfg       Config
	store     relayStore
	publisher Publisher
	guard     guard
	metrics   *metrics
	state     *state
	logs      *limitedLog
	beat      func()
}

// guard runs work while this relay may work in a slot. It returns lease.ErrHeld when
// it may not. Tests replace it to show that the row locks guard alone.
type guard func(ctx context.Context, slot int, work func(ctx context.Context, t trust) error) error

// NewRelay makes a relay; Run starts it.
func NewRelay(cfg Config, d Deps) (*Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	if d.Pool == nil || d.Leases == nil || d.Publisher == nil {
		return nil, errors.New("relay: pool, leases and publisher are required")
	}
	m, err := newMetrics(d.Metrics)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	r := &Relay{
		cfg:       cfg,
		store:     relayStore{db: d.Pool, locking: lockRows},
		publisher: d.Publisher,
		metrics:   m,
		state:     newState(),
		logs:      newLimitedLog(),
		beat:      d.Beat,
	}
	if r.beat == nil {
		r.beat = func() {}
	}
	r.guard = func(ctx context.Context, slot int, work func(ctx context.Context, t trust) error) error {
		return d.Leases.Hold(ctx, fmt.Sprintf("%s%d", LeasePrefix, slot), cfg.LeaseTTL,
			func(ctx context.Context, h *lease.Held) error { return work(ctx, h) })
	}
	return r, nil
}

// Snapshot is the relay's present state.
func (r *Relay) Snapshot() Snapshot { return r.state.get() }

// Ready reports whether the relay can do its part, and says how things are.
func (r *Relay) Ready() (ok bool, reason string) { return r.state.get().ready() }

// Run works and stands by until ctx ends; then it finishes the batch in hand, frees
// its lease and returns nil. Nothing else makes it return: database and broker are
// waited for.
func (r *Relay) Run(ctx context.Context) error {
	failures := 0
	for ctx.Err() == nil {
		r.beat()
		err := r.trySlots(ctx)
		wait := r.cfg.standbyWait().Delay(1)
		switch {
		case err == nil || errors.Is(err, lease.ErrHeld):
			failures = 0
		case errors.Is(err, lease.ErrLost):
			r.logs.warn(ctx, "lease-lost", err, "relay lost its lease and stands by")
		case ctx.Err() == nil:
			failures++
			r.state.databaseFailing(err)
			r.metrics.databaseErrors.Inc()
			r.logs.warn(ctx, "lease", err, "relay cannot ask for its lease, it tries again")
			wait = backoff.Policy{Base: outageBase, Max: r.cfg.OutageMax}.Delay(failures)
		}
		if !backoff.Sleep(ctx, wait) {
			break
		}
	}
	return nil
}

// trySlots asks for each slot in turn and works in the first one that is free.
func (r *Relay) trySlots(ctx context.Context) error {
	for slot := range r.cfg.Slots {
		err := r.guard(ctx, slot, func(ctx context.Context, t trust) error {
			r.work(ctx, t, slot)
			return nil
		})
		if !errors.Is(err, lease.ErrHeld) {
			return err
		}
		r.state.passed() // the database answered
	}
	return lease.ErrHeld
}

// work runs everything that the holder of a slot does until ctx ends, and returns when
// the last goroutine of it has.
func (r *Relay) work(ctx context.Context, t trust, slot int) {
	r.state.slot(slot)
	r.metrics.working.Set(1)
	zerolog.Ctx(ctx).Info().Int("slot", slot).Msg("relay works")
	defer func() {
		r.state.slot(-1)
		r.state.failing(Confirmed, 0)
		r.metrics.working.Set(0)
		r.metrics.failing(Confirmed, 0)
		zerolog.Ctx(ctx).Info().Int("slot", slot).Msg("relay stops working")
	}()
	// Delayed events are moved by every holder, since they must not wait for a slot
	// that happens to be free; one purges.
	side := []func(context.Context){r.moveDelayed, r.sample}
	if slot == 0 {
		side = append(side, r.purge)
	}
	var wg sync.WaitGroup
	for _, f := range side {
		wg.Go(func() { f(ctx) })
	}
	w := &worker{
		cfg: r.cfg, store: r.store, publisher: r.publisher, trust: t,
		metrics: r.metrics, state: r.state, logs: r.logs, beat: r.beat,
		size: sizer{maxRows: r.cfg.BatchRows, maxBytes: r.cfg.BatchBytes},
	}
	w.run(ctx)
	wg.Wait()
}

// every runs f at once and then with the given wait in between, until ctx ends. f
// returns true to be called again without a wait.
func every(ctx context.Context, wait time.Duration, f func(ctx context.Context) (again bool)) {
	for ctx.Err() == nil {
		if f(ctx) {
			continue
		}
		// Some jitter, so that relays that were started together drift apart.
		if !backoff.Sleep(ctx, backoff.Policy{Base: wait, Max: wait}.Delay(1)) {
			return
		}
	}
}
