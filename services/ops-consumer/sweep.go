package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/task"
)

// commitTime is what writing a sweep's outcome may take beyond its budget.
const commitTime = 10 * time.Second

// sweeper measures everything, decides about alerts and writes both, one sweep at a time
// in the whole deployment.
type sweeper struct {
	cfg     Config
	store   store
	leases  *lease.Store
	flags   *flags.Flags
	rules   []rule
	metrics *metrics

	missed atomic.Int64 // sweeps of this process in a row that failed
}

// Poll implements task.Poller. The sweep runs in every mode of the flag, as it did
// before there were events; what the flag changes is where six figures come from.
func (s *sweeper) Poll(ctx context.Context, scope task.Scope) (task.Result, error) {
	if scope.Fallback {
		return task.Result{}, nil // the same sweep has just been made
	}
	name := "ops-sweep:" + s.store.country
	err := s.leases.Hold(ctx, name, s.leaseTTL(), func(ctx context.Context, h *lease.Held) error {
		return s.sweep(ctx, name, h)
	})
	switch {
	case errors.Is(err, lease.ErrHeld):
		s.metrics.forget(s.shownFor())
		return task.Result{}, nil
	case err != nil:
		s.metrics.sweeps.WithLabelValues("failed").Inc()
		s.missed.Add(1)
		return task.Result{}, fmt.Errorf("sweep: %w", err)
	}
	s.missed.Store(0)
	s.metrics.forget(s.shownFor())
	return task.Result{}, nil
}

// shownFor is how long a process shows the figures of its sweep while others sweep.
func (s *sweeper) shownFor() time.Duration { return 2*s.cfg.Sweep.Every + s.cfg.Sweep.Budget }

// leaseTTL is how long a sweeper that died keeps the others from sweeping.
func (s *sweeper) leaseTTL() time.Duration {
	return max(5*time.Second, min(s.cfg.Sweep.Every, 30*time.Second))
}

// Overdue implements task.Poller: nothing here is due to events alone.
func (s *sweeper) Overdue(context.Context, time.Duration, func(string, time.Time) bool) (task.Overdue, error) {
	return task.Overdue{}, nil
}

// sweep is one round, unless another process made one just now.
func (s *sweeper) sweep(ctx context.Context, leaseName string, h *lease.Held) (err error) {
	began := time.Now()
	sweepID := newSweepID()
	ctx = event.WithLogFields(ctx, event.LogFields{Trace: event.Trace{RequestID: sweepID}})
	budget, cancel := context.WithTimeout(ctx, s.cfg.Sweep.Budget)
	defer cancel()
	r, err := s.store.reader(budget, s.cfg.Sweep.StatementTimeout)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := r.close(); closeErr != nil && err == nil && !errors.Is(closeErr, sql.ErrConnDone) {
			err = closeErr
		}
	}()
	if since, ok, err := r.sinceSweep(budget, s.store.country); err != nil || ok && since >= 0 && since < s.cfg.Sweep.Every*4/5 {
		return err
	}
	now, err := r.now(budget)
	if err != nil {
		return err
	}
	rows, err := r.alerts(budget, s.store.country)
	if err != nil {
		return err
	}
	o := outcome{}
	o.figures, o.agreements = s.measure(budget, r, now)
	var tells []told
	o.alerts, tells = s.decide(o.figures, rows, now, sweepID)
	o.messages = s.compose(tells, now, sweepID)
	commit, cancelCommit := context.WithTimeout(ctx, commitTime)
	defer cancelCommit()
	if err := s.store.commit(commit, leaseName, h.Fence(), o); err != nil {
		return err
	}
	s.metrics.swept(time.Since(began), o, rows)
	for _, t := range tells {
		zerolog.Ctx(ctx).Warn().Str("rule", t.alert.Rule).Str("subject", t.alert.Subject).Str("kind", t.kind).
			Str("task", t.alert.Detail.Task).Msg("alert: " + t.alert.Detail.Summary)
	}
	s.purge(ctx, h)
	return nil
}

