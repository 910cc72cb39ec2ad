package books

import "time"

// Told is one message that people saw about an alert.
type Told struct {
	At   time.Time
	Rule string
	// Resolved says that it was the all-clear.
	Resolved bool
	// Alert and Episode are whose message it is.
	Alert   string
	Episode int
	// Lacks is what the message should have said and did not.
	Lacks string
}

// MustTell is a fault that people have to hear of: by an alert that was raised since then,
// or that stood when the fault began and for which the all-clear had not come.
type MustTell struct {
	Rule  string
	Since time.Time
	Fault string
}

func (a *audit) checkAlerts() {
	type episode struct {
		alert string
		n     int
	}
	type told struct {
		rule          string
		cleared       time.Time
		fires, clears int
	}
	all := map[episode]told{}
	for _, t := range a.record.Told {
		e := all[episode{t.Alert, t.Episode}]
		e.rule = t.Rule
		if t.Resolved {
			e.clears, e.cleared = e.clears+1, t.At
		} else {
			e.fires++
		}
		all[episode{t.Alert, t.Episode}] = e
		if t.Lacks != "" {
			a.broken(promiseCard, "%s of %s: it lacks %s", t.Rule, clock(t.At), t.Lacks)
		}
	}
	for k, e := range all {
		a.totals.Alerts++
		if e.fires != 1 || e.clears != 1 {
			a.broken(promiseToldOnce, "%s, alert %s, episode %d: told %d times, resolved %d times", e.rule, k.alert, k.n, e.fires, e.clears)
		}
	}
	for _, m := range a.plan.MustTell {
		heard := false
		for _, e := range all {
			heard = heard || (e.rule == m.Rule && e.fires > 0 && (e.clears == 0 || e.cleared.After(m.Since)))
		}
		if !heard {
			a.broken(promiseTold, "%s: nobody heard of it (%s)", m.Fault, m.Rule)
		}
	}
}
