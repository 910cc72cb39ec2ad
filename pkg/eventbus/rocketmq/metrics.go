package rocketmq

import "github.com/prometheus/client_golang/prometheus"

// metrics are what only this driver can tell.
type metrics struct {
	unconfirmed *prometheus.CounterVec
	refused     *prometheus.CounterVec
	paused      prometheus.Counter
	late        *prometheus.CounterVec
	rebuilt     *prometheus.CounterVec
	panics      prometheus.Counter
	mixedTags   *prometheus.GaugeVec
	deadQueue   *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"consumer_group"})
	}
	m := &metrics{
		unconfirmed: counter("seahub_rocketmq_unconfirmed_total", "Messages that the broker stored without a word on disk or replica, by send status. They count as not sent and will come twice.", "status"),
		refused:     counter("seahub_rocketmq_answers_total", "Sends that the broker answered with a code other than success.", "code"),
		paused:      prometheus.NewCounter(prometheus.CounterOpts{Name: "seahub_rocketmq_paused_total", Help: "Messages that were not tried because the broker asked for a slower pace just before."}),
		late:        counter("seahub_rocketmq_late_answers_total", "Answers to sends whose caller had left: the message is reported as unavailable and may be stored.", "result"),
		rebuilt:     counter("seahub_rocketmq_rebuilt_total", "Consumers that were made anew because they got nothing any more.", "consumer_group", "cause"),
		panics:      prometheus.NewCounter(prometheus.CounterOpts{Name: "seahub_rocketmq_client_panics_total", Help: "Goroutines of the client that panicked and were recovered."}),
		mixedTags:   gauge("seahub_rocketmq_group_mixed_tags", "1 while members of the group subscribe to different tags: the broker then filters events away from members that want them."),
		deadQueue:   gauge("seahub_rocketmq_dead_letter_queue", "Messages in the broker's own dead-letter queue of the group: it should hold none, ours are in MySQL."),
	}
	if r != nil {
		r.MustRegister(m.unconfirmed, m.refused, m.paused, m.late, m.rebuilt, m.panics, m.mixedTags, m.deadQueue)
	}
	countClientPanics(m.panics)
	return m
}
