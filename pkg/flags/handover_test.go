package flags

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// world is a database with one flag, and processes that read it at their own times.
// Time is synctest's: hours pass in an instant.
type world struct {
	random  *rand.Rand
	row     *Row
	history []Row // youngest first
	pending []commit
	hands   time.Time // when the row was last edited by hand
}

// commit is a change whose transaction has a timestamp but is not visible yet.
type commit struct {
	at  time.Time
	row Row
}

func (w *world) set(enabled bool, points int) {
	version := int64(1)
	if n := len(w.pending); n > 0 {
		return // the CAS on the version lets one change through at a time
	}
	if w.row != nil {
		version = w.row.Version + 1
	}
	w.pending = append(w.pending, commit{
		at: time.Now().Add(time.Duration(w.random.Int64N(int64(setTimeout)))),
		row: Row{Flag: PushDispatch, Country: "id", Enabled: enabled, BasisPoints: points, Salt: "salt",
			Version: version, EffectiveAt: time.Now().Add(HandOver)},
	})
}

func (w *world) commit() {
	for _, c := range w.pending {
		if time.Now().Before(c.at) {
			return
		}
		row := c.row
		w.row = &row
		w.history = append([]Row{row}, w.history...)
		w.pending = nil
	}
}

// byHand changes the row as an SQL client would: no version, no binding time.
func (w *world) byHand() {
	if w.row == nil || len(w.pending) > 0 || time.Since(w.hands) < 2*HandOver {
		return
	}
	w.hands = time.Now()
	row := *w.row
	row.Enabled = !row.Enabled
	w.row = &row
}

// proc is one process; broken means that it does not reach the database.
type proc struct {
	f      *Flags
	next   time.Time
	broken bool
}

func (p *proc) refresh(w *world) bool {
	if p.broken {
		return false
	}
	now := time.Now()
	r := reading{
		clock: clock{database: now, asked: now, answered: now},
		rows:  map[Name]Row{}, previous: map[Name][]superseded{}, bad: map[Name]string{}, byHand: map[Name]rule{},
	}
	if w.row != nil {
		r.take(*w.row, w.history)
		if w.row.EffectiveAt.After(now) {
			var older []Row
			for _, h := range w.history {
				if h.Version < w.row.Version {
					older = append(older, h)
				}
			}
			env := p.f.cfg.PushDispatch
			r.previous[PushDispatch] = chain(*w.row, older, env != nil && *env)
		}
	}
	p.f.current.Store(&snapshot{states: p.f.merge(p.f.current.Load(), r), clock: r.clock})
	return true
}

// skips is what the handler of package task does with an event of the row: true means
// that the event is gone for good and only the poll is left.
func (p *proc) skips(w *world, id string) bool {
	if p.f.Get(PushDispatch).EventOwns(id) {
		return false
	}
	if p.f.Get(PushDispatch).Stale() && !p.refresh(w) {
		return false // comes back later
	}
	return !p.f.Get(PushDispatch).EventOwns(id)
}

// leaves is what the poll of package task does: true means that it does not work on
// the row now.
func (p *proc) leaves(w *world, id string, created time.Time) bool {
	if p.f.Get(PushDispatch).Stale() && !p.refresh(w) {
		return false // the pass does not take place: nothing is decided
	}
	return !p.f.Get(PushDispatch).PollOwns(id, created)
}

// skipped is a row whose event was given up.
type skipped struct {
	id      string
	created time.Time
}

// Whatever operators do, and whenever processes notice: once a consumer has skipped
// the event of a row, every poll process works on that row, at any later time.
func TestNeverNeitherWhateverIsFlippedWhen(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { neverNeither(t, seed) })
		})
	}
}

