package books

import (
	"fmt"
	"slices"
	"sort"
)

// Imbalance is one promise that was not kept, with what shows it.
type Imbalance struct {
	// Promise is what should be true.
	Promise string
	// Cases are ids with a few words each, sorted.
	Cases []string
}

// Totals are the figures of the run's table.
type Totals struct {
	Committed  int
	RolledBack int
	Events     int
	Published  int
	// Accepted counts requests that the provider accepted, Owed those that had to be.
	Accepted int
	Owed     int
	// Repeats are accepted requests that followed one whose answer got lost.
	Repeats int
	Sent    int
	Failed  int
	// DeadTokens are those of devices that got a push; Off those switched off.
	DeadTokens int
	Off        int
	Fallbacks  int64

	// Coupons by fate; PutOff are those of Expired that had been extended before.
	Expired, PutOff, Redeemed, Kept int
	// Calls are all requests to the platform.
	Campaigns, Products, Calls int
	// Alerts are episodes that people heard of.
	Alerts int
}

// Verdict is the result of Check.
type Verdict struct {
	Totals     Totals
	Imbalances []Imbalance
}

// Balanced says that every promise was kept.
func (v Verdict) Balanced() bool { return len(v.Imbalances) == 0 }

// The promises, in the order in which they are reported.
const (
	promiseRow         = "a committed push has its row"
	promiseOnce        = "a committed push has an accepted request for each live device"
	promiseNotTwice    = "a device is not asked again after the provider was heard to accept"
	promiseCollapse    = "every request carries one collapse id: that of its push"
	promiseText        = "a request carries the text of its push"
	promiseStranger    = "every request is for a device of the user of a committed push"
	promiseRolledBack  = "a rolled back push leaves no row, no event and no request"
	promiseStatus      = "a push ends SENT if a device accepted it, and FAILED if none could"
	promiseDeadOff     = "a dead token that was asked is switched off"
	promiseDeadRefused = "a dead token accepts nothing" // else the evidence itself is broken
	promiseLiveOn      = "a live token stays on"
	promiseEvent       = "a committed push has its event, and every event is PUBLISHED"
	promiseDeadLetter  = "nothing is left waiting or given up"
	promiseFallback    = "no poll had to step in"
	promiseCouponOnce  = "a coupon that came due is EXPIRED, once"
	promiseCouponEarly = "no coupon expires before its time"
	promiseCouponKept  = "a coupon that was redeemed or extended does not expire"
	promiseTable       = "the table of campaign products is what the platform holds, row by row"
	promiseCalls       = "the platform is asked no more than the sync needs, and by its rules"
	promiseTold        = "people hear of each fault that they must hear of"
	promiseToldOnce    = "an alert is told once and resolved once"
	promiseCard        = "a card names env, country, task and trace or request"
)

func promises() []string {
	return []string{promiseRow, promiseOnce, promiseNotTwice, promiseCollapse, promiseText, promiseStranger, promiseRolledBack, promiseStatus,
		promiseDeadOff, promiseDeadRefused, promiseLiveOn, promiseEvent, promiseDeadLetter, promiseFallback,
		promiseCouponOnce, promiseCouponEarly, promiseCouponKept, promiseTable, promiseCalls, promiseTold, promiseToldOnce, promiseCard}
}

// Promises is how many promises Check looks at.
func Promises() int { return len(promises()) }

// The states of push_messages and outbox_event that a run may end in.
const (
	statusSent      = "SENT"
	statusFailed    = "FAILED"
	statusPublished = "PUBLISHED"
)

// Check holds plan, tables and record against each other.
func Check(plan Plan, tables Tables, record Record) Verdict {
	a := newAudit(plan, tables, record)
	a.checkPushes()
	a.checkRequests()
	a.checkRolledBack()
	a.checkTokens()
	a.checkPipe()
	a.checkCoupons()
	a.checkTable()
	a.checkCalls()
	a.checkAlerts()
	v := Verdict{Totals: a.totals}
	for _, promise := range promises() {
		if cases := a.cases[promise]; len(cases) > 0 {
			sort.Strings(cases)
			v.Imbalances = append(v.Imbalances, Imbalance{promise, slices.Compact(cases)})
		}
	}
	return v
}

// delivery names what one request is about.
type delivery struct{ push, token string }

type audit struct {
	plan     Plan
	tables   Tables
	record   Record
	requests []Request // by time

	commits    map[string]Commit
	rolledBack map[string]bool
	rows       map[string]PushRow
	devices    map[string][]DeviceRow // by user
	byToken    map[string]DeviceRow
	dead       map[string]bool
	asked      map[delivery][]Request
	events     map[string]int // by aggregate

	cases  map[string][]string
	totals Totals
}

func newAudit(plan Plan, tables Tables, record Record) *audit {
	a := &audit{plan: plan, tables: tables, record: record,
		commits: map[string]Commit{}, rolledBack: map[string]bool{}, rows: map[string]PushRow{},
		devices: map[string][]DeviceRow{}, byToken: map[string]DeviceRow{}, dead: map[string]bool{},
		asked: map[delivery][]Request{}, events: map[string]int{}, cases: map[string][]string{}}
	a.requests = slices.Clone(record.Requests)
	slices.SortStableFunc(a.requests, func(x, y Request) int { return x.At.Compare(y.At) })
	for _, c := range plan.Committed {
		a.commits[c.PushID] = c
	}
	for _, id := range plan.RolledBack {
		a.rolledBack[id] = true
	}
	for _, token := range plan.DeadTokens {
		a.dead[token] = true
	}
	for _, p := range tables.Pushes {
		a.rows[p.ID] = p
	}
	for _, d := range tables.Devices {
		a.devices[d.UserID] = append(a.devices[d.UserID], d)
		a.byToken[d.Token] = d
	}
	for _, e := range tables.Events {
		a.events[e.AggregateID]++
	}
	for _, r := range a.requests {
		for _, push := range distinct(r.CollapseIDs) {
			d := delivery{push, r.Token}
			a.asked[d] = append(a.asked[d], r)
		}
	}
	a.totals.Committed, a.totals.RolledBack = len(a.commits), len(a.rolledBack)
	return a
}

