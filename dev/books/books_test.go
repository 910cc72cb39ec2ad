package books_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/books"
)

// evidence is a run that Check finds balanced:
//
//	user one    phone t1                  push p1 (and a repeat of p1 after a lost answer)
//	user two    phone t2, dead tablet d2  push p2
//	user three  dead phone d3             push p3, which can only fail
//	user four   phone t4                  no push
//
// and a push r1 that was rolled back.
type evidence struct {
	plan     books.Plan
	tables   books.Tables
	requests []books.Request
	calls    []books.Call
	told     []books.Told
}

func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func at(seconds int) time.Time { return start().Add(time.Duration(seconds) * time.Second) }

func accepted(second int, token, push string) books.Request {
	return books.Request{At: at(second), Token: token, CollapseIDs: []string{push, push}, Text: "text of " + push, Accepted: true}
}

func refused(second int, token, push string) books.Request {
	r := accepted(second, token, push)
	r.Accepted = false
	return r
}

func unheard(second int, token, push string) books.Request {
	r := accepted(second, token, push)
	r.Unheard = true
	return r
}

func balanced() *evidence {
	return &evidence{
		plan: books.Plan{
			Committed: []books.Commit{
				{PushID: "p1", UserID: "one", Text: "text of p1", At: at(0)},
				{PushID: "p2", UserID: "two", Text: "text of p2", At: at(1)},
				{PushID: "p3", UserID: "three", Text: "text of p3", At: at(2), Later: true},
			},
			RolledBack: []string{"r1"},
			DeadTokens: []string{"d2", "d3"},
		},
		tables: books.Tables{
			Pushes: []books.PushRow{{"p1", "one", "SENT"}, {"p2", "two", "SENT"}, {"p3", "three", "FAILED"}},
			Devices: []books.DeviceRow{
				{"one/phone", "one", "t1", true},
				{"two/phone", "two", "t2", true}, {"two/tablet", "two", "d2", false},
				{"three/phone", "three", "d3", false},
				{"four/phone", "four", "t4", true},
			},
			Events: []books.EventRow{
				{"push:p1", "p1", "PUBLISHED"}, {"push:p2", "p2", "PUBLISHED"}, {"push:p3", "p3", "PUBLISHED"},
			},
			Fallbacks: []books.Fallback{{Task: "push-dispatch", Instance: "a"}},
		},
		requests: []books.Request{
			refused(1, "t1", "p1"), // a 429
			unheard(2, "t1", "p1"), accepted(3, "t1", "p1"),
			accepted(2, "t2", "p2"), refused(2, "d2", "p2"),
			refused(3, "d3", "p3"),
		},
	}
}

func (e *evidence) check() books.Verdict {
	return books.Check(e.plan, e.tables, books.Record{Requests: e.requests, Calls: e.calls, Told: e.told})
}

func TestBalanced(t *testing.T) {
	v := balanced().check()
	require.True(t, v.Balanced(), "%+v", v.Imbalances)
	require.Equal(t, books.Totals{Committed: 3, RolledBack: 1, Events: 3, Published: 3, Accepted: 3, Owed: 2,
		Repeats: 1, Sent: 2, Failed: 1, DeadTokens: 2, Off: 2}, v.Totals)
}

