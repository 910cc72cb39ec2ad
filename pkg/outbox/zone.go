package outbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/seahub/seahub-mq/pkg/lease"
)

// Zone is the result of comparing the newest created_at with NOW(3) in our session.
type Zone struct {
	// Known is false on an empty table.
	Known bool `json:"known"`
	// Ahead is how far the newest event lies ahead of NOW, negative if behind.
	Ahead time.Duration `json:"newest_ahead_ns"`
	// Suspect is the suspected difference of the zones, 0 if there is none to suspect.
	Suspect time.Duration `json:"suspected_offset_ns"`
	Hint    string        `json:"hint,omitempty"`
}

const (
	// zoneStep: all zones differ from each other by a multiple of it.
	zoneStep = 15 * time.Minute
	// zoneMax is the greatest difference of two zones.
	zoneMax = 26 * time.Hour
	// zoneSlack is how close to a whole hour a newest event that lies behind must be.
	// The app may simply have been idle for that long, so this is a hint and no more.
	zoneSlack = 90 * time.Second
)

// CheckZone compares the newest created_at with NOW. An event from the future can only
// come from another zone or a wrong clock; one that is whole hours old may.
func (s *Store) CheckZone(ctx context.Context) (Zone, error) {
	seconds, ok, err := s.newestAhead(ctx)
	if err != nil || !ok {
		return Zone{}, err
	}
	return zoneOf(time.Duration(seconds) * time.Second), nil
}

func zoneOf(ahead time.Duration) Zone {
	z := Zone{Known: true, Ahead: ahead}
	switch {
	case ahead >= zoneStep-zoneSlack:
		z.Suspect = ahead.Round(zoneStep)
		z.Hint = fmt.Sprintf("the newest event lies %s ahead of this session's clock: the writers' zone seems to be %s ahead of SEAHUB_DB_TIME_ZONE (seahub.db.time-zone), or a writer's clock is wrong", ahead, z.Suspect)
	case ahead <= -time.Hour+zoneSlack && ahead >= -zoneMax && distance(ahead, time.Hour) <= zoneSlack:
		z.Suspect = ahead.Round(time.Hour)
		z.Hint = fmt.Sprintf("the newest event lies almost exactly %s behind this session's clock: unless the app wrote none since, the writers' zone is behind SEAHUB_DB_TIME_ZONE (seahub.db.time-zone)", -z.Suspect)
	}
	return z
}

func distance(d, step time.Duration) time.Duration {
	return time.Duration(math.Abs(float64(d - d.Round(step))))
}

// suspectZone notices, while running, a writer whose clock or zone is behind: an event
// that is older than the last sweep which left nothing behind, and yet was not there.
// A transaction that stayed open that long looks the same.
func (w *worker) suspectZone(ctx context.Context, res passResult) {
	if w.sweptClean.IsZero() || res.oldestNew < time.Since(w.sweptClean)+zoneStep {
		return
	}
	w.metrics.zoneSkew.Set(-res.oldestNew.Round(zoneStep).Seconds())
	w.logs.warn(ctx, "zone", nil, fmt.Sprintf(
		"an event appeared that was written %s ago by its created_at: the writer's zone or clock differs from SEAHUB_DB_TIME_ZONE (seahub.db.time-zone), or its transaction was open that long; such events wait for the sweep",
		res.oldestNew.Round(time.Second)))
}

// CheckStart looks at what would make the relay fail or be slow, and says what to do.
// It is for start-up: a missing table, column or index is an error here rather than one
// per pass, and a suspected zone is named.
func (s *Store) CheckStart(ctx context.Context) (Zone, error) {
	relay := relayStore{db: s.db}
	if err := relay.canSkipLocked(ctx); err != nil {
		return Zone{}, err
	}
	_, errOutbox := relay.waiting(ctx, tail())
	_, errDelayed := relay.dueWaiting(ctx)
	_, errLease := lease.New(s.db).List(ctx, LeasePrefix)
	if err := errors.Join(errOutbox, errDelayed, errLease); err != nil {
		return Zone{}, fmt.Errorf("the database is not as required, run `relay migrate`: %w", err)
	}
	return s.CheckZone(ctx)
}