// purge removes what is no longer needed, in small batches, as far as its share of a
// sweep's time goes; the next sweep goes on.
func (s *sweeper) purge(ctx context.Context, h *lease.Held) {
	ctx, cancel := context.WithTimeout(ctx, commitTime)
	defer cancel()
	for began := time.Now(); time.Since(began) < commitTime/2 && h.ValidFor(time.Second); {
		more, err := s.store.purge(ctx, s.cfg.Sweep.KeepIDs, s.cfg.Alert.Keep)
		if err != nil {
			zerolog.Ctx(ctx).Warn().Err(err).Msg("old rows of the figures were not removed, the next sweep tries again")
		}
		if err != nil || !more {
			return
		}
	}
}

func newSweepID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "sweep-" + hex.EncodeToString(b[:])
}

// measure takes all figures. One that fails is unknown and costs the others nothing but
// its time.
func (s *sweeper) measure(ctx context.Context, r reader, now time.Time) ([]figure, map[string]agreement) {
	var figures []figure
	agreements := map[string]agreement{}
	for _, def := range definitions() {
		if def.Metric == "" {
			figures = append(figures, s.polled(ctx, r, def))
			continue
		}
		f, a := s.counts(ctx, r, def, now)
		if a != nil {
			agreements[string(def.Metric)] = *a
		}
		figures = append(figures, f)
	}
	figures = append(figures, s.pipe(ctx, r)...)
	figures = append(figures, s.apart(ctx, r, now)...)
	figures = append(figures, s.advise(ctx, r, figures))
	for _, f := range figures {
		if f.Value != nil || strings.HasPrefix(f.Name, "group_") {
			continue // GroupUnknown tells of a group, once
		}
		lost := known("figure_unknown", cutText(f.Name+suffix(f.Subject), 128), unitState, 1)
		lost.Note, lost.Task = f.Note, f.Task
		figures = append(figures, lost)
	}
	return figures, agreements
}

func suffix(subject string) string {
	if subject == "" {
		return ""
	}
	return "/" + subject
}

// polled measures a figure that only a poll can see.
func (s *sweeper) polled(ctx context.Context, r reader, def definition) figure {
	f := figure{Name: def.Name, Unit: def.Unit, Source: sourceSQL}
	v, err := s.one(ctx, r, def.SQL)
	if err != nil {
		f.Note = err.Error()
		return f
	}
	f.Value = &v
	if def.Unit == unitRows && v > figureCap {
		f.Note = "at least"
	}
	return f
}

// one runs a figure's statement in its time.
func (s *sweeper) one(ctx context.Context, r reader, query string, args ...any) (float64, error) {
	// The server ends it first; the client's limit is for a server that is silent.
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Sweep.StatementTimeout+time.Second)
	defer cancel()
	began := time.Now()
	v, err := r.number(ctx, query, args...)
	s.metrics.statement.Observe(time.Since(began).Seconds())
	if err != nil {
		s.metrics.unknown.Inc()
	}
	return v, err
}

// apart tells, by metric, what came too late to be counted where it belongs.
func (s *sweeper) apart(ctx context.Context, r reader, now time.Time) []figure {
	var out []figure
	for _, def := range definitions() {
		if def.Metric == "" {
			continue
		}
		_, apart, err := r.bucketSum(ctx, s.store.country, string(def.Metric), floorMinute(now).Add(-s.cfg.Sweep.Window), floorMinute(now).Add(ahead))
		if err != nil {
			out = append(out, unknown("counted_apart", string(def.Metric), unitRows, err))
			continue
		}
		f := known("counted_apart", string(def.Metric), unitRows, apart)
		f.Source, f.Task = sourceEvents, string(flags.OpsSnapshot)
		out = append(out, f)
	}
	return out
}

// Ready is for /readyz: the figures are read and written by whoever has the lease, so one
// process that cannot is no reason to take it out.
func (s *sweeper) Ready() (bool, string) {
	if n := s.missed.Load(); n > 2 {
		return true, fmt.Sprintf("the last %d sweeps failed", n)
	}
	return true, ""
}
