package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/event"
)

// logEvery is how often one kind of line is written at most; what falls in between is
// counted in the next one.
const logEvery = 30 * time.Second

// limitedLog keeps an outage from filling the disk. Safe for concurrent use.
type limitedLog struct {
	mu    sync.Mutex
	kinds map[string]*logKind
}

type logKind struct {
	first      time.Time
	last       time.Time
	suppressed int
}

func newLimitedLog() *limitedLog { return &limitedLog{kinds: map[string]*logKind{}} }

// allow reports whether a line of this kind may be written now, and how many were not.
func (l *limitedLog) allow(kind string) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	k := l.kinds[kind]
	if k == nil {
		k = &logKind{first: now}
		l.kinds[kind] = k
	}
	if !k.last.IsZero() && now.Sub(k.last) < logEvery {
		k.suppressed++
		return 0, false
	}
	suppressed, k.suppressed, k.last = k.suppressed, 0, now
	return suppressed, true
}

func (l *limitedLog) warn(ctx context.Context, kind string, err error, msg string) {
	if n, ok := l.allow(kind); ok {
		zerolog.Ctx(ctx).Warn().Err(err).Int("suppressed", n).Msg(msg)
	}
}

// event writes a line about one event, by its ids.
func (l *limitedLog) event(ctx context.Context, kind string, level zerolog.Level, f failure, msg string) {
	if n, ok := l.allow(kind); ok {
		ctx = event.WithLogFields(ctx, event.LogFields{EventID: f.eventID})
		zerolog.Ctx(ctx).WithLevel(level).Err(f.err).Str("outbox_id", f.id).Int("suppressed", n).Msg(msg)
	}
}

// end closes a kind whose trouble is over: one line, and the next trouble is written
// at once.
func (l *limitedLog) end(ctx context.Context, kind, msg string) {
	l.mu.Lock()
	k := l.kinds[kind]
	delete(l.kinds, kind)
	l.mu.Unlock()
	if k != nil {
		zerolog.Ctx(ctx).Info().Dur("lasted_ms", time.Since(k.first)).Int("suppressed", k.suppressed).Msg(msg)
	}
}
