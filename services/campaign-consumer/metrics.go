package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/budget"
)

type metrics struct {
	results      *prometheus.CounterVec
	requests     *prometheus.CounterVec
	seconds      *prometheus.HistogramVec
	links        *prometheus.CounterVec
	linksRefused prometheus.Counter
	products     prometheus.Counter
	gone         prometheus.Counter
	alarms       *prometheus.CounterVec
	rate         *prometheus.GaugeVec
	paused       *prometheus.GaugeVec
	authorised   *prometheus.GaugeVec // without labels: absent until it is known
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"budget"})
	}
	m := &metrics{
		results:  vector("seahub_campaign_results_total", "Pieces of work on a campaign, by what became of them.", "result"),
		requests: vector("seahub_campaign_requests_total", "Requests to TikTok by call and by what the answer meant.", "call", "answer"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "seahub_campaign_request_seconds", Help: "How long TikTok and the share links took to answer.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 12),
		}, []string{"call"}),
		links:        vector("seahub_campaign_links_total", "Looks at share links by verdict and reason.", "verdict", "reason"),
		linksRefused: counter("seahub_campaign_links_refused_total", "Products for which TikTok made no share link."),
		products:     counter("seahub_campaign_products_total", "Products that finished rounds saw."),
		gone:         counter("seahub_campaign_gone_total", "Products marked as gone; a jump means a broken list."),
		alarms:       vector("seahub_campaign_alarms_total", "Rounds and listings that ended for a reason that a person must mend.", "kind"),
		rate:         gauge("seahub_campaign_budget_rate", "Units a second that all replicas together allow themselves."),
		paused:       gauge("seahub_campaign_budget_paused_seconds", "How long the budget stays closed."),
	}
	m.authorised = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "seahub_campaign_authorised_seconds", Help: "How long the authorisation can still be refreshed; a person must renew it before. 0: it cannot.",
	}, nil)
	// From the start, since an increase is seen only of what was there before it.
	for _, v := range []string{quota.String(), config.String(), account.String(), badPage.String(), alarmAuthorisation, alarmOther} {
		m.alarms.WithLabelValues(v)
	}
	for _, v := range []string{"complete", "truncated", "short", "failed", "continued", "lease_refused", "taken_over"} {
		m.results.WithLabelValues(v)
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.results, m.requests, m.seconds, m.links, m.linksRefused, m.products, m.gone, m.alarms, m.rate, m.paused, m.authorised} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of campaigns: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) request(call, answer string, took time.Duration) {
	m.requests.WithLabelValues(call, answer).Inc()
	m.seconds.WithLabelValues(call).Observe(took.Seconds())
}

func (m *metrics) look(l looked, took time.Duration) {
	m.links.WithLabelValues(l.verdict.String(), l.reason).Inc()
	m.seconds.WithLabelValues("share").Observe(took.Seconds())
}

// budget labels by the part of the name that is neither country nor app.
func (m *metrics) budget(name string, st budget.State) {
	label, _, _ := strings.Cut(name, ":")
	m.rate.WithLabelValues(label).Set(st.Rate)
	m.paused.WithLabelValues(label).Set(st.PausedFor.Seconds())
}

// Alarms that are no kind of an answer.
const (
	alarmAuthorisation = "authorisation"
	alarmOther         = "other"
)

// alarmEvery keeps one fault, which every campaign meets, from filling the log.
const alarmEvery = time.Minute

// alarms says what a person must mend, once a minute per kind. The zero value is ready.
type alarms struct {
	mu   sync.Mutex
	said map[string]time.Time
}

func (a *alarms) raise(ctx context.Context, cause error, m *metrics) {
	name := alarmOther
	var e *apiError
	switch {
	case errors.As(cause, &e):
		name = e.kind.String()
	case errors.Is(cause, errReauthorise), errors.Is(cause, errNoToken):
		name = alarmAuthorisation
	}
	m.alarms.WithLabelValues(name).Inc()
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.said[name]) < alarmEvery {
		return
	}
	if a.said == nil {
		a.said = map[string]time.Time{}
	}
	a.said[name] = time.Now()
	zerolog.Ctx(ctx).Error().Err(cause).Str("kind", name).Msg("campaign sync needs a person")
}
