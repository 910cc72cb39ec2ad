package flags

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

const (
	// announceEvery is how soon a process tells that it goes by another version,
	// heartbeat how often it says that nothing has changed, announceAgain how soon it
	// tries again what failed.
	announceEvery = 250 * time.Millisecond
	heartbeat     = 5 * time.Second
	announceAgain = 2 * time.Second
	announceTime  = 2 * time.Second
	// PodAlive is how recent a pod's word must be for it to count: one that was killed
	// and one that hangs look the same for so long.
	PodAlive = time.Minute
	// podsKept is when the word of a process that is gone is removed.
	podsKept = 24 * time.Hour
	// complainEvery keeps a database that is away from filling the log.
	complainEvery = time.Minute
)

// Self is what a process says of itself when it announces what it goes by.
type Self struct {
	Flag     Name
	Instance string
	Role     string
}

// Pod is a process that goes by a flag, as others see it.
type Pod struct {
	Flag     Name   `json:"flag"`
	Country  string `json:"country"`
	Instance string `json:"instance"`
	Role     string `json:"role"`
	// Version is the row's as the pod last read it, 0 if there was none; GoesBy says
	// whether the row decides there at all.
	Version int64  `json:"version"`
	GoesBy  Source `json:"goesBy"`
	// Since is how long it has gone by this, Seen how long ago it last said so.
	Since time.Duration `json:"sinceNs"`
	Seen  time.Duration `json:"seenNs"`
}

// Lags says whether the pod has not seen the version yet.
func (p Pod) Lags(version int64) bool { return p.Version < version }

// seen is what a process goes by, as far as it announces it.
type seen struct {
	version int64
	goesBy  Source
}

func (f *Flags) seen(name Name) (s seen, read bool) {
	now := f.current.Load()
	return seen{version: now.versions[name], goesBy: now.states[name].Source}, !now.clock.firstBoot
}

// Announce tells in mq_flag_seen what this process goes by until ctx ends, and then
// takes its word back: at once when it changes, and now and then to show that it is
// alive. A database without the table (a newer version than its schema) or that is
// away costs nothing but this knowledge.
func (f *Flags) Announce(ctx context.Context, self Self) error {
	var said seen
	var saidAt, complained, notBefore time.Time
	for backoff.Sleep(ctx, announceEvery) {
		now, read := f.seen(self.Flag)
		if !read || time.Now().Before(notBefore) || now == said && time.Since(saidAt) < heartbeat {
			continue
		}
		err := f.announce(ctx, self, now)
		if err == nil {
			if saidAt.IsZero() {
				f.forgetPods(ctx)
			}
			said, saidAt = now, time.Now()
			continue
		}
		notBefore = time.Now().Add(announceAgain)
		if ctx.Err() == nil && time.Since(complained) > complainEvery {
			complained = time.Now()
			zerolog.Ctx(ctx).Warn().Err(err).Str("flag", string(self.Flag)).Msg("nobody can see which version of the flag this process goes by")
		}
	}
	if !saidAt.IsZero() {
		f.takeBack(context.WithoutCancel(ctx), self)
	}
	return nil
}

func (f *Flags) announce(ctx context.Context, self Self, now seen) error {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	return writePod(ctx, f.db, f.country, self, now)
}

func (f *Flags) forgetPods(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	if err := forgetPods(ctx, f.db, podsKept); err != nil {
		zerolog.Ctx(ctx).Warn().Err(err).Msg("the words of processes that are gone stay")
	}
}

func (f *Flags) takeBack(ctx context.Context, self Self) {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	if err := deletePod(ctx, f.db, f.country, self); err != nil {
		zerolog.Ctx(ctx).Warn().Err(err).Msg("this process will be taken for one that hangs, for a minute")
	}
}
