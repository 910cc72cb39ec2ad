package redisstreams

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

const (
	// duePoll is how late a message may be that another member parked; one that was
	// parked here is never late for that reason.
	duePoll = time.Second
	// adoptEvery is how often the schedule is checked against the parked messages.
	adoptEvery = 15 * time.Second
	adoptMost  = 1000
	// maxRetake bounds one take-over, so that one member does not take all that a
	// sibling left.
	maxRetake = 64
)

// retake hands out what is to be delivered again, until ctx ends: parked messages
// that came due, and messages of members that died.
//
// It asks when a worker is free, as fetch does. Neither starves the other: room is not
// taken before the answer is there, so both get what they asked for at the same time.
func (m *member) retake(ctx context.Context) {
	var (
		again     = backoff.Policy{Base: 50 * time.Millisecond, Max: 2 * time.Second}
		failures  = 0
		nextClaim = time.Now().Add(jitter(m.d.cfg.Lease / 3))
		nextAdopt = time.Now()
		cursor    = "-"
	)
	for ctx.Err() == nil {
		room := m.flights.awaitRoom(ctx, 1, duePoll)
		if ctx.Err() != nil {
			return
		}
		var (
			wait time.Duration
			full bool
			err  error
		)
		if room > 0 {
			wait, full, err = m.unpark(ctx, min(room, maxRetake))
		}
		if now := time.Now(); err == nil && room > 0 && !now.Before(nextClaim) {
			if err = m.claimDead(ctx); err == nil {
				nextClaim = now.Add(jitter(m.d.cfg.Lease / 3))
			}
		}
		if now := time.Now(); err == nil && !now.Before(nextAdopt) {
			if cursor, err = m.adopt(ctx, cursor); err == nil {
				nextAdopt = now.Add(jitter(adoptEvery))
			}
		}
		switch {
		case err != nil:
			failures++
			if !missingGroup(err) { // fetch makes the group again
				m.failed("retake", err)
			}
			backoff.Sleep(ctx, again.Delay(failures))
			continue
		case full || room == 0:
			failures = 0
			continue
		}
		failures = 0
		m.waitDue(ctx, min(wait, time.Until(nextClaim)))
	}
}

func jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/4+1) }

