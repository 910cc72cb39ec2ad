package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracing is the part of Base that says where traces go.
type Tracing struct {
	Endpoint string        `env:"SEAHUB_TRACE_ENDPOINT" key:"seahub.trace.endpoint" help:"OTLP/HTTP collector that traces are sent to, such as http://otel-collector:4318; empty means no traces"`
	Headers  string        `env:"SEAHUB_TRACE_HEADERS" key:"seahub.trace.headers" secret:"true" help:"headers of each request to the collector, as name=value, separated by commas"`
	Sample   float64       `env:"SEAHUB_TRACE_SAMPLE" envDefault:"0.01" key:"seahub.trace.sample" min:"0" max:"1" help:"share recorded of the traces that begin here; one that business code began follows its decision"`
	Timeout  time.Duration `env:"SEAHUB_TRACE_TIMEOUT" envDefault:"5s" key:"seahub.trace.timeout" min:"100ms" max:"1m" help:"longest wait for the collector; what it does not take is dropped"`
}

// Validate checks what tags cannot say.
func (t Tracing) Validate() error {
	if t.Endpoint != "" {
		u, err := url.Parse(t.Endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return errors.New("SEAHUB_TRACE_ENDPOINT (seahub.trace.endpoint): is not of the form http://host:port or https://host:port")
		}
	}
	if _, err := t.headers(); err != nil {
		return fmt.Errorf("SEAHUB_TRACE_HEADERS (seahub.trace.headers): %w", err)
	}
	return nil
}

// headers never quotes its input: it is secret.
func (t Tracing) headers() (map[string]string, error) {
	out := map[string]string{}
	for i, pair := range strings.Split(t.Headers, ",") {
		if t.Headers == "" {
			break
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, fmt.Errorf("entry %d is not of the form name=value", i+1)
		}
		out[name] = strings.TrimSpace(value)
	}
	return out, nil
}

// startTracing gives the process its provider, nil while traces are off. A collector
// that is away costs the spans that do not fit its queue, and nothing else.
func (p *Process) startTracing(ctx context.Context, name string) error {
	cfg := p.base.Tracing
	if cfg.Endpoint == "" {
		return nil
	}
	headers, err := cfg.headers()
	if err != nil {
		return err
	}
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(strings.TrimSuffix(cfg.Endpoint, "/")+"/v1/traces"),
		otlptracehttp.WithHeaders(headers), otlptracehttp.WithTimeout(cfg.Timeout))
	if err != nil {
		return fmt.Errorf("start tracing: %w", err)
	}
	// The SDK has this one place for what goes wrong in the background.
	log := zerolog.Ctx(ctx)
	var said atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		now, last := time.Now().Unix(), said.Load()
		if now-last >= 60 && said.CompareAndSwap(last, now) {
			log.Warn().Err(err).Msg("traces are lost; said at most once a minute")
		}
	}))
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithExportTimeout(cfg.Timeout)),
		sdktrace.WithSampler(sdktrace.ParentBased(linked{sdktrace.TraceIDRatioBased(cfg.Sample)})),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", name),
			attribute.String("service.version", BuildInfo().Version),
			attribute.String("deployment.environment.name", p.base.Env),
			attribute.String("seahub.country", p.base.Country),
		)))
	p.tracers = provider
	p.OnStop("traces", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn().Err(err).Msg("the last traces could not be sent")
		}
		return nil
	})
	return nil
}

// linked records what is linked to a recorded span: a batch has no parent, and its events'
// transactions have decided.
type linked struct{ sdktrace.Sampler }

// ShouldSample implements sdktrace.Sampler.
func (s linked) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	for _, l := range p.Links {
		if l.SpanContext.IsSampled() {
			return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
		}
	}
	return s.Sampler.ShouldSample(p)
}

// TracerProvider makes the spans of this process; nil while traces are off.
func (p *Process) TracerProvider() trace.TracerProvider { return p.tracers }

// Traced is a transport whose requests are spans of the one in their context; without
// one it only passes them on. Spans name the host and the status: a URL may hold a
// signature, a token or an id. No context is sent along, since whoever answers is not
// part of this system.
func Traced(next http.RoundTripper) http.RoundTripper { return &tracedTransport{next} }

type tracedTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *tracedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	parent := trace.SpanFromContext(r.Context())
	if !parent.IsRecording() {
		return t.next.RoundTrip(r)
	}
	ctx, span := parent.TracerProvider().Tracer("github.com/seahub/seahub-mq/pkg/service").Start(r.Context(), r.Method,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("http.request.method", r.Method), attribute.String("server.address", r.URL.Hostname())))
	defer span.End()
	res, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		span.SetStatus(codes.Error, "no answer")
		return nil, err
	}
	span.SetAttributes(attribute.Int("http.response.status_code", res.StatusCode))
	if res.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, "")
	}
	return res, nil
}

// CloseIdleConnections lets http.Client close the connections of what is wrapped.
func (t *tracedTransport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
