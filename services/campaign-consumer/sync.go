package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/budget"
)

// finishTimeout bounds the writes after the last request. They are made even if the
// process is told to stop: what was done must be known.
const finishTimeout = 5 * time.Second

// errSliceOver: the time for this piece of work is used up; the rest comes later.
var errSliceOver = errors.New("slice is over")

// platform is the Open API as the sync sees it.
type platform interface {
	campaigns(ctx context.Context, token string) (page[campaign], error)
	products(ctx context.Context, campaignID, token string) (page[product], error)
	links(ctx context.Context, campaignID string, ids []string) (map[string]string, error)
}

// syncer brings one campaign's products up to date, for the handler and for the poll
// alike.
type syncer struct {
	cfg      Config
	store    store
	api      platform
	looks    *linkChecker
	linkPace pacer
	metrics  *metrics
	alarms   alarms
	instance string
	leases   atomic.Uint64
	// eventOwns says whether the event path works on a campaign now.
	eventOwns func(campaignID string) bool
}

// mode is how the two paths differ: events check links side by side and write a page at
// once, the old sync does one product after the other.
type mode struct {
	parallel int
	batch    int
	// slice is how long to work before the rest is left for later. No page is begun in its
	// second half: one that is cut has to be asked for again.
	slice time.Duration
}

func (s *syncer) byEvents() mode {
	return mode{parallel: s.cfg.LinkParallel, batch: s.cfg.PageSize, slice: s.cfg.Slice}
}

// serially works until the campaign is done; each write renews the lease.
func (s *syncer) serially() mode { return mode{parallel: 1, batch: 1, slice: 24 * time.Hour} }

// result is what became of one piece of work. One of its parts is set.
type result struct {
	finished string   // the final state
	refused  *refusal // it was not leased, or taken over
	left     bool     // the rest is left for later
	wait     time.Duration
	woken    bool // and an event will bring it back
}

// run leases a round and works on it for one slice. wake says whether what is left
// needs an event.
func (s *syncer) run(ctx context.Context, campaignID, roundID string, m mode, wake func() bool) (result, error) {
	owner := s.instance + "#" + strconv.FormatUint(s.leases.Add(1), 36)
	r, refused, err := s.store.leaseRound(ctx, campaignID, roundID, owner, s.cfg.Lease)
	if err != nil {
		return result{}, err
	}
	if r == nil {
		s.metrics.results.WithLabelValues("lease_refused").Inc()
		return result{refused: &refused}, nil
	}
	truncated, err := s.slice(ctx, r, m)
	// From here on the round is ours to give back, also when told to stop.
	writes, cancelWrites := context.WithTimeout(writing(ctx), finishTimeout)
	defer cancelWrites()
	out, err := s.settle(writes, r, truncated, err, wake)
	if errors.Is(err, errFenced) {
		s.metrics.results.WithLabelValues("taken_over").Inc()
		zerolog.Ctx(ctx).Warn().Err(err).Int64("fence", r.Fence).Msg("campaign was taken over by another worker; nothing was changed after that")
		why, err := s.store.whyRefused(writes, campaignID, roundID)
		return result{refused: &why}, err
	}
	return out, err
}

// slice works for as long as the mode says, and keeps the lease meanwhile. How it was
// ended stands for every error that followed from that.
func (s *syncer) slice(ctx context.Context, r *round, m mode) (truncated string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.slice, errSliceOver)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		s.keep(ctx, r, end)
	}()
	truncated, err = s.pages(ctx, r, m)
	if cause := context.Cause(ctx); err != nil && cause != nil &&
		(errors.Is(err, cause) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		err = errSliceOver
		if errors.Is(cause, errFenced) {
			err = cause
		}
	}
	end(nil)
	<-kept
	return truncated, err
}

// keep renews the lease until the work ends. It ends the work when another has the
// campaign; while the database is away, the fence must do.
func (s *syncer) keep(ctx context.Context, r *round, end context.CancelCauseFunc) {
	for backoff.Sleep(ctx, s.cfg.Lease/3) {
		if err := s.store.renew(ctx, r, s.cfg.Lease); errors.Is(err, errFenced) {
			end(err)
			return
		}
	}
}

// pages walks through the campaign's list from the cursor on. truncated says why the
// list was left before its end, "" if it was not.
func (s *syncer) pages(ctx context.Context, r *round, m mode) (truncated string, err error) {
	if r.Pages > 0 && r.PageToken == "" {
		return "", nil // whoever had it before got to the end of the list
	}
	seen := map[string]bool{r.PageToken: true}
	began := time.Now()
	for {
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case time.Since(began) >= m.slice/2:
			return "", errSliceOver
		}
		p, err := s.api.products(ctx, r.CampaignID, r.PageToken)
		if k, ok := kindOf(err); ok && k == badPage && r.PageToken != "" && r.Restarts == 0 {
			zerolog.Ctx(ctx).Warn().Err(err).Int("pages", r.Pages).Msg("page token is no longer good, the campaign starts again from its first page")
			if err := s.store.restart(writing(ctx), r); err != nil {
				return "", err
			}
			clear(seen)
			continue
		}
		if err != nil {
			return "", err
		}
		next := cursor{token: p.next, pages: r.Pages + 1, products: r.Products + len(p.items), reportedTotal: p.total}
		if err := s.page(ctx, r, p.items, &next, m); err != nil {
			return "", err
		}
		r.PageToken, r.Pages, r.Products, r.ReportedTotal, r.Failures = next.token, next.pages, next.products, next.reportedTotal, 0
		if why := cutBy(next, seen); why != "" || next.token == "" {
			return why, nil
		}
		seen[next.token] = true
	}
}

