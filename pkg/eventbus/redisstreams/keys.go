package redisstreams

import (
	"errors"
	"fmt"
	"strings"
)

// names maps callers' topics to keys of this environment.
type names struct {
	env     string
	country string
}

// keys are the Redis keys of one topic. All hash to the same Cluster slot: the stream
// key as a whole is the hash tag of the helper keys, braces included literally.
type keys struct {
	stream string
	// trimLock lets one member trim at a time.
	trimLock string
}

var errTopic = errors.New("not a topic of this deployment")

const maxTopicLen = 127

// of returns the keys of beex-<country>-<name>: the stream beex:<env>:<name>.
func (n names) of(topic string) (keys, error) {
	prefix := "beex-" + n.country + "-"
	name, ok := strings.CutPrefix(topic, prefix)
	if !ok || name == "" || len(topic) > maxTopicLen {
		return keys{}, fmt.Errorf("%w: %q: topics here are named %s<name>", errTopic, topic, prefix)
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return keys{}, fmt.Errorf("%w: %q: only lower-case letters, digits, - and _ may follow %s", errTopic, topic, prefix)
		}
	}
	stream := n.streamPrefix() + name
	return keys{stream: stream, trimLock: "{" + stream + "}:trim"}, nil
}

func (n names) streamPrefix() string { return "beex:" + n.env + ":" }

// topic is the reverse of of.
func (n names) topic(stream string) (string, bool) {
	name, ok := strings.CutPrefix(stream, n.streamPrefix())
	if !ok || name == "" || strings.Contains(name, ":") {
		return "", false
	}
	return "beex-" + n.country + "-" + name, true
}

// due is the schedule of a group's parked messages; members its heartbeats.
func (k keys) due(group string) string     { return "{" + k.stream + "}:due:" + group }
func (k keys) members(group string) string { return "{" + k.stream + "}:members:" + group }
