package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// States of an alert. A row stays when it is resolved: it carries the episode on.
//
//	      condition holds        for the rule's time         gone for ClearFor
//	(none) ─────────────▶ PENDING ───────────────▶ FIRING ───────────────▶ RESOLVED
//	                         │ gone: forgotten        ▲   back: the same alert   │
//	                         ▼                        └── holds again: a new ◀───┘
//	                      RESOLVED (never told)           episode, via PENDING
//
// What is unknown moves nothing.
const (
	statePending  = "PENDING"
	stateFiring   = "FIRING"
	stateResolved = "RESOLVED"
)

// Kinds of messages.
const (
	kindFiring   = "firing"
	kindWorse    = "worse"
	kindRepeat   = "repeat"
	kindResolved = "resolved"
)

// Origins of alerts.
const (
	originRules        = "rules"
	originAlertmanager = "alertmanager"
)

// alert is a row of mq_alert.
type alert struct {
	Fingerprint string
	Rule        string
	Subject     string
	Origin      string
	Severity    string
	State       string
	Episode     int
	Value       *float64
	ToldValue   *float64
	Threshold   *float64
	Detail      detail
	Since       time.Time
	ClearSince  *time.Time
	ToldAt      *time.Time
	ResolvedAt  *time.Time
}

// detail is what a message says beyond the row's columns.
type detail struct {
	Task    string `json:"task,omitempty"`
	Unit    string `json:"unit,omitempty"`
	Note    string `json:"note,omitempty"`
	Summary string `json:"summary,omitempty"`
	Runbook string `json:"runbook,omitempty"`
	Service string `json:"service,omitempty"`
	EventID string `json:"eventId,omitempty"`
	TraceID string `json:"traceId,omitempty"`
	// RequestID is the oldest event's, or the deciding sweep's.
	RequestID string `json:"requestId,omitempty"`
}

// fingerprintOf names an alert for ever.
func fingerprintOf(rule, country, subject string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{rule, country, subject}, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// told is an alert that a message is to be about.
type told struct {
	kind  string
	alert alert
}

// step is an alert after one look, and whether to tell.
type step struct {
	alert   alert
	changed bool
	tell    string // kind, "" for nothing
}

// advance moves one alert. hold is how long its condition must hold, repeat how often it
// is told again, rises whether a higher value is told.
func advance(a alert, t truth, now time.Time, c AlertConfig, hold time.Duration, rises bool) step {
	before := a.State
	switch t {
	case dontKnow:
		return step{alert: a}
	case no:
		return calm(a, now, c)
	}
	if before == "" || before == stateResolved {
		a.State, a.Since, a.ResolvedAt, a.ToldAt, a.ToldValue = statePending, now, nil, nil, nil
	}
	a.ClearSince = nil
	if a.State == statePending {
		if now.Sub(a.Since) < hold {
			return step{alert: a, changed: true}
		}
		a.State = stateFiring
		a.Episode++
		return tell(a, kindFiring, now)
	}
	sinceTold := time.Duration(0)
	if a.ToldAt != nil {
		sinceTold = now.Sub(*a.ToldAt)
	}
	switch {
	case rises && a.Value != nil && a.ToldValue != nil && *a.Value > *a.ToldValue && sinceTold >= c.RetellAfter:
		return tell(a, kindWorse, now)
	case sinceTold >= c.repeatFor(a.Severity):
		return tell(a, kindRepeat, now)
	}
	return step{alert: a, changed: true}
}

// calm moves an alert whose condition is gone.
func calm(a alert, now time.Time, c AlertConfig) step {
	switch a.State {
	case statePending:
		a.State, a.ResolvedAt = stateResolved, &now
		return step{alert: a, changed: true}
	case stateFiring:
		if a.ClearSince == nil {
			a.ClearSince = &now
		}
		if now.Sub(*a.ClearSince) < c.ClearFor {
			return step{alert: a, changed: true}
		}
		a.State, a.ResolvedAt = stateResolved, &now
		return tell(a, kindResolved, now)
	}
	return step{alert: a}
}

func tell(a alert, kind string, now time.Time) step {
	a.ToldAt, a.ToldValue = &now, a.Value
	return step{alert: a, changed: true, tell: kind}
}

// decide looks at all rules. open are the alerts that are not resolved, with those that
// were, by fingerprint.
func (s *sweeper) decide(figures []figure, rows map[string]alert, now time.Time, sweepID string) (changed []alert, tells []told) {
	page := newSheet(figures)
	seen := map[string]bool{}
	take := func(st step) {
		if st.changed {
			changed = append(changed, st.alert)
		}
		if st.tell != "" {
			tells = append(tells, told{st.tell, st.alert})
		}
	}
	blind := map[string]bool{} // rules whose subjects cannot be listed now
	for _, r := range s.rules {
		for _, v := range r.parsed.judge(page) {
			if v.subject == "" && v.truth == dontKnow {
				blind[r.Name] = true
			}
			print := fingerprintOf(r.Name, s.store.country, v.subject)
			seen[print] = true
			a := s.describe(rows[print], r, v, sweepID)
			a.Fingerprint = print
			take(advance(a, v.truth, now, s.cfg.Alert, s.cfg.Alert.holdFor(r.Hold), r.Rises))
		}
	}
	for print, a := range rows { // a subject that is gone is calm, unless nobody can tell
		if !seen[print] && a.Origin == originRules && a.State != stateResolved && !blind[a.Rule] {
			take(calm(a, now, s.cfg.Alert))
		}
	}
	slices.SortFunc(tells, func(x, y told) int { return cmp.Compare(x.alert.Fingerprint, y.alert.Fingerprint) })
	return changed, tells
}

// describe brings an alert's words up to date. A resolved one keeps what it fired with.
func (s *sweeper) describe(a alert, r rule, v verdict, sweepID string) alert {
	a.Rule, a.Subject, a.Origin, a.Severity = r.Name, v.subject, originRules, r.Severity
	if v.truth != yes {
		if v.truth == no && a.State == stateFiring && v.figure.Value != nil {
			a.Value = v.figure.Value
		}
		return a
	}
	a.Value = v.figure.Value
	a.Threshold = nil
	if t := r.parsed.terms[0]; t.op != opUnknown {
		a.Threshold = &t.value
	}
	d := detail{
		Task: v.figure.Task, Unit: v.figure.Unit, Note: v.figure.Note, Summary: r.Summary, Service: "ops-consumer",
		Runbook: strings.TrimRight(s.cfg.Alert.Runbooks, "/") + "/" + r.Name + ".md",
		EventID: v.figure.EventID, TraceID: v.figure.TraceID, RequestID: v.figure.RequestID,
	}
	if d.Task == "" {
		d.Task = r.Task
	}
	if d.Task == "" { // a group or a lease stands for its task
		d.Task = cmp.Or(v.subject, "ops-snapshot")
	}
	if d.TraceID == "" && d.RequestID == "" {
		d.RequestID = sweepID
	}
	a.Detail = d
	return a
}
