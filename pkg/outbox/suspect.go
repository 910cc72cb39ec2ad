package outbox

import (
	"context"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// suspect tells an outage from an event that takes the connection down with it. Both look
// the same to a batch: nothing in it is confirmed. So while publishing fails, two places
// are tried by turns, with few rows: the head of the queue, and what lies behind the rows
// that failed last.
//
// In an outage both fail, and no row is touched. When what lies behind is confirmed while
// the head fails, again and again, the head is halved each time until one event is left:
// it alone is to blame, and its failure counts as an attempt of its own.
type suspect struct {
	// on: a look behind has succeeded, and the head has not since.
	on bool
	// limit is how many rows of the head are tried.
	limit int
	// behind: the next look goes behind after, and not to the head.
	behind bool
	after  place
	// alibi: a look behind has succeeded since the head failed last.
	alibi bool
}

func (s *suspect) rows() int {
	if s.limit == 0 {
		return outageRows
	}
	return s.limit
}

// isolated reports whether a batch of n events is one that alone is to blame when it
// fails now.
func (s *suspect) isolated(n int) bool {
	return s.on && !s.behind && s.alibi && n == 1 && s.limit == 1
}

// headFailed follows a failed look at the head.
func (s *suspect) headFailed(res passResult) {
	if s.alibi {
		s.limit = max(1, res.claimed/2)
	}
	s.alibi = false
	s.behind, s.after = true, place{at: res.last, id: res.lastID}
}

// headPassed follows a look at the head that met no trouble. A head that is through
// ends the suspicion.
func (s *suspect) headPassed(res passResult) {
	if !s.on || !res.more || !(place{at: res.last, id: res.lastID}).before(s.after) {
		*s = suspect{}
		return
	}
	s.limit = min(outageRows, 2*s.rows())
}

// behindPassed follows a look behind that met no trouble.
func (s *suspect) behindPassed(res passResult) {
	s.behind = false
	if res.confirmed > 0 {
		s.on, s.alibi = true, true
	}
}

// behindFailed follows a look behind that failed too: the next one goes further.
func (s *suspect) behindFailed(res passResult) {
	s.behind, s.after = false, place{at: res.last, id: res.lastID}
}

// examine is what the relay does while publishing fails.
func (w *worker) examine(ctx context.Context) look {
	s := &w.suspect
	if !s.behind {
		got := w.probe(ctx, everywhere(), s.rows())
		switch {
		case got.ok:
			s.headPassed(got.passResult)
			w.recovered(ctx)
		case got.claimed > 0:
			s.headFailed(got.passResult)
		}
		return got
	}
	got := w.probe(ctx, beyond(s.after.at, s.after.id), outageRows)
	switch {
	case got.ok:
		s.behindPassed(got.passResult)
		if got.claimed == 0 {
			got.wait = backoff.Policy{Base: outageBase, Max: w.cfg.OutageMax}.Delay(max(1, w.outages))
		} else {
			w.outages = 0
		}
	case got.claimed > 0:
		s.behindFailed(got.passResult)
	}
	return got
}
