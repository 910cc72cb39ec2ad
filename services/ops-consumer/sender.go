package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/budget"
	"github.com/seahub/seahub-mq/pkg/lease"
)

// What Feishu allows a bot is 5 messages a second and 100 a minute. A burst of 3 at 1.4 a
// second is at most 4 in any second and 87 in any minute.
const (
	feishuRate  = 1.4
	feishuBurst = 3
	// budgetPatience is how long a message waits for its turn at a time.
	budgetPatience = time.Minute
	// Around full and half minutes the whole world sends; Feishu refuses most then.
	markBefore, markAfter = time.Second, 3 * time.Second
)

func feishuBudget(name string) budget.Spec {
	return budget.Spec{Name: name, Start: feishuRate, Least: 0.1, Most: feishuRate, Recover: 0.02, Burst: feishuBurst}
}

// outlet is a route's way out.
type outlet struct {
	route string
	send  func(ctx context.Context, m message, asText bool) answer // nil: no address
	// budget, when not nil, bounds the pace of all replicas together.
	budget *budget.Budget
}

// sender empties one route's queue. Of all processes one does, by a lease, so that
// messages leave in order; each is marked after it was taken. A process that dies between
// the two leaves a message that is sent again, under the same fingerprint and episode.
type sender struct {
	cfg     AlertConfig
	store   store
	leases  *lease.Store
	out     outlet
	metrics *metrics
	beat    func()

	failures  int
	complains time.Time
	odd       odd
}

// oddEnough is how many answers in a row with a code that nobody knows make a message go
// as text: if it is the card that they are about, it would hold up all others for ever.
const oddEnough = 3

// odd counts them, for the message that is at the head.
type odd struct {
	id int64
	n  int
}

func (o *odd) saw(id int64) {
	if o.id != id {
		*o = odd{id: id}
	}
	o.n++
}

// run sends until ctx ends.
func (s *sender) run(ctx context.Context) error {
	name := "ops-sender:" + s.store.country + ":" + s.out.route
	ttl := max(15*time.Second, 3*s.cfg.SendTimeout)
	for {
		s.beat()
		err := s.leases.Hold(ctx, name, ttl, s.drain)
		if err != nil && !errors.Is(err, lease.ErrHeld) && ctx.Err() == nil {
			s.complain(ctx, err, "the queue of messages cannot be worked on")
		}
		if !backoff.Sleep(ctx, s.cfg.SendEvery+rand.N(s.cfg.SendEvery)) {
			return nil
		}
	}
}

// drain sends what waits, and what comes, while the lease is held.
func (s *sender) drain(ctx context.Context, h *lease.Held) error {
	for ctx.Err() == nil {
		s.beat()
		q, err := s.store.nextMessage(ctx, s.out.route)
		switch {
		case errors.Is(err, errMessage):
			s.settle(ctx, h, q.ID, messageRefused, err.Error())
			continue
		case err != nil:
			return err // the lease is of no use without the database
		case q == nil:
			s.failures = 0
			if !backoff.Sleep(ctx, s.cfg.SendEvery) {
				return nil
			}
			continue
		}
		if wait := s.deliver(ctx, h, q); !backoff.Sleep(ctx, wait) {
			return nil
		}
	}
	return nil
}

// deliver makes one attempt and returns how long to wait before the next.
func (s *sender) deliver(ctx context.Context, h *lease.Held, q *queued) time.Duration {
	if s.out.send == nil {
		zerolog.Ctx(ctx).Warn().Str("rule", q.Message.Rule).Str("kind", q.Message.Kind).Str("route", s.out.route).
			Msg("no address is configured for this route; the alert: " + clean(q.Message.text(), 2000))
		s.settle(ctx, h, q.ID, messageLogged, "no address is configured")
		return 0
	}
	if err := s.turn(ctx); err != nil {
		if ctx.Err() == nil && !errors.Is(err, budget.ErrBusy) {
			s.complain(ctx, err, "a message cannot get its turn")
		}
		return time.Second
	}
	if !h.ValidFor(s.cfg.SendTimeout) {
		return 50 * time.Millisecond // it is being renewed, or another process sends by now
	}
	a := s.send(ctx, q.Message, s.odd.id == q.ID && s.odd.n >= oddEnough)
	if a.class == answerTooLarge || a.class == answerBadBody {
		s.metrics.sends.WithLabelValues(s.out.route, "shrunk").Inc()
		if err := s.turn(ctx); err != nil {
			return time.Second
		}
		a = s.send(ctx, q.Message, true)
	}
	return s.judge(ctx, h, q, a)
}

