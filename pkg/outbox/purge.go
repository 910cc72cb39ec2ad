package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

const (
	// purgeBatch and purgePause keep the purge from being felt: small transactions
	// with room for others in between.
	purgeBatch = 500
	purgePause = 20 * time.Millisecond
	// purgeTries bounds how often one batch is tried when it loses a deadlock.
	purgeTries = 5
)

// purge deletes published events past their retention, now and every PurgeEvery.
func (r *Relay) purge(ctx context.Context) {
	store := Store{db: r.store.db}
	every(ctx, r.cfg.PurgeEvery, func(ctx context.Context) bool {
		n, err := store.Purge(ctx, PurgeRequest{OlderThan: r.cfg.Retention, Progress: func(n int64) {
			r.metrics.purged.Add(float64(n))
		}})
		switch {
		case err != nil && ctx.Err() == nil:
			r.metrics.databaseErrors.Inc()
			r.logs.warn(ctx, "purge", err, "purge of published events was given up until its next turn")
		case err == nil && n > 0:
			zerolog.Ctx(ctx).Info().Int64("rows", n).Msg("purged published events past their retention")
		}
		return false
	})
}

// PurgeRequest says what to purge.
type PurgeRequest struct {
	// OlderThan is measured from created_at and from published_at: an event that was
	// published late is kept as long as the others.
	OlderThan time.Duration
	// Progress, when not nil, is told the rows of each deleted batch.
	Progress func(rows int64)
}

// Purge deletes PUBLISHED rows, by primary key in small batches. PENDING and FAILED ones
// are never touched. It may be stopped and run again at any time.
func (s *Store) Purge(ctx context.Context, req PurgeRequest) (int64, error) {
	if req.OlderThan <= 0 {
		return 0, fmt.Errorf("purge: %w: an age is required", ErrNoFilter)
	}
	var total int64
	var from cursor
	for {
		page, err := s.purgeable(ctx, req.OlderThan, from)
		if err != nil || len(page) == 0 {
			return total, err
		}
		n, err := s.purgePage(ctx, req.OlderThan, page)
		total += n
		if err != nil {
			return total, err
		}
		if req.Progress != nil && n > 0 {
			req.Progress(n)
		}
		from = page[len(page)-1]
		if len(page) < purgeBatch {
			return total, nil
		}
		if !backoff.Sleep(ctx, purgePause) {
			return total, fmt.Errorf("purge: %w", ctx.Err())
		}
	}
}
