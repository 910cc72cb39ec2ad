package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// releaseTimeout bounds the statement that frees a lease after the work.
const releaseTimeout = 2 * time.Second

// Hold acquires the lease (ErrHeld if it cannot), runs f and releases the lease. While
// f runs, a goroutine of Hold's own renews every third of ttl. f's context ends with
// ErrLost as its cause when the lease is lost or is about to end unrenewed; f must
// then return soon. Held tells f how long it may still trust the lease.
//
// The error is f's, or ErrLost where f's context ended for it.
func (s *Store) Hold(ctx context.Context, name string, ttl time.Duration, f func(ctx context.Context, h *Held) error) error {
	l, err := s.Acquire(ctx, name, NewOwner(), ttl)
	if err != nil {
		return err
	}
	workCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h := &Held{lease: l}
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		s.keep(workCtx, h, cancel)
	}()
	err = f(workCtx, h)
	lost := errors.Is(context.Cause(workCtx), ErrLost)
	cancel(nil)
	<-renewing
	if lost {
		return errors.Join(fmt.Errorf("%w: %s", ErrLost, name), err)
	}
	freeCtx, cancelFree := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancelFree()
	if e := s.Release(freeCtx, h.Lease()); e != nil {
		// It ends by itself after ttl; a successor waits that long.
		zerolog.Ctx(ctx).Warn().Err(e).Str("lease", name).Msg("lease was not released, it will run out")
	}
	return err
}

// keep renews until ctx ends. It ends the work when it cannot.
func (s *Store) keep(ctx context.Context, h *Held, end context.CancelCauseFunc) {
	retry := backoff.Policy{Base: 50 * time.Millisecond, Max: time.Second}
	failures := 0
	for {
		l := h.Lease()
		wait := l.ttl / 3
		if failures > 0 {
			wait = retry.Delay(failures)
		}
		left := time.Until(l.until)
		if left <= 0 {
			end(fmt.Errorf("%w: %s could not be renewed in time", ErrLost, l.Name))
			return
		}
		if !backoff.Sleep(ctx, min(wait, left)) {
			return
		}
		renewCtx, cancel := context.WithDeadline(ctx, l.until)
		renewed, err := s.Renew(renewCtx, l)
		cancel()
		switch {
		case err == nil:
			failures = 0
			h.set(renewed)
		case errors.Is(err, ErrLost):
			end(err)
			return
		default:
			failures++
		}
	}
}

// Held is a lease that Hold keeps. Safe for concurrent use.
type Held struct {
	mu    sync.Mutex
	lease Lease
}

// Lease is its current state.
func (h *Held) Lease() Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

// ValidFor reports whether the lease, even if it were not renewed again, would still
// be trusted after d.
func (h *Held) ValidFor(d time.Duration) bool { return h.Lease().ValidFor(d) }

// Fence is the number that a write of the holder carries.
func (h *Held) Fence() int64 { return h.Lease().Fence }

func (h *Held) set(l Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lease = l
}
