package outbox

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/event"
)

func recordsOf(retries ...int) []Record {
	recs := make([]Record, len(retries))
	for i, n := range retries {
		recs[i] = Record{ID: fmt.Sprint(i), RetryCount: n}
	}
	return recs
}

func outcomesOf(classes ...Class) []Outcome {
	outs := make([]Outcome, len(classes))
	for i, c := range classes {
		outs[i] = Outcome{Class: c, Err: errors.New("x")}
	}
	return outs
}

func ids(fs []failure) []string {
	var out []string
	for _, f := range fs {
		out = append(out, f.id)
	}
	return out
}

func TestJudge(t *testing.T) {
	policy := failurePolicy{maxAttempts: 3, retry: backoff.Policy{Base: time.Second, Max: time.Minute}}
	alive := policy
	alive.alive = true

	// One confirmation in the batch makes the failures their events' own, whatever
	// their place in it.
	v := judge(recordsOf(0, 2, 0, 0, 0), outcomesOf(Failed, Failed, Confirmed, Refused, Unavailable), policy)
	require.Equal(t, []string{"2"}, v.confirmed)
	require.Equal(t, []string{"3"}, ids(v.refused))
	require.Equal(t, []string{"1"}, ids(v.exhausted), "the third failure is the last")
	require.Equal(t, []string{"0"}, ids(v.retried))
	require.Equal(t, 1, v.untouched)
	require.Equal(t, Unavailable, v.trouble)

	v = judge(recordsOf(0, 99), outcomesOf(Failed, Failed), policy)
	require.Equal(t, 2, v.untouched, "the broker confirms nothing: an outage")
	require.Equal(t, Failed, v.trouble)
	v = judge(recordsOf(0, 99), outcomesOf(Failed, Failed), alive)
	require.Len(t, v.retried, 1)
	require.Len(t, v.exhausted, 1)
	require.Equal(t, Confirmed, v.trouble)

	v = judge(recordsOf(0, 0, 0), outcomesOf(Unavailable, Throttled, Unavailable), alive)
	require.Equal(t, 3, v.untouched)
	require.Equal(t, Throttled, v.trouble)
	v = judge(recordsOf(0), outcomesOf(Refused), policy)
	require.Len(t, v.refused, 1, "refused for good needs no witness")
	v = judge(recordsOf(0), outcomesOf(Class(77)), alive)
	require.Equal(t, 1, v.untouched, "an unknown class confirms nothing")
}

func TestRetriesGrowAndNeverOverflow(t *testing.T) {
	p := failurePolicy{alive: true, maxAttempts: math.MaxInt, retry: backoff.Policy{Base: time.Second, Max: 10 * time.Minute}}
	for _, n := range []int{0, 1, 30, 40, 63, 64, 1000, math.MaxInt32} {
		v := judge(recordsOf(n), outcomesOf(Failed), p)
		require.GreaterOrEqual(t, v.retried[0].wait, time.Second/2, n)
		require.LessOrEqual(t, v.retried[0].wait, 10*time.Minute, n)
	}
}

func TestLastErrorFitsItsColumn(t *testing.T) {
	require.Equal(t, "failed: no reason given", lastError("failed", nil))
	require.Equal(t, "refused: a b", lastError("refused", errors.New("a\nb")))
	require.Equal(t, "refused: ?", lastError("refused", errors.New("\xff")))
	require.Len(t, []rune(lastError("failed", errors.New(strings.Repeat("é", 1000)))), maxLastError)
}

func TestPace(t *testing.T) {
	now := time.Now()
	var p pace
	require.True(t, p.sweepDue(now), "a start begins with a sweep")
	p.swept(now, 0, 0)
	require.False(t, p.sweepDue(now.Add(sweepEvery-1)))
	require.True(t, p.sweepDue(now.Add(sweepEvery)))
	p.swept(now, 3, 0)
	require.True(t, p.sweepDue(now.Add(sweepBusy)))
	p.swept(now, 3, 2*time.Second)
	require.False(t, p.sweepDue(now.Add(7*time.Second)), "a slow sweep takes a fifth of the time at most")

	require.Zero(t, p.looked(now, 500, true))
	for i := range 100 {
		d := p.looked(now.Add(time.Duration(i)*time.Millisecond), 0, false)
		require.GreaterOrEqual(t, d, probeMin)
		require.LessOrEqual(t, d, probeMax)
	}
	for _, silence := range []time.Duration{probeFor, time.Second, 3 * time.Second, time.Hour} {
		most := min(silence/10, 250*time.Millisecond)
		var total time.Duration
		for range 100 {
			d := p.looked(now.Add(silence), 0, false)
			require.LessOrEqual(t, d, most, "after %s", silence)
			total += d
		}
		require.Greater(t, total, 60*most, "after %s it asks seldom", silence)
	}
	later := now.Add(time.Hour)
	require.LessOrEqual(t, p.looked(later, 1, false), probeMax, "and wakes with the first event")
}

