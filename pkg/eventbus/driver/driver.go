// Package driver is what a broker must offer to eventbus. It is written for the
// people who add a broker; services hold the types of package eventbus.
//
// # Who does what
//
// A driver moves messages and applies outcomes. It retries nothing by itself: a
// failed send is classified and returned. eventbus wraps the handler with deadline,
// recover, the attempts cap and dead letters before the driver sees it, so a driver's
// callback always returns, soon after its context ends; or, given a Run as its context,
// tells that it hangs.
//
// The interfaces fit a broker that pushes (RocketMQ: its client calls us) as well as
// one that is pulled (Redis: we ask): Receiver.Run hands each delivery to the
// callback, on as many goroutines as Subscription.Concurrency says, and does with the
// message what the returned Outcome tells.
//
// # Stop
//
// Run ends in two phases when its context ends: it stops fetching at once and gives
// back what no handler has started, without spending an attempt; callbacks that run
// keep a context of their own for Subscription.DrainTimeout, then that is cancelled
// too. Run returns when the last callback has.
package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Message is one message on its way to a broker. A broker needs Topic, Tag, Key and
// Body only; Headers travel with it where they are given.
type Message struct {
	Topic string
	Tag   string
	// Key is the event_id, by which operators search and consumers recognise repeats.
	Key     string
	Body    []byte
	Headers map[string]string
}

// Delivery is one message as a consumer group receives it.
type Delivery struct {
	Message
	Group string
	// BrokerID is the broker's own id: for logs only, it may change between deliveries.
	BrokerID string
	// Attempt counts handler runs of this group, this one included: 1 is the first.
	Attempt int
	// PublishedAt is when the broker stored the message; zero when it cannot say.
	PublishedAt time.Time
}

// Verdict says what is to become of a delivery.
type Verdict int

// The verdicts. The zero value is Retry: a forgotten result must never be an ack.
const (
	Retry Verdict = iota
	Done
	Skip
	Dead
	// Halt stops the subscription and leaves the message as if it had not been
	// delivered: an event of another country must neither be acked nor dead-lettered.
	Halt
)

func (v Verdict) String() string {
	switch v {
	case Retry:
		return "retry"
	case Done:
		return "done"
	case Skip:
		return "skip"
	case Dead:
		return "dead"
	case Halt:
		return "halt"
	}
	return fmt.Sprintf("verdict(%d)", int(v))
}

// Outcome is a handler's result. A driver acks Done, Skip and Dead (eventbus has
// stored the dead letter before it returns Dead), redelivers Retry not before After
// has passed, and ends Run with ErrHalted on Halt.
type Outcome struct {
	Verdict Verdict
	// After is the least wait before a retry; 0 leaves it to the driver's schedule.
	After time.Duration
	// Reason is for people; it carries no payload and no personal data.
	Reason string
	// Err is the handler's error, if there was one.
	Err error
	// Outside marks a failure of a system beyond this one (a push provider that is
	// down): it is no sign that the event path itself is broken.
	Outside bool
}

// Status classifies the result of one send.
type Status int

// The statuses of a send. The zero value is Unavailable: only a broker's own
// confirmation makes a message sent.
const (
	// Unavailable: the broker was not reached, did not answer in time or was busy.
	// The message may or may not be stored.
	Unavailable Status = iota
	// Confirmed: the broker stored the message.
	Confirmed
	// Refused: the broker, or a check before it, will never take this message.
	Refused
	// Failed: this message failed while the broker answers; trying again may help.
	Failed
	// Throttled: the broker asks for a slower pace.
	Throttled
)

func (s Status) String() string {
	switch s {
	case Unavailable:
		return "unavailable"
	case Confirmed:
		return "confirmed"
	case Refused:
		return "refused"
	case Failed:
		return "failed"
	case Throttled:
		return "throttled"
	}
	return fmt.Sprintf("status(%d)", int(s))
}

// Result is the outcome of sending one message.
type Result struct {
	Status   Status
	BrokerID string
	Err      error
}

// Errors that callers test.
var (
	ErrClosed = errors.New("event bus is closed")
	// ErrHalted: a handler said Halt, or what it asked for can never be right.
	ErrHalted = errors.New("subscription halted")
)

// Sender publishes. Send is safe for concurrent use, returns exactly one Result per
// message in the order given, and returns by ctx's deadline: what has no answer by
// then is Unavailable. It keeps no reference to msgs. Send after Close answers
// Unavailable with ErrClosed for each message.
type Sender interface {
	Send(ctx context.Context, msgs []Message) []Result
	Close(ctx context.Context) error
}

// Subscription names what one consumer group receives and how.
type Subscription struct {
	Topic string
	Group string
	// Tags are the wanted tags; empty means all. Every member of a group must name
	// the same ones.
	Tags []string
	// Concurrency is the greatest number of callbacks at a time, at least 1.
	Concurrency int
	// HandlerTimeout is the longest that a callback takes; a driver's lease on a
	// message must outlive it or be renewed.
	HandlerTimeout time.Duration
	// DrainTimeout is how long running callbacks may go on after Run's context ended.
	DrainTimeout time.Duration
	// MinRetry and MaxRetry bound the driver's own schedule for Retry without After.
	MinRetry time.Duration
	MaxRetry time.Duration
	// Beat, when not nil, is called at least every few seconds while the fetch loop
	// makes progress, also when there is nothing to fetch.
	Beat func()
	// Connected, when not nil, is told when the subscription begins or ceases to
	// work, with the error that made it cease.
	Connected func(ok bool, err error)
}

// Handle processes one delivery. It is called concurrently. See Run for a context that
// saves a goroutine per delivery.
type Handle func(ctx context.Context, d Delivery) Outcome

// Receiver consumes. Run blocks until ctx ends (then it returns nil after the drain)
// or until going on makes no sense (ErrHalted). A broker that is away is waited for
// with back-off, never an error. Several Runs may go on at a time.
type Receiver interface {
	Run(ctx context.Context, sub Subscription, handle Handle) error
}

// Count is a number that may be unknown. Unknown is never shown as zero.
type Count struct {
	N     int64
	Known bool
}

// KnownCount is n, known.
func KnownCount(n int64) Count { return Count{N: n, Known: true} }

// Age is a duration that may be unknown.
type Age struct {
	D     time.Duration
	Known bool
}

// KnownAge is d, known.
func KnownAge(d time.Duration) Age { return Age{D: d, Known: true} }

// GroupState is what a broker tells of one group on one topic.
type GroupState struct {
	Topic string
	Group string
	// Backlog is what the group has still to finish: unread, in flight and parked.
	Backlog Count
	// InFlight is delivered and unfinished, Parked waits for a delayed retry.
	InFlight Count
	Parked   Count
	// OldestAge is the age of the oldest unfinished message, 0 when there is none.
	OldestAge Age
	Members   []string
}

// Inspector looks without touching. An error means that nothing could be learned;
// single figures that the broker does not tell are unknown in the answer.
type Inspector interface {
	Topics(ctx context.Context) ([]string, error)
	Group(ctx context.Context, topic, group string) (GroupState, error)
}

// ErrNoGroup is wrapped by Inspector.Group when the broker has no such group on the
// topic (yet).
var ErrNoGroup = errors.New("no such group")

// GroupLister is offered by inspectors whose broker can list a topic's groups.
type GroupLister interface {
	Groups(ctx context.Context, topic string) ([]string, error)
}

// Provisioner makes topic and group where the broker allows it; repeating it changes
// nothing.
type Provisioner interface {
	Ensure(ctx context.Context, topic string, groups []string) error
}