func (m *member) waitDue(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(max(time.Millisecond, d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.due:
	case <-ctx.Done():
	}
}

// unpark takes what is due and returns how long nothing more will be.
func (m *member) unpark(ctx context.Context, most int) (wait time.Duration, full bool, err error) {
	got, next, err := m.retaken(ctx, "parked", func() *redis.Cmd {
		return m.d.scripts.unpark.Run(ctx, m.d.cmd, []string{m.keys.stream, m.keys.due(m.sub.Group)},
			m.sub.Group, m.name, parkingName, most)
	})
	if err != nil {
		return 0, false, err
	}
	wait = duePoll
	if next >= 0 {
		wait = min(wait, time.Duration(next)*time.Millisecond)
	}
	return wait, got == most, nil
}

// claimDead takes over from members that have been silent for the lease.
func (m *member) claimDead(ctx context.Context) error {
	for {
		most := min(m.flights.awaitRoom(ctx, 1, duePoll), maxRetake)
		if most == 0 || ctx.Err() != nil {
			return nil // later: the workers are busy
		}
		got, _, err := m.retaken(ctx, "dead", func() *redis.Cmd {
			return m.d.scripts.claim.Run(ctx, m.d.cmd, []string{m.keys.stream},
				m.sub.Group, m.name, parkingName, m.d.cfg.Lease.Milliseconds(), most)
		})
		if err != nil || got < most {
			return err
		}
	}
}

// retaken runs a claiming script and dispatches what it returned.
func (m *member) retaken(ctx context.Context, source string, run func() *redis.Cmd) (n int, next int64, err error) {
	// Until they are in flights nobody may mistake the claimed messages for unseen ones.
	m.claimMu.Lock()
	defer m.claimMu.Unlock()
	raw, err := run().Slice()
	if err != nil {
		if !missingGroup(err) {
			m.suspect.Store(true)
		}
		return 0, 0, fmt.Errorf("take over %s messages: %w", source, err)
	}
	if len(raw) != 3 {
		return 0, 0, fmt.Errorf("take over %s messages: answer has %d parts", source, len(raw))
	}
	list, _ := raw[0].([]any)
	entries := make([]entry, 0, len(list))
	for _, item := range list {
		if e, ok := scriptEntry(item); ok {
			entries = append(entries, e)
		}
	}
	if gone := toInt(raw[1]); gone > 0 {
		m.d.metrics.vanished.WithLabelValues(m.sub.Group).Add(float64(gone))
		m.log.Error().Int64("messages", gone).Msg("unfinished messages were no longer in the stream; requeue the outbox events of that time")
	}
	if len(entries) > 0 {
		m.d.metrics.claimed.WithLabelValues(m.sub.Group, source).Add(float64(len(entries)))
	}
	m.take(ctx, entries)
	return len(list), toInt(raw[2]), nil
}

// scriptEntry reads {id, {field, value, ...}, counter}.
func scriptEntry(item any) (entry, bool) {
	parts, ok := item.([]any)
	if !ok || len(parts) != 3 {
		return entry{}, false
	}
	id, ok := parts[0].(string)
	flat, isList := parts[1].([]any)
	if !ok || !isList {
		return entry{}, false
	}
	e := entry{id: id, count: toInt(parts[2])}
	for i := 0; i+1 < len(flat); i += 2 {
		name, _ := flat[i].(string)
		value, _ := flat[i+1].(string)
		e.set([]byte(name), []byte(value))
	}
	return e, true
}

// adopt looks at a page of the parked messages and puts those on the schedule that
// are missing there. It returns where the next page begins.
func (m *member) adopt(ctx context.Context, cursor string) (next string, err error) {
	raw, err := m.d.scripts.adopt.Run(ctx, m.d.cmd, []string{m.keys.stream, m.keys.due(m.sub.Group)},
		m.sub.Group, parkingName, cursor, adoptMost).Slice()
	if err != nil {
		return cursor, fmt.Errorf("check parked messages: %w", err)
	}
	if len(raw) != 2 {
		return "-", nil
	}
	if n := toInt(raw[0]); n > 0 {
		m.d.metrics.claimed.WithLabelValues(m.sub.Group, "adopted").Add(float64(n))
		m.log.Warn().Int64("messages", n).Msg("parked messages had lost their due time and are due now")
	}
	if last, _ := raw[1].(string); last != "" {
		return "(" + last, nil
	}
	return "-", nil
}

// release gives back what the server counts as ours but nobody here has: answers that
// were lost on the way. It must not run beside a read.
func (m *member) release(ctx context.Context) error {
	m.claimMu.Lock()
	defer m.claimMu.Unlock()
	for start := "-"; ; {
		page, err := m.d.cmd.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: m.keys.stream, Group: m.sub.Group, Consumer: m.name,
			Start: start, End: "+", Count: maxSettle,
		}).Result()
		if err != nil {
			return fmt.Errorf("look for unseen messages: %w", err)
		}
		var unseen []parking
		for _, p := range page {
			start = "(" + p.ID
			if !m.flights.has(p.ID) {
				unseen = append(unseen, parking{id: p.ID, count: undelivered(p.RetryCount)})
			}
		}
		if len(unseen) > 0 {
			if err := m.park(ctx, unseen); err != nil {
				return fmt.Errorf("give unseen messages back: %w", err)
			}
			m.d.metrics.claimed.WithLabelValues(m.sub.Group, "unseen").Add(float64(len(unseen)))
		}
		if len(page) < maxSettle {
			return nil
		}
	}
}

// releaseUnseen is release at the end, when a read may have been cut short.
func (m *member) releaseUnseen(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := m.release(ctx); err != nil {
		m.failed("release", err)
	}
}