func (a *audit) broken(promise, format string, args ...any) {
	a.cases[promise] = append(a.cases[promise], fmt.Sprintf(format, args...))
}

// checkPushes goes from what was promised to what happened.
func (a *audit) checkPushes() {
	for id, c := range a.commits {
		row, ok := a.rows[id]
		switch {
		case !ok:
			a.broken(promiseRow, "push %s: no row", id)
		case row.UserID != c.UserID:
			a.broken(promiseRow, "push %s: its row is for user %s, not %s", id, row.UserID, c.UserID)
		}
		live := 0
		for _, d := range a.devices[c.UserID] {
			if !a.dead[d.Token] {
				live++
				a.checkDelivery(id, d)
			}
		}
		a.totals.Owed += live
		want := statusSent
		if live == 0 {
			want = statusFailed
		}
		if ok && row.Status != want {
			a.broken(promiseStatus, "push %s: %s instead of %s", id, row.Status, want)
		}
		if a.events[id] == 0 {
			a.broken(promiseEvent, "push %s: no event", id)
		}
		switch row.Status {
		case statusSent:
			a.totals.Sent++
		case statusFailed:
			a.totals.Failed++
		}
	}
}

// checkDelivery: an accepted request may be repeated only while its answer was not
// heard.
func (a *audit) checkDelivery(push string, d DeviceRow) {
	asked := a.asked[delivery{push, d.Token}]
	accepted, heard := 0, false
	for _, r := range asked {
		if heard {
			a.broken(promiseNotTwice, "push %s: device %s is asked again at %s", push, d.ID, clock(r.At))
		}
		if !r.Accepted {
			continue
		}
		if accepted++; accepted > 1 && !heard {
			a.totals.Repeats++
		}
		heard = heard || !r.Unheard
	}
	if accepted == 0 {
		a.broken(promiseOnce, "push %s: none for device %s (%d requests)", push, d.ID, len(asked))
	}
}

// checkRequests goes from what happened to what was promised.
func (a *audit) checkRequests() {
	for _, r := range a.requests {
		if r.Accepted {
			a.totals.Accepted++
		}
		d, known := a.byToken[r.Token]
		ids := distinct(r.CollapseIDs)
		if len(ids) != 1 {
			a.broken(promiseCollapse, "request of %s for device %s: %d collapse ids %q", clock(r.At), d.ID, len(ids), ids)
		} else if !a.rolledBack[ids[0]] { // those are reported as such
			a.checkAddress(ids[0], r, d, known)
		}
		if r.Accepted && a.dead[r.Token] {
			a.broken(promiseDeadRefused, "device %s: accepted", d.ID)
		}
	}
}

// checkAddress holds one request against the push that it says it is for.
func (a *audit) checkAddress(push string, r Request, d DeviceRow, known bool) {
	c, ok := a.commits[push]
	switch {
	case !ok:
		a.broken(promiseStranger, "request for push %q, which nobody committed", push)
	case !known:
		a.broken(promiseStranger, "push %s: request for a token that no device has", push)
	case d.UserID != c.UserID:
		a.broken(promiseStranger, "push %s for user %s: request for device %s of user %s", push, c.UserID, d.ID, d.UserID)
	case r.Text != c.Text:
		a.broken(promiseText, "push %s: device %s got the text %q", push, d.ID, r.Text)
	}
}

func (a *audit) checkRolledBack() {
	for id := range a.rolledBack {
		if _, ok := a.rows[id]; ok {
			a.broken(promiseRolledBack, "push %s: has a row", id)
		}
		if a.events[id] > 0 {
			a.broken(promiseRolledBack, "push %s: has an event", id)
		}
	}
	for d := range a.asked {
		if a.rolledBack[d.push] {
			a.broken(promiseRolledBack, "push %s: has a request", d.push)
		}
	}
}

// checkTokens looks at the devices that a committed push was for.
func (a *audit) checkTokens() {
	users := map[string]bool{}
	for _, c := range a.commits {
		users[c.UserID] = true
	}
	for _, d := range a.tables.Devices {
		switch {
		case !a.dead[d.Token] && !d.Active:
			a.broken(promiseLiveOn, "device %s: off", d.ID)
		case a.dead[d.Token] && users[d.UserID]:
			a.totals.DeadTokens++
			if d.Active {
				a.broken(promiseDeadOff, "device %s: still on", d.ID)
			} else {
				a.totals.Off++
			}
		}
	}
}

// checkPipe looks at what lies between a commit and a request.
func (a *audit) checkPipe() {
	for _, e := range a.tables.Events {
		a.totals.Events++
		if e.Status == statusPublished {
			a.totals.Published++
		} else {
			a.broken(promiseEvent, "event %s: %s", e.EventID, e.Status)
		}
	}
	for _, id := range a.tables.Delayed {
		a.broken(promiseDeadLetter, "event %s: still waits for its time", id)
	}
	for _, id := range a.tables.DeadLetters {
		a.broken(promiseDeadLetter, "event %s: dead letter", id)
	}
	for _, f := range a.tables.Fallbacks {
		a.totals.Fallbacks += f.Runs
		if f.Runs > 0 || f.Now {
			a.broken(promiseFallback, "task %s on %s: %d runs, in fallback now: %t", f.Task, f.Instance, f.Runs, f.Now)
		}
	}
}

func distinct(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return slices.Compact(ids)
}
