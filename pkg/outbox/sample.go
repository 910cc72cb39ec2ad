package outbox

import (
	"context"
	"math"
	"time"
)

// sampleEvery is how often the gauges are refreshed.
const sampleEvery = 10 * time.Second

// sample refreshes the gauges that need the database.
func (r *Relay) sample(ctx context.Context) {
	store := Store{db: r.store.db}
	every(ctx, sampleEvery, func(ctx context.Context) bool {
		sampleCtx, cancel := context.WithTimeout(ctx, r.cfg.PassTimeout)
		defer cancel()
		if err := r.sampleOnce(sampleCtx, &store); err != nil && ctx.Err() == nil {
			r.metrics.databaseErrors.Inc()
			r.logs.warn(ctx, "sample", err, "figures of the outbox cannot be read, the gauges are old")
		}
		return false
	})
}

func (r *Relay) sampleOnce(ctx context.Context, store *Store) error {
	q, err := store.queue(ctx, gaugeCap)
	if err != nil {
		return err
	}
	r.metrics.pending.Set(float64(q.Pending.N))
	r.metrics.oldestPending.Set(q.OldestPending.Seconds())
	r.metrics.failedRows.Set(float64(q.Failed.N))
	r.metrics.delayedRows.Set(float64(q.Delayed.N))
	n, err := store.historyList(ctx)
	switch {
	case err != nil:
		return err
	case n == nil:
		r.metrics.historyList.Set(math.NaN()) // unknown is not 0
	default:
		r.metrics.historyList.Set(float64(*n))
	}
	return nil
}
