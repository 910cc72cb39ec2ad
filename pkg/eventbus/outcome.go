package eventbus

import (
	"context"
	"time"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// The portable types are declared by package driver, so that a driver needs nothing
// of this package; services use them by these names.
type (
	Message  = driver.Message
	Delivery = driver.Delivery
	Outcome  = driver.Outcome
	Verdict  = driver.Verdict
	Result   = driver.Result
	Status   = driver.Status

	DeadLetter = event.DeadLetter
)

// The headers that the bus itself reads.
const (
	HeaderCountry   = event.HeaderCountry
	HeaderEnv       = event.HeaderEnv
	HeaderCreatedAt = event.HeaderCreatedAt
)

// The verdicts of an Outcome.
const (
	VerdictRetry = driver.Retry
	VerdictDone  = driver.Done
	VerdictSkip  = driver.Skip
	VerdictDead  = driver.Dead
	VerdictHalt  = driver.Halt
)

// The statuses of a Result.
const (
	Unavailable = driver.Unavailable
	Confirmed   = driver.Confirmed
	Refused     = driver.Refused
	Failed      = driver.Failed
	Throttled   = driver.Throttled
)

// Done says that the effect of the event is in place.
func Done() Outcome { return Outcome{Verdict: driver.Done} }

// Skip says that the event asks for nothing (any more): a duplicate, a flag that is
// off, a row that is gone. It is acknowledged and counted apart from Done.
func Skip(reason string) Outcome { return Outcome{Verdict: driver.Skip, Reason: reason} }

// Retry asks for another attempt on the broker's own growing schedule.
func Retry(err error) Outcome { return Outcome{Verdict: driver.Retry, Err: err} }

// RetryAfter asks for another attempt not before d has passed. Waits beyond a minute
// belong into a delayed event of the outbox, since a broker may hold a retry longer
// than it was asked, and no broker keeps one for ever.
func RetryAfter(d time.Duration, err error) Outcome {
	return Outcome{Verdict: driver.Retry, After: d, Err: err}
}

// RetryOutside is RetryAfter for the failure of a system beyond this one, such as a
// push provider that is down: it does not count against the event path's health.
func RetryOutside(d time.Duration, err error) Outcome {
	return Outcome{Verdict: driver.Retry, After: d, Err: err, Outside: true}
}

// Dead gives the event up: no attempt can succeed. It becomes a dead letter.
func Dead(reason string, err error) Outcome {
	return Outcome{Verdict: driver.Dead, Reason: reason, Err: err}
}

// Halt stops the subscription and leaves the event as if it had not been delivered.
// It is for events whose presence here proves a wrong deployment.
func Halt(reason string, err error) Outcome {
	return Outcome{Verdict: driver.Halt, Reason: reason, Err: err}
}

// Handler does what one event asks for. Handle is called concurrently, and again for
// the same event (see the package comment): its effect must be idempotent.
type Handler interface {
	Handle(ctx context.Context, d Delivery) Outcome
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, d Delivery) Outcome

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, d Delivery) Outcome { return f(ctx, d) }

// DeadLetters keeps the events that a group gave up on. StoreDeadLetter returns nil
// only when the letter is durable; the same letter may be stored more than once.
type DeadLetters interface {
	StoreDeadLetter(ctx context.Context, letter DeadLetter) error
}
