package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/budget"
)

// page brings one page's products into the tables, and the cursor behind it with the
// last of them. When the slice ends in the middle, what is done is written and the page
// comes again: looks that were made in this round are not repeated.
func (s *syncer) page(ctx context.Context, r *round, items []product, next *cursor, m mode) error {
	entries, err := s.entries(ctx, r, items)
	if err != nil {
		return err
	}
	if err := s.makeLinks(ctx, r, entries); err != nil {
		return err
	}
	if len(entries) == 0 {
		return s.saveBounded(ctx, r, nil, next)
	}
	for len(entries) > 0 {
		some := entries[:min(len(entries), m.batch)]
		entries = entries[len(some):]
		lookErr := s.lookAt(ctx, r, some, m.parallel)
		moved := next
		if len(entries) > 0 || lookErr != nil {
			moved = nil
		}
		if lookErr != nil { // all that the page brought, links above all
			some = append(some, entries...)
		}
		if err := s.saveBounded(ctx, r, some, moved); err != nil {
			return err
		}
		if lookErr != nil {
			return lookErr
		}
	}
	return nil
}

func (s *syncer) saveBounded(ctx context.Context, r *round, entries []*entry, next *cursor) error {
	ctx, cancel := context.WithTimeout(writing(ctx), finishTimeout)
	defer cancel()
	return s.store.save(ctx, r, s.cfg.Lease, entries, next, s.cfg.LinkInvalidAfter)
}

// entries joins a page with what the tables know. A product that a page has twice, as a
// list that shifts while it is read brings about, counts once.
func (s *syncer) entries(ctx context.Context, r *round, items []product) ([]*entry, error) {
	ids := make([]string, 0, len(items))
	var entries []*entry
	seen := map[idText]bool{}
	for _, p := range items {
		if p.ID == "" {
			return nil, &apiError{call: "products", name: "product without an id", kind: transient}
		}
		if !seen[p.ID] {
			seen[p.ID] = true
			ids = append(ids, string(p.ID))
			entries = append(entries, &entry{product: p})
		}
	}
	have, err := s.store.readKnown(ctx, r.CampaignID, ids)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		k, ok := have[string(e.product.ID)]
		if !ok {
			k.Fresh = -1
		}
		e.known = k
	}
	return entries, nil
}

// makeLinks asks for the links that are missing, in batches. A batch that the platform
// refuses for a reason of the campaign's leaves its products without links: the rest of
// the sync is worth as much without them.
func (s *syncer) makeLinks(ctx context.Context, r *round, entries []*entry) error {
	var missing []*entry
	for _, e := range entries {
		if e.known.Link == "" {
			missing = append(missing, e)
		}
	}
	for len(missing) > 0 {
		some := missing[:min(len(missing), maxLinkBatch)]
		missing = missing[len(some):]
		ids := make([]string, len(some))
		for i, e := range some {
			ids[i] = string(e.product.ID)
		}
		made, err := s.api.links(ctx, r.CampaignID, ids)
		if k, ok := kindOf(err); ok && k == item {
			s.metrics.linksRefused.Add(float64(len(some)))
			zerolog.Ctx(ctx).Warn().Err(err).Int("products", len(some)).Msg("links were refused; the products are synced without them")
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range some {
			e.made = s.acceptable(ctx, made[string(e.product.ID)])
			if e.made == "" {
				s.metrics.linksRefused.Inc()
			}
		}
	}
	return nil
}

// acceptable keeps links that could not be checked out of the tables: the app would show
// them to people.
func (s *syncer) acceptable(ctx context.Context, link string) string {
	if link == "" {
		return ""
	}
	if _, why := s.looks.mayFetch(link); why != "" || len(link) > 512 {
		zerolog.Ctx(ctx).Warn().Str("reason", why).Msg("TikTok made a share link that is not acceptable; it is dropped")
		return ""
	}
	return link
}

// lookAt checks the links of entries, at most so many at a time, as fast as the shared
// budget allows. An error tells why some were not looked at.
func (s *syncer) lookAt(ctx context.Context, r *round, entries []*entry, parallel int) error {
	var open []*entry
	for _, e := range entries {
		if e.link() != "" && (e.known.Round != r.Round || e.made != "") && !s.isFresh(e) {
			open = append(open, e)
		}
	}
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan struct{}, parallel)
	for len(open) > 0 {
		n := min(len(open), s.blockSize(parallel))
		grant, err := s.enterLinks(ctx, n)
		if err != nil {
			return err
		}
		for i, e := range open[:n] {
			if i > 0 && grant.Every > time.Millisecond && !backoff.Sleep(ctx, grant.Every) {
				return context.Cause(ctx)
			}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				s.lookOnce(ctx, e)
			})
		}
		open = open[n:]
	}
	return nil
}

// blockSize is how many looks are taken from the budget at once: a quarter of a second's
// worth, so that replicas take turns.
func (s *syncer) blockSize(parallel int) int {
	return max(1, min(parallel, int(s.cfg.LinkRate/4)))
}

func (s *syncer) isFresh(e *entry) bool {
	return s.cfg.LinkFresh > 0 && e.made == "" && e.known.Status == statusValid && e.known.Fresh >= 0 && e.known.Fresh < s.cfg.LinkFresh
}

func (s *syncer) enterLinks(ctx context.Context, n int) (budget.Grant, error) {
	// A handler that waits longer would hold a place that another campaign can use.
	patience := min(s.cfg.Lease/4, apiPatience)
	grant, err := s.linkPace.Wait(ctx, n, patience)
	var busy *budget.BusyError
	if errors.As(err, &busy) {
		return grant, &laterError{after: busy.After, cause: err}
	}
	if err != nil && ctx.Err() != nil {
		return grant, context.Cause(ctx)
	}
	return grant, err
}

// lookOnce fills in one entry's verdict.
func (s *syncer) lookOnce(ctx context.Context, e *entry) {
	defer func() {
		if v := recover(); v != nil { // in a goroutine nobody further out would catch it
			e.checked, e.looked = true, looked{reason: "panic"}
			zerolog.Ctx(ctx).Error().Str("type", fmt.Sprintf("%T", v)).Msg("a look at a link panicked")
		}
	}()
	began := time.Now()
	l := s.looks.look(ctx, e.link())
	s.metrics.look(l, time.Since(began))
	e.checked, e.looked = true, l
	if l.slow {
		if err := s.linkPace.Slow(writing(ctx), max(l.pause, throttlePause)); err != nil {
			zerolog.Ctx(ctx).Warn().Err(err).Msg("the budget of share links was not slowed")
		}
	}
}
