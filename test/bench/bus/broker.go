package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
)

// Whose events these are.
const (
	env     = "id-test"
	country = "id"
)

// broker is one broker with both ways to use it. Publish sends n messages in batches,
// one after the other; consume receives n messages and acknowledges them, and returns
// how long that took from the first message on.
type broker interface {
	// version of the server and what of its settings matters.
	version() string
	// reset leaves the topic without messages and without groups.
	reset(ctx context.Context) error
	// stored is how many messages the broker holds, unfinished how many of them the
	// group that both ways consume by has not acknowledged.
	stored(ctx context.Context) (int, error)
	unfinished(ctx context.Context) (int, error)
	ways() (ours, bare way)
	close()
}

// way is one way to use a broker.
type way struct {
	name    string
	publish func(ctx context.Context, n int) error
	consume func(ctx context.Context, n int) (time.Duration, error)
}

// brokers starts each by its provider word.
var brokers = map[string]func(ctx context.Context, s sizes) (broker, error){
	provider.RedisStreams: startRedis,
	provider.RocketMQ:     startRocketMQ,
}

func providers() []string { return slices.Sorted(maps.Keys(brokers)) }

// corpus makes one batch of messages like those of the relay, headers and all. A
// measurement sends it again and again: neither side gains from it, and making
// messages is no part of either.
func corpus(s sizes) []eventbus.Message {
	created := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	msgs := make([]eventbus.Message, s.Batch)
	for i := range msgs {
		id := strconv.Itoa(4_000_000 + i)
		msgs[i] = eventbus.Message{
			Topic: eventbus.Topic(country), Tag: string(event.PushDispatch),
			Key:  event.PushEventID(id),
			Body: body(id, s.BodyBytes),
			Headers: map[string]string{
				event.HeaderAggregateType: "push_task",
				event.HeaderAggregateID:   id,
				event.HeaderOutboxID:      event.NewOutboxID(),
				event.HeaderCreatedAt:     event.FormatTime(created.Add(time.Duration(i) * time.Millisecond)),
				event.HeaderEnv:           env,
				event.HeaderCountry:       country,
				event.HeaderTraceparent:   fmt.Sprintf("00-%032x-%016x-01", i+1, i+1),
				event.HeaderRequestID:     fmt.Sprintf("req-%012d", i),
			},
		}
	}
	return msgs
}

// body is a payload of exactly size bytes, or the shortest that holds the id.
func body(id string, size int) []byte {
	head, tail := `{"pushId":"`+id+`","text":"`, `"}`
	return []byte(head + strings.Repeat("x", max(0, size-len(head)-len(tail))) + tail)
}

// noDeadLetters: an empty handler has none, so one is a fault of the measurement.
type noDeadLetters struct{}

func (noDeadLetters) StoreDeadLetter(context.Context, event.DeadLetter) error {
	return errors.New("the benchmark expects no dead letter")
}
