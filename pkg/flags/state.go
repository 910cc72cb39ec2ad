package flags

import "time"

// Source says who decided a flag.
type Source string

// The sources, strongest first.
const (
	SourceEnvOff  Source = "environment (explicit false)"
	SourceRow     Source = "database row"
	SourceEnvOn   Source = "environment (true, no row)"
	SourceDefault Source = "default (off)"
)

// rule is one version of a flag as far as it decides about rows.
type rule struct {
	enabled     bool
	basisPoints int
	salt        string
}

func (r rule) on(flag Name, rowID string) bool {
	return r.enabled && (r.basisPoints >= FullRollout || Bucket(flag, r.salt, rowID) < r.basisPoints)
}

// superseded is a rule that some process may still go by, until a change is binding.
type superseded struct {
	rule
	until time.Time
}

// State is a flag at the time of a snapshot. It is a value; the methods reckon with
// the time that has passed since the snapshot was read.
type State struct {
	Flag        Name
	Enabled     bool
	BasisPoints int
	// Version counts the changes of the row; 0 where no row decides.
	Version int64
	// EffectiveAt is when the last change is binding, on the database's clock.
	EffectiveAt time.Time
	Source      Source
	UpdatedBy   string
	Reason      string

	salt     string
	previous []superseded
	clock    clock
}

// clock carries the database's time on, by this process's monotonic clock.
type clock struct {
	database  time.Time // NOW(3) of the snapshot; zero before the first one
	asked     time.Time // when the question left
	answered  time.Time // when the answer was there
	firstBoot bool      // nothing has been read yet
}

// now is the database's time, at most that: the answer may have been on its way.
func (c clock) now() time.Time { return c.database.Add(time.Since(c.answered)) }

func (s State) rule() rule {
	return rule{enabled: s.Enabled, basisPoints: s.BasisPoints, salt: s.salt}
}

// On says whether the flag, as it stands, gives the row to the event path. Paths ask
// EventOwns and PollOwns, which know of changes that are not binding yet.
func (s State) On(rowID string) bool { return s.rule().on(s.Flag, rowID) }

// EventOwns says whether the event path is to work on the row.
func (s State) EventOwns(rowID string) bool {
	if s.Source == SourceEnvOff {
		return false
	}
	if s.On(rowID) {
		return true
	}
	now := s.clock.now()
	for _, p := range s.previous {
		if now.Before(p.until) && p.on(s.Flag, rowID) {
			return true
		}
	}
	return false
}

// PollOwns says whether the poll is to work on the row. Both may own a row at a time.
func (s State) PollOwns(rowID string, createdAt time.Time) bool {
	return !s.On(rowID) || createdAt.Before(s.EffectiveAt)
}

// Age is how old the knowledge behind the state is.
func (s State) Age() time.Duration {
	if s.clock.firstBoot {
		return 0
	}
	return time.Since(s.clock.asked)
}

// Stale says that the state must not be used to leave a row to the other path: a
// change may have become binding since. What the environment decides is never stale.
func (s State) Stale() bool {
	if s.Source == SourceEnvOff {
		return false
	}
	return s.clock.firstBoot || s.Age() > MaxAge
}
