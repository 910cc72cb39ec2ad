package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

const (
	purgeEvery = time.Hour
	purgeBatch = 1000
	// purgePause keeps a large purge from being felt by others.
	purgePause = 200 * time.Millisecond
)

// purgeLedger removes old lines of mq_push_attempts until ctx ends. Several processes
// may do it at a time.
func (d *dispatcher) purgeLedger(ctx context.Context) error {
	for {
		removed, err := d.purgeOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			zerolog.Ctx(ctx).Warn().Err(err).Msg("old push attempts were not removed, the next try is in an hour")
		case removed > 0:
			zerolog.Ctx(ctx).Info().Int64("rows", removed).Msg("removed old push attempts")
		}
		if !backoff.Sleep(ctx, purgeEvery) {
			return nil
		}
	}
}

func (d *dispatcher) purgeOnce(ctx context.Context) (removed int64, err error) {
	for {
		n, err := d.store.purgeAttempts(ctx, d.cfg.KeepAttempts, purgeBatch)
		removed += n
		if err != nil || n < purgeBatch || !backoff.Sleep(ctx, purgePause) {
			return removed, err
		}
	}
}

// purgeAttempts removes a batch, by the index on started_at.
func (s store) purgeAttempts(ctx context.Context, keep time.Duration, limit int) (int64, error) {
	res := s.db.WithContext(ctx).Exec(`DELETE FROM mq_push_attempts
		WHERE started_at < NOW(3) - INTERVAL ? MICROSECOND ORDER BY started_at LIMIT ?`, keep.Microseconds(), limit)
	if res.Error != nil {
		return 0, fmt.Errorf("remove old push attempts: %w", res.Error)
	}
	return res.RowsAffected, nil
}
