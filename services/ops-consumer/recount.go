package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/flags"
)

// agreement is what recounts say of one rolling count. Its life:
//
//	flag on ──▶ counting from the next minute ──▶ n recounts in a row agree, and the
//	  ▲         buckets fill the window ──▶ the figure comes from events
//	  │                                          │
//	  └── back to SQL, counting anew ◀── flag off or changed, or one recount disagrees
//
// Nothing on both sides is neither agreement nor disagreement, so that a metric which no
// writer feeds stays with SQL, however quiet it is.
type agreement struct {
	FlagVersion   int64
	CountingFrom  time.Time
	Agreements    int
	Disagreements int
	RecountedAt   time.Time
	BySQL         *int64
	ByEvents      *int64
}

// begin starts counting anew, not before the change of the flag is binding.
func begin(now, effectiveAt time.Time, version int64) agreement {
	from := now
	if version > 0 && !effectiveAt.IsZero() {
		from = effectiveAt
	}
	return agreement{FlagVersion: version, CountingFrom: ceilMinute(from), RecountedAt: now}
}

// due says whether a recount is, and over which range. Both sides are cut by the same
// minutes, all of which have been over for the settling time.
func (a agreement) due(now time.Time, c SweepConfig) (from, to time.Time, ok bool) {
	if now.Sub(a.RecountedAt) < c.RecountEvery {
		return from, to, false
	}
	to = floorMinute(now.Add(-c.RecountSettle))
	from = to.Add(-c.Window)
	if a.CountingFrom.After(from) {
		from = a.CountingFrom
	}
	return from, to, from.Before(to)
}

// recounted is the agreement after a recount.
func (a agreement) recounted(now time.Time, bySQL, byEvents int64) agreement {
	a.RecountedAt, a.BySQL, a.ByEvents = now, &bySQL, &byEvents
	switch {
	case bySQL == 0 && byEvents == 0: // proves nothing about a writer
		return a
	case bySQL == byEvents:
		a.Agreements++
		return a
	}
	a.Agreements = 0
	a.Disagreements++
	a.CountingFrom = ceilMinute(now) // what lies before is known to be wrong
	return a
}

// trusted says whether the figure may come from events now.
func (a agreement) trusted(now time.Time, c SweepConfig) bool {
	return a.Agreements >= c.Agreements && !a.CountingFrom.After(floorMinute(now).Add(-c.Window))
}

// counts measures one rolling count: by events if they are to be believed, else by SQL.
// The agreement is nil where nothing about it changed.
func (s *sweeper) counts(ctx context.Context, r reader, def definition, now time.Time) (figure, *agreement) {
	f := figure{Name: def.Name, Unit: def.Unit, Source: sourceSQL}
	from, to := floorMinute(now).Add(-s.cfg.Sweep.Window), floorMinute(now).Add(ahead)
	a, changed, on, err := s.agree(ctx, r, def, now)
	if err != nil {
		f.Note = err.Error() // SQL decides, whatever the recount met
	}
	if on && err == nil && a.trusted(now, s.cfg.Sweep) {
		n, _, err := r.bucketSum(ctx, s.store.country, string(def.Metric), from, to)
		if err == nil {
			f.Value, f.Source = &n, sourceEvents
			return f, changed
		}
		f.Note = err.Error()
	}
	n, err := s.one(ctx, r, def.SQL, from, to)
	if err != nil {
		f.Note = err.Error()
		return f, changed
	}
	f.Value = &n
	f.Note = s.countNote(on, a)
	if n > figureCap {
		f.Note = "at least"
	}
	return f, changed
}

func (s *sweeper) countNote(on bool, a agreement) string {
	switch {
	case !on:
		return "flag off"
	case a.Disagreements > 0 && a.Agreements == 0 && a.BySQL != nil && a.ByEvents != nil:
		return fmt.Sprintf("the last recount disagreed: %d by SQL, %d by events", *a.BySQL, *a.ByEvents)
	}
	return fmt.Sprintf("%d of %d recounts agreed", a.Agreements, s.cfg.Sweep.Agreements)
}

// agree brings the agreement on a metric up to date.
func (s *sweeper) agree(ctx context.Context, r reader, def definition, now time.Time) (a agreement, changed *agreement, on bool, err error) {
	state := s.flags.Get(flags.OpsSnapshot)
	on = s.cfg.MQ.Provider != "" && !state.Stale() && state.On(string(def.Metric))
	a, exists, err := r.agreement(ctx, s.store.country, string(def.Metric))
	if err != nil {
		return a, nil, on, err
	}
	switch {
	case !on && (!exists || a.Agreements == 0 && a.FlagVersion == offVersion):
		return a, nil, false, nil
	case !on:
		a = begin(now, time.Time{}, offVersion)
		return a, &a, false, nil
	case !exists || a.FlagVersion != state.Version:
		a = begin(now, state.EffectiveAt, state.Version)
		return a, &a, true, nil
	}
	from, to, due := a.due(now, s.cfg.Sweep)
	if !due {
		return a, nil, true, nil
	}
	bySQL, err := s.one(ctx, r, def.SQL, from, to)
	if err != nil {
		return a, nil, true, fmt.Errorf("recount: %w", err)
	}
	byEvents, _, err := r.bucketSum(ctx, s.store.country, string(def.Metric), from, to)
	if err != nil || bySQL > figureCap { // counted to the cap, it compares with nothing
		return a, nil, true, err
	}
	a = a.recounted(now, int64(bySQL), int64(byEvents))
	result := "agreed"
	if bySQL != byEvents {
		result = "disagreed"
	}
	s.metrics.recounts.WithLabelValues(def.Name, result).Inc()
	return a, &a, true, nil
}

// offVersion marks an agreement that ended with the flag: no flag has this version.
const offVersion = -1
