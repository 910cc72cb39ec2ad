package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	figures   *prometheus.GaugeVec
	unknown   prometheus.Counter
	sweeps    *prometheus.CounterVec
	seconds   prometheus.Histogram
	statement prometheus.Histogram
	counted   *prometheus.CounterVec
	recounts  *prometheus.CounterVec
	firing    *prometheus.GaugeVec
	sends     *prometheus.CounterVec

	sweptAt atomic.Int64 // nanoseconds since 1970; 0: no figures are shown
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		figures: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "seahub_ops_figure", Help: "Figures of the last sweep, at the process that made it; one that is unknown is absent.",
		}, []string{"figure", "subject", "source"}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seahub_ops_measurements_failed_total", Help: "Measurements that failed; their figures are unknown.",
		}),
		sweeps: counter("seahub_ops_sweeps_total", "Sweeps by result.", "result"),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seahub_ops_sweep_seconds", Help: "Time of a whole sweep.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 13),
		}),
		statement: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seahub_ops_statement_seconds", Help: "Time of one figure's statement.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}),
		counted:  counter("seahub_ops_counted_total", "Counter events: counted in time, counted apart, or counted before.", "result"),
		recounts: counter("seahub_ops_recounts_total", "Recounts by SQL of rolling counts, by result.", "figure", "result"),
		firing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "seahub_ops_alerts_firing", Help: "Alerts that fire, at the process that made the last sweep.",
		}, []string{"rule", "severity"}),
		sends: counter("seahub_ops_messages_total", "Attempts to send a message, by route and result.", "route", "result"),
	}
	for _, v := range []string{"ok", "failed"} {
		m.sweeps.WithLabelValues(v)
	}
	for _, v := range []counted{countedInTime, countedApart, countedBefore} {
		m.counted.WithLabelValues(v.String())
	}
	for _, route := range []string{routeFeishu, routeSecond} {
		for _, v := range []string{"taken", "throttled", "failed", "configuration", "refused", "shrunk"} {
			m.sends.WithLabelValues(route, v)
		}
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.figures, m.unknown, m.sweeps, m.seconds, m.statement, m.counted, m.recounts, m.firing, m.sends} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of the figures: %w", err)
		}
	}
	return m, nil
}

// swept shows a sweep that was written. rows are the alerts as they were before it.
func (m *metrics) swept(took time.Duration, o outcome, rows map[string]alert) {
	m.sweeps.WithLabelValues("ok").Inc()
	m.seconds.Observe(took.Seconds())
	m.sweptAt.Store(time.Now().UnixNano())
	m.figures.Reset()
	for _, f := range o.figures {
		if f.Value != nil {
			m.figures.WithLabelValues(f.Name, f.Subject, f.Source).Set(*f.Value)
		}
	}
	now := map[string]alert{}
	for print, a := range rows {
		now[print] = a
	}
	for _, a := range o.alerts {
		now[a.Fingerprint] = a
	}
	m.firing.Reset()
	for _, a := range now {
		if a.State == stateFiring {
			m.firing.WithLabelValues(a.Rule, a.Severity).Inc()
		}
	}
}

// forget takes away what this process saw longer ago than that: another one sweeps, and
// its figures and these would be added up.
func (m *metrics) forget(older time.Duration) {
	at := m.sweptAt.Load()
	if at != 0 && time.Since(time.Unix(0, at)) > older && m.sweptAt.CompareAndSwap(at, 0) {
		m.figures.Reset()
		m.firing.Reset()
	}
}