func TestSizer(t *testing.T) {
	s := sizer{maxRows: 500, maxBytes: 1000}
	require.Equal(t, 500, s.limit(500))
	require.Equal(t, 16, s.limit(16))
	s.learn([]Record{{Payload: make([]byte, 500)}, {Payload: make([]byte, 500)}})
	require.Equal(t, 3, s.limit(500))
	for range 60 {
		s.learn([]Record{{Payload: make([]byte, 1)}})
	}
	require.Equal(t, 500, s.limit(500), "small rows make batches grow again")
	s.learn([]Record{{Payload: make([]byte, 5000)}})
	require.Equal(t, 1, s.limit(500))
}

func TestConfigKeepsTheOrderOfItsTimes(t *testing.T) {
	good := Config{LeaseTTL: 15 * time.Second, PassTimeout: 7 * time.Second, PublishTimeout: 5 * time.Second, RetryMin: time.Second, RetryMax: time.Minute}
	require.NoError(t, good.Validate())
	require.Equal(t, 8*time.Second, good.SessionTimeout())
	bad := Config{LeaseTTL: 5 * time.Second, PassTimeout: 5 * time.Second, PublishTimeout: 5 * time.Second, RetryMin: time.Hour, RetryMax: time.Minute}
	err := bad.Validate()
	for _, name := range []string{
		"SEAHUB_RELAY_PUBLISH_TIMEOUT", "SEAHUB_RELAY_PASS_TIMEOUT", "seahub.relay.lease-ttl", "SEAHUB_RELAY_RETRY_MIN",
	} {
		require.ErrorContains(t, err, name)
	}
}

func TestTraceValuesThatDoNotFitAreLeftOut(t *testing.T) {
	good := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	require.Equal(t, event.Trace{Traceparent: good, RequestID: "r"}, traceOf(event.WithTrace(t.Context(), good, "r")))
	require.Equal(t, event.Trace{}, traceOf(event.WithTrace(t.Context(), "junk", strings.Repeat("r", 65))))
	require.Equal(t, event.Trace{}, traceOf(event.WithTrace(t.Context(), good[:54]+"é", "a b")))
	require.Equal(t, event.Trace{}, traceOf(t.Context()))
}

func TestTheSpanInProgressIsTheTrace(t *testing.T) {
	old := event.WithTrace(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "r")
	span := oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID{1}, SpanID: oteltrace.SpanID{2}, TraceFlags: oteltrace.FlagsSampled,
	})
	require.Equal(t, event.Trace{Traceparent: "00-01000000000000000000000000000000-0200000000000000-01", RequestID: "r"},
		traceOf(oteltrace.ContextWithSpanContext(old, span)))
}

func TestWindow(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	full := func(first, last float64) passResult {
		return passResult{claimed: 500, more: true, first: at(first), last: at(last)}
	}
	var w window
	w.swept(passResult{claimed: 3, last: at(1)}, false)
	require.False(t, w.open, "a sweep that is not full moves nothing")
	w.swept(full(0, 10), true)
	require.Equal(t, window{open: true, lo: at(10), width: windowMin}, w)
	w.passed(full(10, 10.05))
	require.Equal(t, at(10.05), w.lo, "a full pass goes on at its last row")
	w.passed(full(10.05, 10.05))
	require.Equal(t, at(10.05), w.lo, "many rows of one instant are taken one batch after the other")
	w.passed(passResult{claimed: 20, first: at(10.06), last: at(10.07)})
	require.Equal(t, at(10.15), w.lo)
	require.Equal(t, 2*windowMin, w.width, "few rows: a wider step")
	for range 40 {
		w.skip()
	}
	require.Equal(t, windowMax, w.width)
	before := w
	w.swept(full(0, 1), true)
	require.Equal(t, at(1), w.lo, "more than a batch waits below: back to it")
	require.True(t, before.lo.After(w.lo))
	w.swept(full(0, 2), true)
	require.Equal(t, at(1), w.lo, "the sweep reached past the window: it stays")
	w.swept(passResult{claimed: 7, last: at(3)}, false)
	require.False(t, w.open, "a sweep that is not full has seen all there is")
}
