package redisstreams

import "github.com/prometheus/client_golang/prometheus"

// metrics are what only this driver can tell.
type metrics struct {
	recreated  *prometheus.CounterVec
	readErrors *prometheus.CounterVec
	leasesLost *prometheus.CounterVec
	claimed    *prometheus.CounterVec
	vanished   *prometheus.CounterVec
	unmatched  *prometheus.CounterVec
	trimmed    *prometheus.CounterVec
	mixedTags  *prometheus.GaugeVec
	unsafe     *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		recreated:  counter("seahub_redis_group_recreated_total", "Groups that were missing and made again at the start of the stream: Redis lost data, or it is new.", "consumer_group"),
		readErrors: counter("seahub_redis_errors_total", "Commands of subscriptions that failed.", "consumer_group", "operation"),
		leasesLost: counter("seahub_redis_leases_lost_total", "Messages that another member took over while their handler ran here.", "consumer_group"),
		claimed:    counter("seahub_redis_claimed_total", "Messages taken over: from dead members, from this member's own lost reads, and from the parked ones that came due.", "consumer_group", "source"),
		vanished:   counter("seahub_redis_vanished_total", "Unfinished messages that Redis no longer had: cut by the memory fuse or deleted by hand. Requeue them from the outbox.", "consumer_group"),
		unmatched:  counter("seahub_redis_unmatched_total", "Messages with a tag that the group does not want, acknowledged unread.", "consumer_group"),
		trimmed:    counter("seahub_redis_trimmed_total", "Messages trimmed: those that every group had finished, and those that the memory fuse cut.", "topic", "cause"),
		mixedTags: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seahub_redis_group_mixed_tags",
			Help: "1 while live members of the group subscribe to different tags: events are acknowledged by members that do not want them."}, []string{"consumer_group"}),
		unsafe: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "seahub_redis_unsafe_setting",
			Help: "1 while the server has a setting with which events can be lost; the log says which and how. Absent while unknown."}, []string{"setting"}),
	}
	if r != nil {
		r.MustRegister(m.recreated, m.readErrors, m.leasesLost, m.claimed, m.vanished, m.unmatched, m.trimmed, m.mixedTags, m.unsafe)
	}
	return m
}
