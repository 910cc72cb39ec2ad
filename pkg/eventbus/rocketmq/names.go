package rocketmq

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

var errTopic = errors.New("not a topic of this deployment")

// maxTopicLen is what Alibaba Cloud takes; a self-hosted broker takes 127.
const maxTopicLen = 64

func (d *Driver) eventTopic() string { return "beex-" + d.country + "-events" }

// checkTopic refuses what cannot be a topic of this country: a message to another one
// would fail with every attempt, for ever.
func (d *Driver) checkTopic(topic string) error {
	prefix := "beex-" + d.country + "-"
	name, ok := strings.CutPrefix(topic, prefix)
	if !ok || name == "" || len(topic) > maxTopicLen {
		return fmt.Errorf("%w: %q: topics here are named %s<name> and have at most %d characters", errTopic, topic, prefix, maxTopicLen)
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return fmt.Errorf("%w: %q: only lower-case letters, digits, - and _ may follow %s", errTopic, topic, prefix)
		}
	}
	return nil
}

// instanceName is unique: two clients under one name share a connection and lose
// each other's registrations. In a container every process has the same pid.
func instanceName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}

// topicBook remembers topics and what is known of them.
type topicBook struct {
	mu    sync.Mutex
	names map[string]topicState
}

// topicState: the name servers know a found topic; a warm one was sent to by the
// client, which makes its own table of the topic's queues before that of brokers, so
// that other sends at that moment would find the first and not the second.
type topicState struct{ found, warm bool }

func (b *topicBook) of(topic string) topicState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.names[topic]
}

func (b *topicBook) found(topic string, found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.names[topic]
	s.found = found
	s.warm = s.warm && found
	b.names[topic] = s
}

func (b *topicBook) warm(topic string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.names[topic]; s.found {
		s.warm = true
		b.names[topic] = s
	}
}

func (b *topicBook) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.names))
}
