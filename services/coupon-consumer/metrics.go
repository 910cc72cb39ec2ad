package main

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// By whom a coupon was expired.
const (
	byEvent     = "event"
	byScan      = "scan"      // the flag gives it to the scan
	byExtension = "extension" // by the scan: its event was used up
	byFallback  = "fallback"
)

type metrics struct {
	expired *prometheus.CounterVec
	refused *prometheus.CounterVec
	events  prometheus.Counter
	unfit   prometheus.Counter
	seconds *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		expired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seahub_coupon_expired_total", Help: "Coupons set EXPIRED, by what did it.",
		}, []string{"by"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "seahub_coupon_refused_total", Help: "Events whose coupon was not to be expired, by reason.",
		}, []string{"reason"}),
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seahub_coupon_events_total", Help: "Events that the scan wrote.",
		}),
		unfit: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seahub_coupon_unfit_total", Help: "Coupons that the scan expired since no event can be made of their ids.",
		}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "seahub_coupon_batch_seconds", Help: "How long the scan's transactions took.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}, []string{"kind"}),
	}
	for _, v := range []string{byEvent, byScan, byExtension, byFallback} {
		m.expired.WithLabelValues(v)
	}
	for _, v := range []string{"final", "extended", "not_due"} {
		m.refused.WithLabelValues(v)
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.expired, m.refused, m.events, m.unfit, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of coupons: %w", err)
		}
	}
	return m, nil
}
