package books

import (
	"slices"
	"time"
)

// Window is a span of time in which something was broken on purpose.
type Window struct{ From, To time.Time }

// Latencies returns, sorted, the time from each commit to the first request for each
// device that was accepted. Pushes meant for later are left out, and so are those
// committed in one of the windows.
func Latencies(plan Plan, requests []Request, windows ...Window) []time.Duration {
	commits := map[string]Commit{}
	for _, c := range plan.Committed {
		if !c.Later && !slices.ContainsFunc(windows, func(w Window) bool { return !c.At.Before(w.From) && !c.At.After(w.To) }) {
			commits[c.PushID] = c
		}
	}
	first := map[delivery]time.Time{}
	for _, r := range requests {
		for _, push := range distinct(r.CollapseIDs) {
			d := delivery{push, r.Token}
			if at, seen := first[d]; r.Accepted && (!seen || r.At.Before(at)) {
				first[d] = r.At
			}
		}
	}
	var all []time.Duration
	for d, at := range first {
		if c, ok := commits[d.push]; ok {
			all = append(all, at.Sub(c.At))
		}
	}
	slices.Sort(all)
	return all
}

// Quantile of sorted values: the smallest that at least the share q of them does not
// exceed; 0 without values.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(q * float64(len(sorted)))
	if float64(i) == q*float64(len(sorted)) {
		i--
	}
	return sorted[min(max(i, 0), len(sorted)-1)]
}
