package redisstreams

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
)

// clientLog takes the lines of go-redis, whose logger is one for the whole process
// and writes to stderr unless it is replaced. While a server is away it repeats
// itself with every attempt; one line in logEvery is enough, with a count of the rest.
type clientLog struct {
	logger zerolog.Logger

	mu         sync.Mutex
	next       time.Time
	suppressed int
}

const logEvery = 10 * time.Second

// routeClientLog sends go-redis' lines to logger. The last driver opened wins; lines
// do not say which client they are of.
func routeClientLog(logger zerolog.Logger) { redis.SetLogger(&clientLog{logger: logger}) }

// Printf implements the interface of go-redis.
func (l *clientLog) Printf(_ context.Context, format string, v ...any) {
	l.mu.Lock()
	if time.Now().Before(l.next) {
		l.suppressed++
		l.mu.Unlock()
		return
	}
	l.next = time.Now().Add(logEvery)
	n := l.suppressed
	l.suppressed = 0
	l.mu.Unlock()
	l.logger.Warn().Str("client", "go-redis").Int("suppressed", n).Msg(fmt.Sprintf(format, v...))
}
