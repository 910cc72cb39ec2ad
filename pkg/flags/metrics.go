package flags

import "github.com/prometheus/client_golang/prometheus"

// collector reads the current snapshot at scrape time, so that the age is right.
type collector struct{ flags *Flags }

func (c collector) descs() (enabled, points, version, bad, age *prometheus.Desc) {
	label := []string{"flag"}
	return prometheus.NewDesc("seahub_feature_flag_enabled", "1 if the flag is on in this process.", label, nil),
		prometheus.NewDesc("seahub_feature_flag_rollout_basis_points", "Share of rows on the event path, in 1/10,000; 0 while the flag is off.", label, nil),
		prometheus.NewDesc("seahub_feature_flag_version", "Version of the row that decides; 0 if the environment does.", label, nil),
		prometheus.NewDesc("seahub_feature_flag_bad_row", "1 if the row is not usable and the values before it stay in use.", label, nil),
		prometheus.NewDesc("seahub_feature_flag_snapshot_age_seconds", "Age of the values in use; -1 until they were first read.", nil, nil)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	enabled, points, version, bad, age := c.descs()
	for _, d := range []*prometheus.Desc{enabled, points, version, bad, age} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	enabled, points, version, bad, age := c.descs()
	s := c.flags.current.Load()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, name := range Names() {
		state := s.states[name]
		on, share, unusable := 0.0, 0.0, 0.0
		if state.Enabled {
			on, share = 1, float64(state.BasisPoints)
		}
		if s.bad[name] != "" {
			unusable = 1
		}
		gauge(enabled, on, string(name))
		gauge(points, share, string(name))
		gauge(version, float64(state.Version), string(name))
		gauge(bad, unusable, string(name))
	}
	if s.clock.firstBoot {
		gauge(age, -1)
		return
	}
	gauge(age, c.flags.age().Seconds())
}
