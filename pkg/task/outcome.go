package task

import (
	"context"
	"errors"
	"time"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/eventbus"
)

// LongWait is the longest wait that is left to the broker's retry; beyond it a delayed
// event brings a row back.
const LongWait = time.Minute

// Done is eventbus.Done with a reason, for an event that found the effect in place.
func Done(reason string) eventbus.Outcome {
	out := eventbus.Done()
	out.Reason = reason
	return out
}

// Retry is for errors of the service's own. The database being away is nothing that
// the poll could do better, so it does not count against the event path.
func Retry(err error, attempt int) eventbus.Outcome {
	wait := backoff.Policy{Base: time.Second, Max: LongWait}.Delay(attempt)
	if db.IsUnavailable(err) || errors.Is(err, context.Canceled) {
		return eventbus.RetryOutside(wait, err)
	}
	return eventbus.RetryAfter(wait, err)
}
