package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seahub/seahub-mq/pkg/event"
)

// message is what people are told at a time: one rule in one country, with the subjects
// that it concerns.
type message struct {
	Kind     string    `json:"kind"`
	Rule     string    `json:"rule"`
	Severity string    `json:"severity"`
	Env      string    `json:"env"`
	Country  string    `json:"country"`
	Service  string    `json:"service"`
	Summary  string    `json:"summary"`
	Runbook  string    `json:"runbook"`
	SweepID  string    `json:"sweepId"`
	At       time.Time `json:"at"`
	Items    []item    `json:"items"`
}

// item is one alert in a message.
type item struct {
	Fingerprint string    `json:"fingerprint"`
	Episode     int       `json:"episode"`
	Subject     string    `json:"subject,omitempty"`
	Task        string    `json:"task"`
	Value       string    `json:"value"`
	Threshold   string    `json:"threshold,omitempty"`
	Note        string    `json:"note,omitempty"`
	EventID     string    `json:"eventId,omitempty"`
	TraceID     string    `json:"traceId,omitempty"`
	RequestID   string    `json:"requestId,omitempty"`
	Since       time.Time `json:"since"`

	weight float64
}

// compose groups what is to be told: one message per rule and kind.
func (s *sweeper) compose(tells []told, now time.Time, sweepID string) []routed {
	return compose(tells, now, sweepID, s.cfg.Base.Env, s.store.country, s.routeOf)
}

func (s *sweeper) routeOf(ruleName string) string {
	for _, r := range s.rules {
		if r.Name == ruleName {
			return r.Route
		}
	}
	return routeFeishu
}

func compose(tells []told, now time.Time, sweepID, env, country string, route func(rule string) string) []routed {
	byKey := map[[2]string]*message{}
	var keys [][2]string
	for _, t := range tells {
		key := [2]string{t.alert.Rule, t.kind}
		m := byKey[key]
		if m == nil {
			d := t.alert.Detail
			m = &message{
				Kind: t.kind, Rule: t.alert.Rule, Severity: t.alert.Severity, Env: env, Country: country, Service: d.Service,
				Summary: d.Summary, Runbook: d.Runbook, SweepID: sweepID, At: now,
			}
			byKey[key] = m
			keys = append(keys, key)
		}
		m.Items = append(m.Items, itemOf(t.alert))
	}
	slices.SortStableFunc(keys, func(a, b [2]string) int {
		return cmp.Compare(rankOf(byKey[a].Severity), rankOf(byKey[b].Severity))
	})
	var out []routed
	for _, key := range keys {
		m := byKey[key]
		slices.SortStableFunc(m.Items, func(a, b item) int { return cmp.Compare(b.weight, a.weight) })
		out = append(out, routed{route(m.Rule), *m})
	}
	return out
}

func itemOf(a alert) item {
	d := a.Detail
	i := item{
		Fingerprint: a.Fingerprint, Episode: a.Episode, Subject: a.Subject, Task: d.Task, Value: show(a.Value, d.Unit),
		Note: d.Note, EventID: d.EventID, TraceID: d.TraceID, RequestID: d.RequestID, Since: a.Since,
	}
	if a.Threshold != nil {
		i.Threshold = show(a.Threshold, d.Unit)
	}
	if a.Value != nil {
		i.weight = *a.Value
	}
	return i
}

// title is what old clients and a locked phone show of it.
func (m message) title() string {
	word := m.Severity
	switch m.Kind {
	case kindResolved:
		word = "resolved"
	case kindWorse:
		word += ", rising"
	case kindRepeat:
		word += ", still"
	}
	return fmt.Sprintf("[%s][%s] %s", word, m.Country, m.Rule)
}

// lines are an item for people, label and value; escape is applied to what comes from
// data.
func (i item) lines(escape func(string) string) []string {
	var out []string
	add := func(label, value string) {
		if value != "" {
			out = append(out, label+": "+escape(clean(value, 300)))
		}
	}
	add("task", i.Task)
	if i.Subject != i.Task {
		add("about", i.Subject)
	}
	value := i.Value
	if i.Threshold != "" {
		value += ", threshold " + i.Threshold
	}
	add("value", value)
	add("since", event.FormatTime(i.Since))
	add("note", i.Note)
	add("event", i.EventID)
	add("trace", i.TraceID)
	add("request", i.RequestID)
	add("alert", fmt.Sprintf("%s, episode %d", i.Fingerprint, i.Episode))
	return out
}

// clean makes one line of data: no control characters, at most n bytes.
func clean(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, s)
	return cutText(s, n)
}

// cutText shortens text to n bytes at a character's end, with an ellipsis.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const dots = "…"
	return strings.ToValidUTF8(s[:n-len(dots)], "") + dots
}