// cutBy says why the list must be left before its end, "" if it need not.
func cutBy(c cursor, seen map[string]bool) string {
	switch {
	case c.token == "":
		return ""
	case seen[c.token]:
		return "page token came twice"
	case c.pages >= maxProductPages:
		return fmt.Sprintf("more than %d pages", maxProductPages)
	case c.products >= maxProducts:
		return fmt.Sprintf("more than %d products", maxProducts)
	}
	return ""
}

// settle writes what follows from how the work ended.
func (s *syncer) settle(ctx context.Context, r *round, truncated string, err error, wake func() bool) (result, error) {
	var later *laterError
	var busy *budget.BusyError
	var refused *apiError
	switch {
	case err == nil:
		return s.finish(ctx, r, truncated)
	case errors.Is(err, errFenced):
		return result{}, err
	case errors.As(err, &later):
		return s.later(ctx, r, later.after, nil, wake)
	case errors.As(err, &busy):
		return s.later(ctx, r, busy.After, nil, wake)
	case errors.Is(err, errSliceOver):
		return s.later(ctx, r, 0, nil, wake)
	case errors.Is(err, errReauthorise), errors.Is(err, errNoToken):
		return s.fail(ctx, r, err)
	case errors.As(err, &refused) && refused.kind == transient:
		if r.Failures+1 >= s.cfg.MaxFailures {
			return s.fail(ctx, r, fmt.Errorf("gave up after %d failures in a row: %w", r.Failures+1, err))
		}
		wait := backoff.Policy{Base: s.cfg.RetryBase, Max: s.cfg.RetryMax}.Delay(r.Failures + 1)
		return s.later(ctx, r, max(wait, refused.retryAfter), err, wake)
	case refused != nil:
		return s.fail(ctx, r, err)
	}
	return result{}, err // the database's or our own: the lease runs out, and the round is taken again
}

func (s *syncer) finish(ctx context.Context, r *round, truncated string) (result, error) {
	e, err := s.store.finish(ctx, r, truncated, s.cfg.GoneAfter)
	if err != nil {
		return result{}, err
	}
	line := zerolog.Ctx(ctx).Info()
	how := "complete"
	switch {
	case truncated != "":
		how, line = "truncated", zerolog.Ctx(ctx).Warn().Str("reason", truncated)
	case !e.complete:
		// Found again by the next round; until then nothing counts as missing.
		how, line = "short", zerolog.Ctx(ctx).Warn().Int("reported", r.ReportedTotal)
	}
	s.metrics.results.WithLabelValues(how).Inc()
	s.metrics.products.Add(float64(e.distinct))
	s.metrics.gone.Add(float64(e.gone))
	line.Str("campaign_id", r.CampaignID).Str("round", r.Round).Int("pages", r.Pages).Int("products", e.distinct).
		Int("gone", e.gone).Msg("campaign synced: " + how)
	return result{finished: stateDone}, nil
}

// fail ends the round; the next listing starts another one.
func (s *syncer) fail(ctx context.Context, r *round, cause error) (result, error) {
	if err := s.store.fail(ctx, r, cause); err != nil {
		return result{}, err
	}
	s.metrics.results.WithLabelValues("failed").Inc()
	if k, ok := kindOf(cause); ok && (k == item || k == transient) {
		zerolog.Ctx(ctx).Warn().Err(cause).Str("campaign_id", r.CampaignID).Msg("round of the campaign failed; the next listing starts another")
		return result{finished: stateFailed}, nil
	}
	s.alarms.raise(ctx, cause, s.metrics)
	return result{finished: stateFailed}, nil
}

// later leaves the rest for later.
func (s *syncer) later(ctx context.Context, r *round, wait time.Duration, failure error, wake func() bool) (result, error) {
	if wait > 0 {
		// Campaigns that were put off together should not come back together.
		wait += rand.N(min(wait/5, 5*time.Second) + time.Millisecond)
	}
	woken := wake()
	if err := s.store.giveBack(ctx, r, wait, failure, woken); err != nil {
		return result{}, err
	}
	s.metrics.results.WithLabelValues("continued").Inc()
	if failure != nil {
		zerolog.Ctx(ctx).Warn().Err(failure).Str("campaign_id", r.CampaignID).Int("failures", r.Failures+1).Dur("wait", wait).
			Msg("campaign is to be continued after a failure")
	}
	return result{left: true, wait: wait, woken: woken}, nil
}
