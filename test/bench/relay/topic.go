package main

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
)

// topic is the broker as the measurement sees it: beside the relay, through the
// broker's own client.
type topic interface {
	version() string
	// configure adds what a relay needs to reach the broker.
	configure(env map[string]string)
	// config is the same for a bus of this process.
	config() provider.Config
	contents
	broker
}

// contents is what the topic holds.
type contents interface {
	reset(ctx context.Context) error
	count(ctx context.Context) (int, error)
	// each calls f with the key of every stored message.
	each(ctx context.Context, f func(key string)) error
	// follow calls f for every message from now on, as soon as it can be read, until
	// ctx ends; it outlives outages of the broker. ready is closed when it listens.
	follow(ctx context.Context, ready chan<- struct{}, f func(key string, at time.Time)) error
}

// broker is the server behind it.
type broker interface {
	stop(ctx context.Context) error
	start(ctx context.Context) error
	close()
}

// topics starts each broker by its provider word.
var topics = map[string]func(ctx context.Context) (topic, error){
	provider.RedisStreams: startRedis,
	provider.RocketMQ:     startRocketMQ,
}

func providers() []string { return slices.Sorted(maps.Keys(topics)) }

// numberOf reads an event's number off its key; ok is false for keys of other making.
func numberOf(key string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(key, "push:")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil
}

// books say what became of events.
type books struct {
	Lost       int `json:"lost"`
	Duplicated int `json:"duplicated"`
	// Strange messages are of events that nobody wrote.
	Strange int `json:"strange"`
}

func (b *books) add(o books) {
	b.Lost += o.Lost
	b.Duplicated += o.Duplicated
	b.Strange += o.Strange
}

// balance compares the events numbered first to first+n-1, all of which were
// committed, with what the broker holds.
func balance(ctx context.Context, t topic, first, n int) (books, error) {
	seen := make([]uint8, n)
	var b books
	err := t.each(ctx, func(key string) {
		i, ok := numberOf(key)
		switch i -= first; {
		case !ok || i < 0 || i >= n:
			b.Strange++
		case seen[i] > 0:
			b.Duplicated++
		default:
			seen[i] = 1
		}
	})
	for _, times := range seen {
		if times == 0 {
			b.Lost++
		}
	}
	return b, err
}