// Every plant must be found, under the promise that it breaks and by its id, and
// under no other promise.
func TestPlantedImbalances(t *testing.T) {
	for name, plant := range map[string]struct {
		do      func(e *evidence)
		promise string
		names   string
	}{
		"a push lost its request": {func(e *evidence) { e.drop("t2") },
			"an accepted request for each live device", "push p2: none for device two/phone (0 requests)"},
		"a push was only refused": {func(e *evidence) { e.requests[3].Accepted = false },
			"an accepted request for each live device", "push p2: none for device two/phone (1 requests)"},
		"a push was sent twice": {func(e *evidence) { e.add(accepted(9, "t2", "p2")) },
			"not asked again", "push p2: device two/phone"},
		"a push was sent again, unheard": {func(e *evidence) { e.add(unheard(9, "t2", "p2")) },
			"not asked again", "push p2: device two/phone"},
		"a push was asked for again after it was accepted": {func(e *evidence) { e.add(refused(9, "t2", "p2")) },
			"not asked again", "push p2: device two/phone"},
		"the order of the record does not matter": {func(e *evidence) { slices.Reverse(e.requests); e.add(accepted(1, "t2", "p2")) },
			"not asked again", "push p2: device two/phone"},
		"a request carries two collapse ids": {func(e *evidence) { e.requests[3].CollapseIDs = []string{"p2", ""} },
			"one collapse id", "two/phone"},
		"a request carries no collapse id": {func(e *evidence) { e.add(books.Request{At: at(9), Token: "t2"}) },
			"one collapse id", "two/phone"},
		"a push got the text of another": {func(e *evidence) { e.requests[3].Text = "text of p1" },
			"the text of its push", "push p2: device two/phone"},
		"a push that nobody committed": {func(e *evidence) { e.add(accepted(9, "t4", "p9")) },
			"of the user of a committed push", `"p9"`},
		"a push reached another user": {func(e *evidence) { e.add(accepted(9, "t4", "p2")) },
			"of the user of a committed push", "four/phone"},
		"a token of no device": {func(e *evidence) { e.add(accepted(9, "t9", "p2")) },
			"of the user of a committed push", "push p2"},
		"a rolled back push has a request": {func(e *evidence) { e.add(refused(9, "t4", "r1")) },
			"rolled back", "push r1: has a request"},
		"a rolled back push has a row": {func(e *evidence) {
			e.tables.Pushes = append(e.tables.Pushes, books.PushRow{ID: "r1", UserID: "four", Status: "SENT"})
		},
			"rolled back", "push r1: has a row"},
		"a rolled back push has an event": {func(e *evidence) { e.event("push:r1", "r1", "PUBLISHED") },
			"rolled back", "push r1: has an event"},
		"a row is gone": {func(e *evidence) { e.tables.Pushes = e.tables.Pushes[1:] },
			"has its row", "push p1: no row"},
		"a row changed its user": {func(e *evidence) { e.tables.Pushes[0].UserID = "four" },
			"has its row", "push p1"},
		"a sent push is not SENT": {func(e *evidence) { e.tables.Pushes[0].Status = "SENDING" },
			"ends SENT", "push p1: SENDING instead of SENT"},
		"a push without a live device is not FAILED": {func(e *evidence) { e.tables.Pushes[2].Status = "SENT" },
			"ends SENT", "push p3: SENT instead of FAILED"},
		"a dead token is still on": {func(e *evidence) { e.tables.Devices[2].Active = true },
			"dead token that was asked is switched off", "two/tablet"},
		"a dead token accepted": {func(e *evidence) { e.requests[4].Accepted = true },
			"dead token accepts nothing", "two/tablet"},
		"a live token is off": {func(e *evidence) { e.tables.Devices[1].Active = false },
			"live token stays on", "two/phone"},
		"a push has no event": {func(e *evidence) { e.tables.Events = e.tables.Events[1:] },
			"every event is PUBLISHED", "push p1: no event"},
		"an event is not published": {func(e *evidence) { e.tables.Events[0].Status = "FAILED" },
			"every event is PUBLISHED", "push:p1: FAILED"},
		"an event still waits for its time": {func(e *evidence) { e.tables.Delayed = []string{"push:p3"} },
			"left waiting or given up", "push:p3"},
		"an event was given up": {func(e *evidence) { e.tables.DeadLetters = []string{"push:p3"} },
			"left waiting or given up", "push:p3"},
		"the poll stepped in": {func(e *evidence) { e.tables.Fallbacks[0].Runs = 1 },
			"no poll", "push-dispatch"},
		"the poll is about to step in": {func(e *evidence) { e.tables.Fallbacks[0].Now = true },
			"no poll", "push-dispatch"},
	} {
		t.Run(name, func(t *testing.T) {
			e := balanced()
			plant.do(e)
			v := e.check()
			require.False(t, v.Balanced())
			require.Len(t, v.Imbalances, 1, "%+v", v.Imbalances)
			require.Contains(t, v.Imbalances[0].Promise, plant.promise)
			require.Contains(t, strings.Join(v.Imbalances[0].Cases, "\n"), plant.names)
		})
	}
}

func (e *evidence) add(r books.Request) { e.requests = append(e.requests, r) }

func (e *evidence) drop(token string) {
	e.requests = slices.DeleteFunc(e.requests, func(r books.Request) bool { return r.Token == token })
}

func (e *evidence) event(id, aggregate, status string) {
	e.tables.Events = append(e.tables.Events, books.EventRow{EventID: id, AggregateID: aggregate, Status: status})
}

// Lost answers alone are no fault, however often they come.
func TestRepeatsAfterLostAnswers(t *testing.T) {
	e := balanced()
	e.requests[3].Unheard = true
	e.add(unheard(4, "t2", "p2"))
	v := e.check()
	require.True(t, v.Balanced(), "%+v", v.Imbalances)
	require.Equal(t, 2, v.Totals.Repeats)
}

func TestLatencies(t *testing.T) {
	e := balanced()
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, books.Latencies(e.plan, e.requests))
	outage := books.Window{From: at(1), To: at(5)}
	require.Equal(t, []time.Duration{2 * time.Second}, books.Latencies(e.plan, e.requests, outage))
}

func TestQuantile(t *testing.T) {
	require.Zero(t, books.Quantile(nil, 0.5))
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	require.Equal(t, time.Duration(50), books.Quantile(hundred, 0.50))
	require.Equal(t, time.Duration(99), books.Quantile(hundred, 0.99))
	require.Equal(t, time.Duration(100), books.Quantile(hundred, 1))
	require.Equal(t, time.Duration(1), books.Quantile(hundred[:1], 0.99))
}