// send makes one request. An order to stop lets it end: one that is cut off in the middle
// may have been taken, and would be made again.
func (s *sender) send(ctx context.Context, m message, asText bool) answer {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.SendTimeout)
	defer cancel()
	return s.out.send(ctx, m, asText)
}

// turn waits for the budget, and off the marks of the clock.
func (s *sender) turn(ctx context.Context) error {
	if s.out.budget == nil {
		return nil
	}
	if _, err := s.out.budget.Wait(ctx, 1, budgetPatience); err != nil {
		return err
	}
	if !backoff.Sleep(ctx, offMark(time.Now(), rand.N(2*time.Second))) {
		return context.Cause(ctx)
	}
	return nil
}

// offMark is how long to wait so as not to send around a full or a half minute.
func offMark(now time.Time, jitter time.Duration) time.Duration {
	past := time.Duration(now.UnixNano()) % (30 * time.Second)
	switch {
	case past < markAfter:
		return markAfter - past + jitter
	case past > 30*time.Second-markBefore:
		return 30*time.Second - past + markAfter + jitter
	}
	return 0
}

// judge settles an attempt.
func (s *sender) judge(ctx context.Context, h *lease.Held, q *queued, a answer) time.Duration {
	result := [...]string{"taken", "throttled", "failed", "configuration", "refused", "refused"}[a.class]
	s.metrics.sends.WithLabelValues(s.out.route, result).Inc()
	switch a.class {
	case answerTaken:
		s.failures = 0
		s.settle(ctx, h, q.ID, messageSent, "")
		return 0
	case answerTooLarge, answerBadBody:
		s.complain(ctx, a.err, "a message was refused for good, also as text")
		s.settle(ctx, h, q.ID, messageRefused, a.err.Error())
		return 0
	case answerThrottled:
		if s.out.budget != nil {
			if err := s.out.budget.Slow(ctx, max(a.wait, 2*time.Second)); err != nil {
				s.complain(ctx, err, "the pace was not lowered")
			}
		}
	}
	if a.class == answerTransient && a.code != 0 {
		s.odd.saw(q.ID)
	}
	s.failures++
	s.complain(ctx, a.err, fmt.Sprintf("message of %s was not taken (%s), it stays queued", q.Message.Rule, result))
	s.settle(ctx, h, q.ID, messageQueued, a.err.Error())
	if a.class == answerConfig {
		return s.cfg.SendBackoffMax
	}
	return max(min(a.wait, s.cfg.SendBackoffMax), backoff.Policy{Base: time.Second, Max: s.cfg.SendBackoffMax}.Delay(s.failures))
}

// settle writes what became of a message, and insists while the lease holds: a message
// that was taken and is not marked would be sent again.
func (s *sender) settle(ctx context.Context, h *lease.Held, id int64, status, why string) {
	ctx = context.WithoutCancel(ctx)
	for {
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := s.store.settleMessage(bounded, id, status, why)
		cancel()
		if err == nil {
			return
		}
		s.complain(ctx, err, "what became of a message was not written")
		if status == messageQueued || !h.ValidFor(3*time.Second) || !backoff.Sleep(ctx, 200*time.Millisecond) {
			return
		}
	}
}

// complain writes a line, at most one every ten seconds.
func (s *sender) complain(ctx context.Context, err error, text string) {
	if time.Since(s.complains) < 10*time.Second {
		return
	}
	s.complains = time.Now()
	zerolog.Ctx(ctx).Error().Err(err).Str("route", s.out.route).Msg(text)
}
