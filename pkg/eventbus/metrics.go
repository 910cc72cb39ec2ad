package eventbus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// metrics are the bus's own figures. Labels are names that this project knows: groups,
// tags, results. Ids never are.
type metrics struct {
	publishedTotal *prometheus.CounterVec
	publishSeconds prometheus.Histogram

	messages        *prometheus.CounterVec
	deliverySeconds *prometheus.HistogramVec
	processSeconds  *prometheus.HistogramVec
	endToEnd        *prometheus.HistogramVec
	panics          *prometheus.CounterVec
	foreign         *prometheus.CounterVec
	storeFailures   *prometheus.CounterVec
	deadLetters     *prometheus.CounterVec
	abandonedNow    *prometheus.GaugeVec
	abandonedEvents *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, states func() []State) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		publishedTotal: counter("seahub_publisher_messages_total", "Messages handed to the broker, by status of the result.", "status"),
		publishSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "seahub_publisher_batch_seconds", Help: "Time of one publish call.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15)}),
		messages: counter("seahub_consumer_messages_total", "Deliveries, by what became of them.", "consumer_group", "tag", "result"),
		deliverySeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "seahub_consumer_delivery_seconds", Help: "Time from the broker's storing of a message until its first handler run began.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 20)}, []string{"consumer_group", "tag"}),
		processSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "seahub_consumer_process_seconds", Help: "Time of one handler run.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}, []string{"consumer_group", "tag"}),
		endToEnd: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "seahub_consumer_end_to_end_seconds", Help: "Time from the event's creation until its effect was in place.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 18)}, []string{"consumer_group", "tag"}),
		panics:          counter("seahub_consumer_panics_total", "Handler runs that panicked.", "consumer_group"),
		foreign:         counter("seahub_consumer_foreign_events_total", "Events of another environment or country: a wrong deployment. The subscription has halted.", "consumer_group"),
		storeFailures:   counter("seahub_consumer_dead_letter_store_failures_total", "Dead letters that could not be stored; their events stay with the broker.", "consumer_group"),
		deadLetters:     counter("seahub_consumer_dead_letters_total", "Events that became dead letters.", "consumer_group", "tag"),
		abandonedNow:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seahub_consumer_hung_handlers", Help: "Handlers that ignored their deadline and still run."}, []string{"consumer_group"}),
		abandonedEvents: counter("seahub_consumer_abandoned_total", "Handler runs that were given up because they ignored their deadline.", "consumer_group"),
	}
	if r != nil {
		r.MustRegister(m.publishedTotal, m.publishSeconds, m.messages, m.deliverySeconds, m.processSeconds, m.endToEnd,
			m.panics, m.foreign, m.storeFailures, m.deadLetters, m.abandonedNow, m.abandonedEvents,
			newStateCollector(states))
	}
	return m
}

// touch makes a group's alertable counters visible before their first event, so that
// a rate over them has a zero to start from.
func (m *metrics) touch(group string) {
	m.panics.WithLabelValues(group)
	m.foreign.WithLabelValues(group)
	m.storeFailures.WithLabelValues(group)
	m.abandonedNow.WithLabelValues(group)
	m.abandonedEvents.WithLabelValues(group)
}

// tagMetrics are those of a group's events with one tag, for every event without a
// search by labels.
type tagMetrics struct {
	results         [driver.Halt + 1]prometheus.Counter
	deliverySeconds prometheus.Observer
	processSeconds  prometheus.Observer
	endToEnd        prometheus.Observer
}

func (m *metrics) ofTag(group, tag string) *tagMetrics {
	t := &tagMetrics{
		deliverySeconds: m.deliverySeconds.WithLabelValues(group, tag),
		processSeconds:  m.processSeconds.WithLabelValues(group, tag),
		endToEnd:        m.endToEnd.WithLabelValues(group, tag),
	}
	for v := range t.results {
		t.results[v] = m.messages.WithLabelValues(group, tag, Verdict(v).String())
	}
	return t
}

func (m *metrics) published(results []Result, took time.Duration) {
	m.publishSeconds.Observe(took.Seconds())
	var n [driver.Throttled + 1]int
	for _, r := range results {
		if r.Status >= 0 && int(r.Status) < len(n) {
			n[r.Status]++
		}
	}
	for s, count := range n {
		if count > 0 {
			m.publishedTotal.WithLabelValues(Status(s).String()).Add(float64(count))
		}
	}
}

// stateCollector turns subscription states into gauges when it is asked. What is
// unknown is left out of the answer: an absent series is not a zero.
type stateCollector struct {
	states func() []State
	gauges []stateGauge
}

type stateGauge struct {
	desc  *prometheus.Desc
	value func(State) (v float64, known bool)
}

func newStateCollector(states func() []State) *stateCollector {
	gauge := func(name, help string, value func(State) (float64, bool)) stateGauge {
		return stateGauge{prometheus.NewDesc(name, help, []string{"consumer_group"}, nil), value}
	}
	flag := func(b bool) (float64, bool) {
		if b {
			return 1, true
		}
		return 0, true
	}
	count := func(c driver.Count) (float64, bool) { return float64(c.N), c.Known }
	return &stateCollector{states, []stateGauge{
		gauge("seahub_consumer_connected", "1 while the broker serves the subscription.", func(s State) (float64, bool) { return flag(s.Connected) }),
		gauge("seahub_consumer_halted", "1 once the subscription gave up for good.", func(s State) (float64, bool) { return flag(s.Halted) }),
		gauge("seahub_consumer_inflight", "Handlers that run.", func(s State) (float64, bool) { return float64(s.InHand), true }),
		gauge("seahub_consumer_event_age_seconds", "Age of the oldest event in hand, 0 when there is none.", func(s State) (float64, bool) { return s.OldestInHand.Seconds(), true }),
		gauge("seahub_consumer_last_success_timestamp_seconds", "When an event was last finished without an error.", func(s State) (float64, bool) {
			return float64(s.LastSuccess.UnixMilli()) / 1000, !s.LastSuccess.IsZero()
		}),
		gauge("seahub_bus_backlog", "Messages that the group has still to finish. Absent when unknown.", func(s State) (float64, bool) { return count(s.Backlog) }),
		gauge("seahub_bus_in_flight", "Messages delivered to a member and unfinished. Absent when unknown.", func(s State) (float64, bool) { return count(s.InFlight) }),
		gauge("seahub_bus_parked", "Messages that wait for a delayed retry. Absent when unknown.", func(s State) (float64, bool) { return count(s.Parked) }),
		gauge("seahub_bus_oldest_age_seconds", "Age of the group's oldest unfinished message. Absent when unknown.", func(s State) (float64, bool) { return s.OldestAge.D.Seconds(), s.OldestAge.Known }),
	}}
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range c.gauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.states() {
		for _, g := range c.gauges {
			if v, known := g.value(s); known {
				ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, v, s.Group)
			}
		}
	}
}
