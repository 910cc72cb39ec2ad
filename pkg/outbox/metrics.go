package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one relay. No label carries an id.
type metrics struct {
	published      prometheus.Counter
	retried        prometheus.Counter
	failed         *prometheus.CounterVec
	passes         *prometheus.CounterVec
	markLost       prometheus.Counter
	late           prometheus.Counter
	databaseErrors prometheus.Counter
	delayedMoved   prometheus.Counter
	delayedDropped prometheus.Counter
	purged         prometheus.Counter
	publishSeconds prometheus.Histogram
	age            prometheus.Histogram

	working       prometheus.Gauge
	failingClass  *prometheus.GaugeVec
	failingOldest prometheus.Gauge
	zoneSkew      prometheus.Gauge

	pending       prometheus.Gauge
	oldestPending prometheus.Gauge
	failedRows    prometheus.Gauge
	delayedRows   prometheus.Gauge
	historyList   prometheus.Gauge
}

// newMetrics registers with reg, which may be nil. A relay that is made again on the same
// registry goes on with the collectors that are there.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	r := registrar{reg: reg}
	counter := func(name, help string) prometheus.Counter {
		return register(&r, prometheus.NewCounter(prometheus.CounterOpts{Name: "seahub_outbox_" + name, Help: help}))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return register(&r, prometheus.NewGauge(prometheus.GaugeOpts{Name: "seahub_outbox_" + name, Help: help}))
	}
	histogram := func(name, help string, first float64) prometheus.Histogram {
		return register(&r, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seahub_outbox_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(first, 2, 18),
		}))
	}
	m := &metrics{
		published:      counter("published_total", "Events that the broker confirmed and that were marked."),
		retried:        counter("retried_total", "Failed attempts of events that are tried again later."),
		markLost:       counter("mark_lost_total", "Published rows that were no longer PENDING when they were marked."),
		late:           counter("late_passes_total", "Passes given up before their send because the process had stood still."),
		databaseErrors: counter("database_errors_total", "Statements of the relay that failed."),
		delayedMoved:   counter("delayed_moved_total", "Delayed events that became due."),
		delayedDropped: counter("delayed_dropped_total", "Delayed events dropped when due because their event_id existed."),
		purged:         counter("purged_total", "Published rows deleted after their retention."),
		publishSeconds: histogram("publish_seconds", "Time of one batch at the broker.", 0.0005),
		age:            histogram("event_age_seconds", "Age of events when they are published, since they were written or requeued.", 0.001),
		working:        gauge("working", "1 while this relay holds a slot, 0 while it stands by."),
		failingOldest:  gauge("publish_failing_oldest_seconds", "Age of the oldest event of the pass that failed last; 0 while publishing works."),
		zoneSkew:       gauge("zone_skew_seconds", "Suspected difference between the writers' time zone and this session's; 0 if none."),
		pending:        gauge("pending", "Waiting events, counted up to a cap."),
		oldestPending:  gauge("oldest_pending_seconds", "Age of the oldest waiting event."),
		failedRows:     gauge("failed", "FAILED events, counted up to a cap."),
		historyList:    gauge("history_list_length", "The server's history list length, which an old snapshot lets grow; NaN where the server does not tell."),
		delayedRows:    gauge("delayed", "Events that are due later, counted up to a cap."),
	}
	m.failed = register(&r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "seahub_outbox_failed_total", Help: "Events that became FAILED, by reason: refused or attempts.",
	}, []string{"reason"}))
	m.passes = register(&r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "seahub_outbox_passes_total", Help: "Passes by the part of the queue that they looked at.",
	}, []string{"scope"}))
	m.failingClass = register(&r, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "seahub_outbox_publish_failing", Help: "1 for the class of failure while publishing fails: unavailable, throttled or failed.",
	}, []string{"class"}))
	m.failing(Confirmed, 0)
	return m, errors.Join(r.errs...)
}

type registrar struct {
	reg  prometheus.Registerer
	errs []error
}

func register[C prometheus.Collector](r *registrar, c C) C {
	if r.reg == nil {
		return c
	}
	err := r.reg.Register(c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if old, ok := there.ExistingCollector.(C); ok {
			return old
		}
	}
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("register a metric: %w", err))
	}
	return c
}

// failing sets the gauges of the outage; Confirmed ends it.
func (m *metrics) failing(class Class, oldest time.Duration) {
	for _, c := range [...]Class{Unavailable, Throttled, Failed} {
		v := 0.0
		if c == class {
			v = 1
		}
		m.failingClass.WithLabelValues(c.String()).Set(v)
	}
	m.failingOldest.Set(oldest.Seconds())
}
