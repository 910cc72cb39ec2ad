package task

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seahub/seahub-mq/pkg/flags"
)

type metrics struct {
	events      *prometheus.CounterVec
	passes      *prometheus.CounterVec
	rows        *prometheus.CounterVec
	activations prometheus.Counter
	active      prometheus.Gauge
	overdue     prometheus.Gauge
	noBus       prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, name flags.Name) (*metrics, error) {
	label := prometheus.Labels{"task": string(name)}
	counter := func(metric, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: metric, Help: help, ConstLabels: label}, labels)
	}
	gauge := func(metric, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: metric, Help: help, ConstLabels: label})
	}
	m := &metrics{
		events: counter("seahub_task_events_total", "Events by what the flag decided: owned, or skipped.", "decision"),
		passes: counter("seahub_task_poll_passes_total", "Poll passes by result.", "result"),
		rows:   counter("seahub_task_poll_rows_total", "Rows that the poll worked on, as itself or as the fallback.", "kind"),
		activations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "seahub_task_fallback_activations_total", Help: "Times that this process started the fallback.", ConstLabels: label,
		}),
		active:  gauge("seahub_task_fallback_active", "1 while the fallback holds."),
		overdue: gauge("seahub_task_overdue_rows", "Rows of the event path that are overdue, as the poll last saw them."),
		noBus:   gauge("seahub_task_flag_without_bus", "1 while the flag is on and no event bus is configured."),
	}
	for _, v := range []string{"owned", "skipped"} {
		m.events.WithLabelValues(v)
	}
	for _, v := range []string{"ok", "failed"} {
		m.passes.WithLabelValues(v)
	}
	for _, v := range []string{"poll", "fallback"} {
		m.rows.WithLabelValues(v)
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.events, m.passes, m.rows, m.activations, m.active, m.overdue, m.noBus} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of task %s: %w", name, err)
		}
	}
	return m, nil
}
