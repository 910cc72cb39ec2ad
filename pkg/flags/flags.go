package flags

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// Flags holds the flags of one country as this process last read them. All methods
// are safe for concurrent use; Get never waits.
type Flags struct {
	db      *sql.DB
	cfg     Config
	country string

	current  atomic.Pointer[snapshot]
	failures prometheus.Counter

	loading sync.Mutex      // one load at a time
	told    map[Name]string // what the log said last; for the holder of loading
}

// snapshot is one reading of all flags.
type snapshot struct {
	states map[Name]State
	bad    map[Name]string // rows that could not be used, and why
	// versions are the rows', also where the environment decides.
	versions map[Name]int64
	clock    clock
}

// New makes flags that go by the environment alone until the first Refresh. It
// registers its metrics with reg unless reg is nil.
func New(db *sql.DB, cfg Config, country string, reg prometheus.Registerer) (*Flags, error) {
	f := &Flags{
		db: db, cfg: cfg, country: country, told: map[Name]string{},
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seahub_feature_flag_refresh_failures_total",
			Help: "Readings of the flags that failed; the last values stay in use.",
		}),
	}
	now := time.Now()
	boot := clock{asked: now, answered: now, firstBoot: true}
	f.current.Store(&snapshot{states: f.merge(nil, reading{clock: boot}), clock: boot})
	if reg != nil {
		for _, c := range []prometheus.Collector{f.failures, collector{f}} {
			if err := reg.Register(c); err != nil {
				return nil, fmt.Errorf("register metrics of flags: %w", err)
			}
		}
	}
	return f, nil
}

// Get returns the state of a flag as last read; an unknown flag is off.
func (f *Flags) Get(name Name) State {
	s := f.current.Load()
	if state, ok := s.states[name]; ok {
		return state
	}
	return State{Flag: name, Source: SourceDefault, clock: s.clock}
}

// Run refreshes until ctx ends. beat, when not nil, is called after every try.
func (f *Flags) Run(ctx context.Context, beat func()) error {
	every := f.cfg.Refresh
	if every <= 0 {
		every = 3 * time.Second
	}
	var lastLog time.Time
	for {
		if err := f.Refresh(ctx); err != nil && ctx.Err() == nil && time.Since(lastLog) > time.Minute {
			lastLog = time.Now()
			zerolog.Ctx(ctx).Warn().Err(err).Dur("age", f.age()).Msg("flags cannot be read, the last values stay in use")
		}
		if beat != nil {
			beat()
		}
		if !backoff.Sleep(ctx, every) {
			return nil
		}
	}
}

func (f *Flags) age() time.Duration {
	if c := f.current.Load().clock; !c.firstBoot {
		return time.Since(c.asked)
	}
	return 0
}

// Refresh reads the flags now. On an error the last values stay.
func (f *Flags) Refresh(ctx context.Context) error {
	f.loading.Lock()
	defer f.loading.Unlock()
	return f.refresh(ctx)
}

// refresh is called with loading held.
func (f *Flags) refresh(ctx context.Context) error {
	r, err := f.load(ctx)
	if err != nil {
		f.failures.Inc()
		return fmt.Errorf("read flags of country %q: %w", f.country, err)
	}
	before := f.current.Load()
	next := &snapshot{states: f.merge(before, r), bad: r.bad, versions: r.versions(before.versions), clock: r.clock}
	f.current.Store(next)
	f.report(ctx, next)
	return nil
}

// FreshEnough refreshes a flag's state if it is stale, and returns it. An error means
// that nothing may be left to the other path on the strength of the state.
func (f *Flags) FreshEnough(ctx context.Context, name Name) (State, error) {
	if state := f.Get(name); !state.Stale() {
		return state, nil
	}
	f.loading.Lock()
	defer f.loading.Unlock()
	// Whoever held the lock before may have done it.
	if state := f.Get(name); !state.Stale() {
		return state, nil
	}
	err := f.refresh(ctx)
	return f.Get(name), err
}

// merge turns a reading into states. before is nil at first boot.
func (f *Flags) merge(before *snapshot, r reading) map[Name]State {
	states := make(map[Name]State, len(Names()))
	for _, name := range Names() {
		if _, bad := r.bad[name]; bad {
			// One bad row must not change what its flag does, nor freeze the others.
			kept := before.states[name]
			kept.clock = r.clock
			states[name] = kept
			continue
		}
		state := f.decide(name, r)
		if before != nil {
			state = handOver(before.states[name], state, r)
		}
		states[name] = state
	}
	return states
}

// decide applies the order of authority.
func (f *Flags) decide(name Name, r reading) State {
	s := State{Flag: name, Source: SourceDefault, clock: r.clock}
	env := f.cfg.env(name)
	row, has := r.rows[name]
	switch {
	case env != nil && !*env:
		s.Source = SourceEnvOff
	case has:
		s.Source = SourceRow
		s.Enabled, s.BasisPoints, s.salt = row.Enabled, row.BasisPoints, row.Salt
		s.Version, s.EffectiveAt, s.UpdatedBy, s.Reason = row.Version, row.EffectiveAt, row.UpdatedBy, row.Reason
		s.previous = r.previous[name]
	case env != nil:
		s.Source = SourceEnvOn
		s.Enabled, s.BasisPoints = true, FullRollout
	}
	return s
}

// handOver gives a change that brought no binding time of its own (a restart with
// another environment, a row edited or deleted by hand) one in this process.
func handOver(before, now State, r reading) State {
	said, byHand := r.byHand[now.Flag]
	first := before.clock.firstBoot
	moved := first || now.Version != before.Version
	live := stillLive(append(now.previous, before.previous...), r)
	switch declared := now.Source == SourceRow && !byHand; {
	case declared && moved:
		// It carries its own binding time and history.
	case moved || now.rule() != before.rule():
		now.EffectiveAt = r.clock.database.Add(HandOver)
		live = append(live, superseded{before.rule(), now.EffectiveAt})
		if byHand {
			// Others may go by what was declared, also if this process never saw it.
			live = append(live, superseded{said, now.EffectiveAt})
		}
	case before.EffectiveAt.After(now.EffectiveAt):
		// Nothing changed: what an earlier reading found out stays.
		now.EffectiveAt = before.EffectiveAt
	}
	now.previous = live
	return now
}

func stillLive(rules []superseded, r reading) []superseded {
	var live []superseded
	for _, s := range rules {
		if s.until.After(r.clock.database) && !contains(live, s) {
			live = append(live, s)
		}
	}
	return live
}

func contains(rules []superseded, s superseded) bool {
	for _, have := range rules {
		if have.rule == s.rule && have.until.Equal(s.until) {
			return true
		}
	}
	return false
}

// report logs each change and each bad row once.
func (f *Flags) report(ctx context.Context, s *snapshot) {
	for _, name := range Names() {
		state := s.states[name]
		text := fmt.Sprintf("%t %d %d %s %s", state.Enabled, state.BasisPoints, state.Version, state.Source, s.bad[name])
		if f.told[name] == text {
			continue
		}
		first := f.told[name] == ""
		f.told[name] = text
		log := zerolog.Ctx(ctx)
		line := log.Info()
		switch {
		case s.bad[name] != "":
			line = log.Error().Str("row", s.bad[name])
		case name == AppVersionSync && state.Enabled:
			line = log.Warn().Str("note", "nothing consumes this flag")
		case first && !state.Enabled:
			continue
		}
		line.Str("flag", string(name)).Bool("enabled", state.Enabled).Int("basis_points", state.BasisPoints).
			Int64("version", state.Version).Str("source", string(state.Source)).Msg("feature flag")
	}
}
