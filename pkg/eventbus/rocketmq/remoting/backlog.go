package remoting

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Figure is a number that may be unknown; unknown is not zero.
type Figure struct {
	N     int64
	Known bool
}

// Age is a duration that may be unknown.
type Age struct {
	D     time.Duration
	Known bool
}

// QueueState is how far a group is on one queue.
type QueueState struct {
	Queue
	// Min is the oldest message that is kept, Max the next one to be written.
	Min, Max int64
	// Committed is the first that the group has not finished, see GroupOffset.
	Committed Figure
}

// next is the message that the group has to do first. A group that has not begun
// begins at the oldest.
func (q QueueState) next() int64 {
	if !q.Committed.Known {
		return q.Min
	}
	return max(q.Committed.N, q.Min)
}

// Waiting counts the messages that the group has still to finish.
func (q QueueState) Waiting() int64 { return max(0, q.Max-q.next()) }

// Expired counts the messages that the broker threw away before the group had
// finished them.
func (q QueueState) Expired() int64 {
	if !q.Committed.Known {
		return 0
	}
	return max(0, q.Min-q.Committed.N)
}

// Backlog is the state of one group on one topic.
type Backlog struct {
	Topic, Group string
	Queues       []QueueState
	// Waiting is the sum over Queues, all tags counted; offsets are committed every
	// few seconds, so a group that has caught up shows the last of them.
	Waiting Figure
	// Retry counts the messages whose time to be tried again has come. Those that
	// still wait for it stand in no queue of the group, and no request tells them.
	Retry Figure
	// Dead counts the messages in the broker's own dead-letter queue.
	Dead Figure
	// Oldest is the age of the oldest message in Waiting and Retry by our clock, 0
	// when there is none.
	Oldest Age
	// Members are the client ids of the group; nil when unknown.
	Members []string
	// Missed says why figures are unknown, nil when all are known.
	Missed error
}

// Backlog asks for the state of a group. It returns an error when the topic's
// queues could not be found, or none of them could be asked; lesser failures leave
// their figures unknown and stand in Missed.
func (c *Client) Backlog(ctx context.Context, topic, group string) (Backlog, error) {
	b := Backlog{Topic: topic, Group: group}
	queues, err := c.Route(ctx, topic)
	if err != nil {
		return b, err
	}
	var missed []error
	b.Queues, err = c.states(ctx, queues, group)
	if err != nil {
		err = fmt.Errorf("backlog of %s: %w", group, err)
		if len(b.Queues) == 0 {
			return b, err
		}
		missed = append(missed, err)
	}
	b.Waiting = Figure{N: waiting(b.Queues), Known: err == nil}

	retries, err := c.statesOf(ctx, c.retryTopic(group), group)
	b.Retry = Figure{N: waiting(retries), Known: err == nil}
	if err != nil {
		missed = append(missed, fmt.Errorf("retries of %s: %w", group, err))
	}
	b.Dead, err = c.depth(ctx, c.deadTopic(group))
	if err != nil {
		missed = append(missed, fmt.Errorf("dead letters of %s: %w", group, err))
	}
	b.Members, err = c.members(ctx, Brokers(queues), group)
	if err != nil {
		missed = append(missed, err)
	}
	if b.Waiting.Known && b.Retry.Known {
		b.Oldest, err = c.oldest(ctx, group, b.Queues, retries)
		if err != nil {
			missed = append(missed, fmt.Errorf("oldest message of %s: %w", group, err))
		}
	}
	b.Missed = errors.Join(missed...)
	return b, nil
}

// states asks for each queue and returns those that could be learned. It does not
// wait for a broker a second time.
func (c *Client) states(ctx context.Context, queues []Queue, group string) ([]QueueState, error) {
	var states []QueueState
	failed := make(map[string]error) // by broker
	for _, q := range queues {
		if failed[q.Addr] != nil {
			continue
		}
		state, err := c.state(ctx, q, group)
		if err != nil {
			failed[q.Addr] = fmt.Errorf("broker %s: %w", q.Broker, err)
			continue
		}
		states = append(states, state)
	}
	var errs []error
	for _, err := range failed {
		errs = append(errs, err)
	}
	return states, errors.Join(errs...)
}

func (c *Client) state(ctx context.Context, q Queue, group string) (QueueState, error) {
	s := QueueState{Queue: q}
	var err error
	// The group's offset before the end of the queue: the other way round a message
	// that is written and finished in between would make the difference negative.
	if s.Committed, err = c.GroupOffset(ctx, q, group); err != nil {
		return s, err
	}
	if s.Min, err = c.MinOffset(ctx, q); err != nil {
		return s, err
	}
	s.Max, err = c.MaxOffset(ctx, q)
	return s, err
}

// statesOf is states for a topic by its full name; a topic that does not exist
// holds nothing.
func (c *Client) statesOf(ctx context.Context, topic, group string) ([]QueueState, error) {
	queues, err := c.route(ctx, topic, permRead)
	if errors.Is(err, ErrTopicMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return c.states(ctx, queues, group)
}

// depth counts the messages that a topic holds.
func (c *Client) depth(ctx context.Context, topic string) (Figure, error) {
	queues, err := c.route(ctx, topic, 0) // old brokers let nobody read dead letters
	if errors.Is(err, ErrTopicMissing) {
		return Figure{Known: true}, nil
	}
	if err != nil {
		return Figure{}, err
	}
	var total int64
	for _, q := range queues {
		oldest, err := c.MinOffset(ctx, q)
		if err != nil {
			return Figure{}, err
		}
		end, err := c.MaxOffset(ctx, q)
		if err != nil {
			return Figure{}, err
		}
		total += end - oldest
	}
	return Figure{N: total, Known: true}, nil
}

// oldest looks at the first unfinished message of each queue. A retried message is
// as old as its making, not as its last storing.
func (c *Client) oldest(ctx context.Context, group string, queues, retries []QueueState) (Age, error) {
	var first time.Time
	look := func(states []QueueState, pick func(Times) time.Time) error {
		for _, s := range states {
			if s.Waiting() == 0 {
				continue
			}
			times, ok, err := c.MessageTimes(ctx, s.Queue, group, s.next())
			if err != nil {
				return err
			}
			if at := pick(times); ok && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
		return nil
	}
	if err := look(queues, func(t Times) time.Time { return t.Stored }); err != nil {
		return Age{}, err
	}
	if err := look(retries, func(t Times) time.Time { return t.Born }); err != nil {
		return Age{}, err
	}
	if first.IsZero() {
		return Age{Known: true}, nil
	}
	return Age{D: max(0, time.Since(first)), Known: true}, nil
}

func waiting(states []QueueState) int64 {
	var total int64
	for _, s := range states {
		total += s.Waiting()
	}
	return total
}
