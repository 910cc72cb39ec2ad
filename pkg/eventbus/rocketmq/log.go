package rocketmq

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Timeouts of the client's connections, the same for all: the client keeps them in a
// global. A dial blocks all calls of one client, also those to other brokers. Reading
// must outlast the client's long poll of 30 s, and idle connections.
const (
	dialTimeout  = 3 * time.Second
	readTimeout  = 2 * time.Minute
	writeTimeout = 10 * time.Second
)

// clientGlobals guards the client's own globals: setting them while a client runs is
// a race, so the first driver of a process does.
var (
	clientGlobals sync.Once
	clientPanics  atomic.Pointer[prometheus.Counter]
)

func setClientGlobals(logger zerolog.Logger) {
	clientGlobals.Do(func() {
		l := &clientLog{logger: logger}
		rlog.SetLogger(l)
		primitive.DefaultPanicHandler = func(any) {
			if c := clientPanics.Load(); c != nil {
				(*c).Inc()
			}
			l.line(zerolog.ErrorLevel, "a goroutine of the client panicked and was recovered", nil)
		}
		// The only way to set them is an option, and an option needs an object. This
		// one is never started.
		_, _ = producer.NewDefaultProducer(
			producer.WithInstanceName("seahub-globals"),
			producer.WithNameServer([]string{"127.0.0.1:1"}),
			producer.WithRemotingTimeout(dialTimeout, readTimeout, writeTimeout))
	})
}

func countClientPanics(c prometheus.Counter) { clientPanics.Store(&c) }

// clientLog takes the client's lines: warnings and errors, at most one in logEvery.
// Its fields are dropped but for names, since they hold whole messages.
type clientLog struct {
	logger zerolog.Logger

	mu         sync.Mutex
	next       time.Time
	suppressed int
}

const logEvery = 10 * time.Second

func (l *clientLog) line(level zerolog.Level, msg string, fields map[string]any) {
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
	e := l.logger.WithLevel(level).Str("client", "rocketmq").Int("suppressed", n)
	for _, name := range [...]string{rlog.LogKeyTopic, rlog.LogKeyConsumerGroup, rlog.LogKeyBroker} {
		if s, ok := fields[name].(string); ok {
			e = e.Str(name, s)
		}
	}
	e.Msg(msg)
}

// The methods below are the client's interface.

func (l *clientLog) Debug(msg string, _ map[string]any) { clientWork.heartbeat(msg) }
func (l *clientLog) Info(msg string, f map[string]any)  { clientWork.balanced(msg, f) }

func (l *clientLog) Warning(msg string, f map[string]any) {
	clientWork.heartbeat(msg)
	l.line(zerolog.WarnLevel, msg, f)
}
func (l *clientLog) Error(msg string, f map[string]any) { l.line(zerolog.ErrorLevel, msg, f) }

// Fatal does not end the process: that is not a library's to decide.
func (l *clientLog) Fatal(msg string, f map[string]any) { l.line(zerolog.ErrorLevel, msg, f) }

func (l *clientLog) Level(string)            {}
func (l *clientLog) OutputPath(string) error { return nil }
