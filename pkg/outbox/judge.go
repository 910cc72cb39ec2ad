package outbox

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// verdict says what a pass does with each of its rows. A row that is in none of the
// lists stays as it was.
type verdict struct {
	confirmed []string
	refused   []failure // FAILED at once
	exhausted []failure // FAILED, its attempts are used up
	retried   []failure // tried again after wait
	untouched int
	// trouble is the class of the outage that left rows untouched, Confirmed if none.
	trouble Class
	err     error
}

type failure struct {
	id      string
	eventID string
	wait    time.Duration
	err     error
}

// failurePolicy is what judge needs to know beside the outcomes.
type failurePolicy struct {
	// alive: the broker confirmed something within the last aliveFor.
	alive bool
	// isolated: the batch is one event that broke every larger batch that it was in,
	// while what stands behind it was confirmed each time (suspect.go).
	isolated    bool
	maxAttempts int
	retry       backoff.Policy
}

// judge applies the failure rules (package comment, "Failures") to one batch. It is a
// pure function of its arguments but for the jitter.
func judge(recs []Record, outs []Outcome, p failurePolicy) verdict {
	v := verdict{trouble: Confirmed}
	for _, o := range outs {
		p.alive = p.alive || o.Class == Confirmed
	}
	for i, rec := range recs {
		v.add(rec, outs[i], p)
	}
	return v
}

func (v *verdict) add(rec Record, o Outcome, p failurePolicy) {
	f := failure{id: rec.ID, eventID: rec.EventID, err: o.Err}
	if o.Class == Unavailable && p.isolated {
		o.Class = Failed
	}
	switch {
	case o.Class == Confirmed:
		v.confirmed = append(v.confirmed, rec.ID)
	case o.Class == Refused:
		v.refused = append(v.refused, f)
	case o.Class == Failed && p.alive && rec.RetryCount+1 >= p.maxAttempts:
		v.exhausted = append(v.exhausted, f)
	case o.Class == Failed && p.alive:
		f.wait = p.retry.Delay(rec.RetryCount + 1)
		v.retried = append(v.retried, f)
	default:
		v.untouched++
		v.trouble, v.err = worse(v.trouble, v.err, o)
	}
}

// worse keeps the class that tells most: throttled names a cause, failed an answer.
func worse(class Class, err error, o Outcome) (Class, error) {
	if class == Confirmed || o.Class == Throttled && class != Throttled {
		return o.Class, o.Err
	}
	return class, err
}

// maxLastError is the size of the last_error column, in characters.
const maxLastError = 512

// lastError renders an error for the column: one line, valid text, cut to fit.
func lastError(class string, err error) string {
	if err == nil {
		err = errors.New("no reason given")
	}
	s := strings.ToValidUTF8(fmt.Sprintf("%s: %v", class, err), "?")
	s = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > maxLastError {
		s = string(runes[:maxLastError-1]) + "…"
	}
	return s
}
