package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// The causes with which a callback's context ends before the drain.
var (
	errLeaseLost = errors.New("the message went to another member of the group")
	errOverrun   = errors.New("the handler has run for longer than it may")
)

// keep renews leases and does the housekeeping until ctx ends.
func (m *member) keep(ctx context.Context) {
	every := m.d.cfg.Lease / 3
	nextTrim := time.Now().Add(jitter(m.d.cfg.TrimEvery))
	for backoff.Sleep(ctx, every) {
		// Young leases are left alone: under load most messages end before their first
		// renewal.
		due := m.flights.older(time.Now().Add(-every/2), m.sub.HandlerTimeout+every)
		if err := m.renew(ctx, due); err != nil {
			m.failed("renew", err)
		}
		if err := m.beat(ctx); err != nil && !missingGroup(err) {
			m.failed("beat", err)
		}
		if time.Now().After(nextTrim) {
			if err := m.trim(ctx); err != nil {
				m.failed("trim", err)
			}
			nextTrim = time.Now().Add(jitter(m.d.cfg.TrimEvery))
		}
	}
}

// renew restarts the leases of fls and gives up those that another member has.
func (m *member) renew(ctx context.Context, fls []*flight) error {
	for chunk := range slices.Chunk(fls, maxSettle) {
		args := make([]any, 0, 2+len(chunk))
		args = append(args, m.sub.Group, m.name)
		for _, fl := range chunk {
			args = append(args, fl.id)
		}
		at := time.Now() // before the call: a lease never seems longer than it is
		lost, err := m.d.scripts.renew.Run(ctx, m.d.cmd, []string{m.keys.stream}, args...).StringSlice()
		switch {
		case missingGroup(err):
			lost = nil
			for _, fl := range chunk {
				lost = append(lost, fl.id)
			}
		case err != nil && !errors.Is(err, redis.Nil):
			return fmt.Errorf("renew leases: %w", err)
		}
		m.flights.renewedAt(at, chunk)
		m.lose(lost)
	}
	return nil
}

// lose gives up what another member has.
func (m *member) lose(ids []string) {
	n := m.flights.lose(ids, errLeaseLost)
	if n == 0 {
		return
	}
	// The answer may be old: what has been handed out here anew since it was given is
	// this member's, by the server's book, and nobody else would ever take it.
	m.suspect.Store(true)
	m.d.metrics.leasesLost.WithLabelValues(m.sub.Group).Add(float64(n))
	m.log.Warn().Int("messages", n).Msg("leases lost: the messages went to other members while their handlers ran here")
}

// beat notes that this member lives.
func (m *member) beat(ctx context.Context) error {
	mixed, err := m.d.scripts.beat.Run(ctx, m.d.cmd, []string{m.keys.stream, m.keys.members(m.sub.Group)},
		m.sub.Group, m.name, parkingName, m.tagsKey(), m.d.staleAfter().Milliseconds()).Int64()
	if err != nil {
		return fmt.Errorf("note that the member lives: %w", err)
	}
	m.d.metrics.mixedTags.WithLabelValues(m.sub.Group).Set(float64(mixed))
	return nil
}

// maxTrim bounds one XTRIM: it must not hold the server up.
const maxTrim = 100_000

// trim removes what every group has finished, if no other member did so just now.
func (m *member) trim(ctx context.Context) error {
	raw, err := m.d.scripts.trim.Run(ctx, m.d.cmd, []string{m.keys.stream, m.keys.trimLock},
		(m.d.cfg.TrimEvery / 2).Milliseconds(), m.d.cfg.Retention.Milliseconds(), m.d.cfg.MaxLen, maxTrim).Int64Slice()
	if err != nil {
		return fmt.Errorf("trim %s: %w", m.keys.stream, err)
	}
	if len(raw) != 3 || raw[2] < 0 {
		return nil // another member's turn
	}
	m.d.metrics.trimmed.WithLabelValues(m.sub.Topic, "finished").Add(float64(raw[0]))
	m.d.metrics.trimmed.WithLabelValues(m.sub.Topic, "fuse").Add(float64(raw[1]))
	if raw[1] > 0 {
		m.log.Error().Int64("messages", raw[1]).Int64("length", raw[2]).Str("stream", m.keys.stream).
			Msg("memory fuse: the stream was cut at its greatest length, unread messages may be among the cut")
	}
	return nil
}
