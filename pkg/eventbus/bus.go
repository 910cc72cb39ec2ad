package eventbus

import (
	"context"
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// Errors that callers test.
var (
	// ErrClosed: the bus was closed.
	ErrClosed = driver.ErrClosed
	// ErrHalted: a subscription gave up for good; going on could only do harm.
	ErrHalted = driver.ErrHalted
	// ErrDuplicateSubscription: the group is subscribed already in this process.
	ErrDuplicateSubscription = errors.New("group is already subscribed in this process")
	// ErrSubscription: what was asked for cannot be subscribed to.
	ErrSubscription = errors.New("invalid subscription")
)

// Parts is one broker as its driver offers it. Close releases what the parts share;
// it is called once, after the last subscription has ended.
type Parts struct {
	Sender      driver.Sender
	Receiver    driver.Receiver
	Inspector   driver.Inspector
	Provisioner driver.Provisioner
	// Warnings, when not nil, names settings of the broker with which events can be
	// lost. It asks nobody.
	Warnings func() []string
	Close    func(ctx context.Context) error
}

// Option changes what New builds.
type Option func(*options)

type options struct {
	deadLetters DeadLetters
	registerer  prometheus.Registerer
	tracers     trace.TracerProvider
}

// WithDeadLetters names the store of dead letters. Subscribe needs one.
func WithDeadLetters(store DeadLetters) Option { return func(o *options) { o.deadLetters = store } }

// WithRegisterer exports the bus's metrics.
func WithRegisterer(r prometheus.Registerer) Option { return func(o *options) { o.registerer = r } }

// Registerer returns the registerer among opts, nil if there is none: drivers export
// their own metrics to the same place.
func Registerer(opts ...Option) prometheus.Registerer { return collect(opts).registerer }

func collect(opts []Option) options {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Bus is one broker as services see it. All methods are safe for concurrent use.
type Bus struct {
	parts       Parts
	cfg         Config
	env         string
	country     string
	deadLetters DeadLetters
	metrics     *metrics
	tracing     *tracing
	publisher   *Publisher

	mu     sync.Mutex
	closed bool
	states map[string]*state // by group, kept after the subscription's end
	// running is waited for by Close; it grows only under mu while closed is false.
	running sync.WaitGroup
	stop    context.CancelFunc
	stopped context.Context // ends when Close is called; every subscription ends with it
}

// New makes a bus of a driver's parts; env ("id-test") and country ("id") are this
// deployment's own, by which events of another one are recognised. Services call
// provider.Open instead.
func New(parts Parts, cfg Config, env, country string, opts ...Option) *Bus {
	o := collect(opts)
	b := &Bus{
		parts: parts, cfg: cfg.withDefaults(), env: env, country: country,
		deadLetters: o.deadLetters, tracing: newTracing(o.tracers), states: map[string]*state{},
	}
	b.stopped, b.stop = context.WithCancel(context.Background())
	b.metrics = newMetrics(o.registerer, b.snapshot)
	b.publisher = &Publisher{sender: parts.Sender, metrics: b.metrics, tracing: b.tracing}
	return b
}

// Publisher returns the bus's publisher.
func (b *Bus) Publisher() *Publisher { return b.publisher }

// Inspector looks at topics and groups without touching them.
func (b *Bus) Inspector() driver.Inspector { return b.parts.Inspector }

// Provisioner makes topics and groups, or is nil on a broker where a person does.
func (b *Bus) Provisioner() driver.Provisioner { return b.parts.Provisioner }

// Warnings names settings of the broker with which events can be lost, in words for a
// readiness answer. It asks nobody and is empty while nothing is known.
func (b *Bus) Warnings() []string {
	if b.parts.Warnings == nil {
		return nil
	}
	return b.parts.Warnings()
}

// Close stops every subscription politely, waits for them until ctx ends, and closes
// the broker's connections. Closing twice is harmless.
func (b *Bus) Close(ctx context.Context) error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	b.stop()
	ended := make(chan struct{})
	go func() { // ends with the last subscription, which the drain time bounds
		defer close(ended)
		b.running.Wait()
	}()
	var errs []error
	select {
	case <-ended:
	case <-ctx.Done():
		errs = append(errs, errors.New("close event bus: subscriptions were still draining when the time was up; their events will be redelivered"))
	}
	if !first {
		return errors.Join(errs...)
	}
	if err := b.parts.Sender.Close(ctx); err != nil {
		errs = append(errs, err)
	}
	if b.parts.Close != nil {
		if err := b.parts.Close(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
