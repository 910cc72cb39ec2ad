package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

// startCheck bounds one look at the database.
const startCheck = 10 * time.Second

// start waits until the database answers and has what the relay needs. Both may come
// after the relay: a database that is down and a migration that has not run yet are
// waited for.
type start struct {
	pool *sql.DB
	beat func()

	mu  sync.Mutex
	why string
}

func newStart(pool *sql.DB, beat func()) *start {
	return &start{pool: pool, beat: beat, why: "database not checked yet"}
}

func (s *start) ready() (bool, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why == "", s.why
}

// set remembers the reason and reports whether it is a new one.
func (s *start) set(why string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.why != why
	s.why = why
	return changed
}

// wait returns when the relay can start, or when ctx ends. Its only error is a session
// that the server does not give us: trying again would not help.
func (s *start) wait(ctx context.Context) error {
	wait := backoff.Policy{Base: 200 * time.Millisecond, Max: 5 * time.Second}
	for attempt := 1; ; attempt++ {
		s.beat()
		zone, err := s.check(ctx)
		switch {
		case err == nil:
			s.set("")
			if zone.Hint != "" {
				zerolog.Ctx(ctx).Warn().Dur("suspected_offset_ms", zone.Suspect).Msg(zone.Hint)
			}
			return nil
		case errors.Is(err, db.ErrSession):
			return err
		}
		if s.set(err.Error()) && ctx.Err() == nil {
			zerolog.Ctx(ctx).Warn().Err(err).Msg("relay waits for its database")
		}
		if !backoff.Sleep(ctx, wait.Delay(attempt)) {
			return nil
		}
	}
}

func (s *start) check(ctx context.Context) (outbox.Zone, error) {
	ctx, cancel := context.WithTimeout(ctx, startCheck)
	defer cancel()
	if err := db.WaitReady(zerolog.Nop().WithContext(ctx), s.pool); err != nil {
		return outbox.Zone{}, err
	}
	return outbox.NewStore(s.pool).CheckStart(ctx)
}
