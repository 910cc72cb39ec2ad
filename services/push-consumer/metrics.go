package main

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	results    *prometheus.CounterVec
	requests   *prometheus.CounterVec
	seconds    prometheus.Histogram
	deadTokens prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, l *lane) (*metrics, error) {
	m := &metrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seahub_push_results_total", Help: "Tries to dispatch a push, by what became of it.",
		}, []string{"result"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seahub_push_requests_total", Help: "Requests to FCM by the state that the answer meant.",
		}, []string{"state"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seahub_push_request_seconds", Help: "How long FCM took to answer.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 13),
		}),
		deadTokens: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seahub_push_dead_tokens_total", Help: "Devices switched off because FCM called their token dead; a jump means a wrong project or a broken app.",
		}),
	}
	for _, v := range []string{statusSent, statusFailed, statusExpired, "rescheduled", "postponed", "lease_refused", "lease_lost"} {
		m.results.WithLabelValues(v)
	}
	for _, v := range []string{stateAccepted, stateDeadToken, stateRejected, stateRetry, stateUnknown, stateOutside} {
		m.requests.WithLabelValues(v)
	}
	if reg == nil {
		return m, nil
	}
	rate := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "seahub_push_lane_rate", Help: "Requests a second that this process allows itself.",
	}, func() float64 { r, _ := l.state(time.Now()); return r })
	closed := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "seahub_push_lane_closed_seconds", Help: "How long the lane to FCM stays closed.",
	}, func() float64 { _, d := l.state(time.Now()); return d.Seconds() })
	for _, c := range []prometheus.Collector{m.results, m.requests, m.seconds, m.deadTokens, rate, closed} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of pushes: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) request(a answer, took time.Duration) {
	m.requests.WithLabelValues(a.class.state()).Inc()
	m.seconds.Observe(took.Seconds())
}
