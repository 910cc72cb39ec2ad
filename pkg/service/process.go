package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
)

// StopMargin is what OnStop functions and stragglers have after DrainTimeout; whoever stops
// a process must have patience for both.
const StopMargin = 10 * time.Second

// Process is a running service. Its methods are for Spec.Run; they are safe for
// concurrent use.
type Process struct {
	base     Base
	registry *registerer
	health   *health
	admin    *http.ServeMux
	tracers  trace.TracerProvider

	ctx    context.Context // ends when the loops are to stop
	cancel context.CancelCauseFunc
	loops  sync.WaitGroup

	mu     sync.Mutex
	onStop []stopFunc
}

type stopFunc struct {
	name string
	f    func(context.Context) error
}

// Registerer is where rooms register their metrics.
func (p *Process) Registerer() prometheus.Registerer { return p.registry }

// Go starts a loop. run must return soon after its context ended, having drained;
// an error stops the process, a nil return before the stop does as well: a loop that
// is gone and not missed would be an outage that nobody sees.
func (p *Process) Go(name string, run func(ctx context.Context) error) {
	p.loops.Add(1)
	go func() {
		defer p.loops.Done()
		err := run(p.ctx)
		switch {
		case p.ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)):
		case err == nil:
			p.cancel(fmt.Errorf("loop %s ended by itself", name))
		default:
			p.cancel(fmt.Errorf("loop %s: %w", name, err))
		}
	}()
}

// Heartbeat registers a loop with /livez: it fails when beat was not called for
// maxAge. The first period counts from here.
func (p *Process) Heartbeat(name string, maxAge time.Duration) (beat func()) {
	return p.health.heartbeat(name, maxAge)
}

// Ready registers a check with /readyz. It must not do I/O. A reason may be given
// with ok true: the process works, but in a lesser way.
func (p *Process) Ready(name string, check func() (ok bool, reason string)) {
	p.health.ready(name, check)
}

// Handle adds a page to the admin listener, by a pattern of http.ServeMux. Once, from
// Spec.Run.
func (p *Process) Handle(pattern string, h http.Handler) { p.admin.Handle(pattern, h) }

// OnStop registers what is to be closed after all loops have returned, the latest
// registered first. f's context ends before the process is given up.
func (p *Process) OnStop(name string, f func(ctx context.Context) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onStop = append(p.onStop, stopFunc{name, f})
}

// runProcess is the life of a service from configuration to exit.
func runProcess(ctx context.Context, spec Spec, environ []string, stderr io.Writer) error {
	warnings, err := load(spec.Config, environ)
	if err != nil {
		return err
	}
	base, err := baseOf(spec.Config)
	if err != nil {
		return err
	}
	log := newLogger(base, spec.Name, stderr)
	ctx = log.WithContext(ctx)
	for _, name := range warnings {
		log.Warn().Str("variable", name).Msg("nobody reads this variable, is it a slip of the pen?")
	}
	p, err := newProcess(ctx, spec.Name, base)
	if err != nil {
		return err
	}
	if err := p.startTracing(ctx, spec.Name); err != nil {
		return err
	}
	admin, err := p.serveAdmin(ctx)
	if err != nil {
		return err
	}
	log.Info().Str("admin", admin.addr).Msg("started")
	err = spec.Run(p.ctx, p)
	if err == nil {
		<-p.ctx.Done()
		if ctx.Err() == nil { // nobody told us to stop: a loop ended it
			err = context.Cause(p.ctx)
		}
	}
	p.cancel(err)
	log.Info().AnErr("cause", context.Cause(p.ctx)).Msg("stopping")
	return errors.Join(err, p.stop(ctx, admin))
}

func newProcess(ctx context.Context, name string, base Base) (*Process, error) {
	p := &Process{base: base, registry: &registerer{Registry: prometheus.NewRegistry()}, health: newHealth(), admin: http.NewServeMux()}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	b := BuildInfo()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "seahub_build_info", Help: "Always 1; the labels tell which binary runs.",
		ConstLabels: prometheus.Labels{"service": name, "version": b.Version, "commit": b.Commit, "go": b.Go},
	})
	info.Set(1)
	for _, c := range []prometheus.Collector{
		info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := p.registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return p, nil
}

// stop waits for the loops, runs the OnStop functions and closes the admin listener
// last, so that a scrape still sees the end.
func (p *Process) stop(ctx context.Context, admin *adminServer) error {
	p.health.stopping()
	again, forget := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM, syscall.SIGINT)
	defer forget()
	bounded, cancel := context.WithTimeout(again, p.base.DrainTimeout+StopMargin)
	defer cancel()
	drained := make(chan struct{})
	go func() { p.loops.Wait(); close(drained) }()
	select {
	case <-drained:
	case <-bounded.Done():
		zerolog.Ctx(ctx).Error().Msg("loops did not end in time, giving up on them")
		// The process ends here: what still runs must not touch anything after the
		// OnStop functions have closed it, and whoever redelivers it counts on us being gone.
		os.Exit(ExitFailed)
	}
	var errs []error
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.onStop) - 1; i >= 0; i-- {
		if err := p.onStop[i].f(bounded); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", p.onStop[i].name, err))
		}
	}
	if admin != nil {
		errs = append(errs, admin.close(bounded))
	}
	zerolog.Ctx(ctx).Info().Msg("stopped")
	return errors.Join(errs...)
}