func neverNeither(t *testing.T, seed uint64) {
	w := &world{random: rand.New(rand.NewPCG(seed, 1))}
	on := true
	cfg := Config{}
	if seed%3 == 0 {
		cfg.PushDispatch = &on
	}
	procs := make([]*proc, 6) // the first three consume, the others poll
	for i := range procs {
		f, err := New(nil, cfg, "id", nil)
		require.NoError(t, err)
		procs[i] = &proc{f: f, next: time.Now().Add(time.Duration(w.random.Int64N(int64(5 * time.Second))))}
	}
	var rows []skipped
	inFlight := map[string]time.Time{}
	skips, owned := 0, 0
	for step := range 1500 {
		time.Sleep(time.Duration(w.random.Int64N(int64(500 * time.Millisecond))))
		w.step(procs)
		id := fmt.Sprint("row-", step)
		inFlight[id] = time.Now()
		for id, created := range inFlight {
			if w.random.IntN(3) == 0 {
				continue // its event is still on its way
			}
			if procs[w.random.IntN(3)].skips(w, id) {
				rows, skips = append(rows, skipped{id, created}), skips+1
			} else {
				owned++
			}
			delete(inFlight, id)
		}
		for _, r := range rows {
			for _, p := range procs[3:] {
				if p.leaves(w, r.id, r.created) {
					t.Fatalf("step %d: the event of %s (created %s ago) was skipped and a poll leaves the row: %+v",
						step, r.id, time.Since(r.created), p.f.Get(PushDispatch))
				}
			}
		}
		if len(rows) > 300 {
			rows = rows[150:] // the poll has done them by now
		}
	}
	require.Positive(t, skips)
	require.Positive(t, owned)
}

// step lets operators, the database and the processes do what is due.
func (w *world) step(procs []*proc) {
	w.commit()
	switch w.random.IntN(40) {
	case 0:
		w.set(true, []int{1, 1000, 5000, FullRollout}[w.random.IntN(4)])
	case 1:
		w.set(false, 0)
	case 2:
		w.byHand()
	}
	for _, p := range procs {
		if w.random.IntN(200) == 0 {
			p.broken = !p.broken
		}
		if !time.Now().Before(p.next) {
			p.refresh(w)
			p.next = time.Now().Add(3 * time.Second)
		}
	}
}

// The other promise: once a change is binding and read, only one path works on new rows.
func TestAfterTheHandOverOnePathWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{random: rand.New(rand.NewPCG(1, 1))}
		f, err := New(nil, Config{}, "id", nil)
		require.NoError(t, err)
		p := &proc{f: f}
		p.refresh(w)
		before := time.Now()
		w.set(true, FullRollout)
		time.Sleep(setTimeout)
		w.commit()
		p.refresh(w)
		require.True(t, f.Get(PushDispatch).EventOwns("r"), "events from the moment it is read")
		require.True(t, f.Get(PushDispatch).PollOwns("r", time.Now()), "and the poll as long as it is not binding")
		time.Sleep(HandOver)
		p.refresh(w)
		require.True(t, f.Get(PushDispatch).EventOwns("r"))
		require.False(t, f.Get(PushDispatch).PollOwns("r", time.Now()))
		require.True(t, f.Get(PushDispatch).PollOwns("r", before), "an older row stays with the poll until it is done")

		w.set(false, 0)
		time.Sleep(setTimeout)
		w.commit()
		p.refresh(w)
		require.True(t, f.Get(PushDispatch).EventOwns("r"), "events until the off is binding")
		require.True(t, f.Get(PushDispatch).PollOwns("r", time.Now()))
		time.Sleep(HandOver)
		require.False(t, f.Get(PushDispatch).EventOwns("r"), "also without another reading")
	})
}

// A rollout step takes no row from the event path, and does not give it all rows either.
func TestStepOfARolloutConcernsItsRowsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{random: rand.New(rand.NewPCG(1, 1))}
		f, err := New(nil, Config{}, "id", nil)
		require.NoError(t, err)
		p := &proc{f: f}
		for _, points := range []int{1000, 2000} {
			w.set(true, points)
			time.Sleep(setTimeout)
			w.commit()
			p.refresh(w)
			state := f.Get(PushDispatch)
			n := 0
			for i := range 2000 {
				if state.EventOwns(fmt.Sprint(i)) {
					n++
				}
			}
			require.InDelta(t, points*2000/FullRollout, n, 60, "no more than its share, also during the hand-over")
			time.Sleep(HandOver)
		}
	})
}
