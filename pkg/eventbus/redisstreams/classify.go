package redisstreams

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// classify says what a failed XADD means for its message, and whether the server
// answered at all.
func classify(err error) (status driver.Status, answered bool) {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.ErrClosed) {
		return driver.Unavailable, false
	}
	text := reply.Error()
	code, _, _ := strings.Cut(text, " ")
	switch code {
	case "OOM":
		// Memory is at its limit: consumers drain it and trimming frees it.
		return driver.Throttled, true
	case "LOADING", "READONLY", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
		"MISCONF", "BUSY", "MOVED", "ASK", "UNBLOCKED",
		// A wrong password or a wrong kind of key is an outage of the whole path that
		// a person ends, and no fault of the message.
		"NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE":
		return driver.Unavailable, true
	}
	switch {
	case strings.Contains(text, "max number of clients"):
		return driver.Unavailable, true
	case strings.Contains(text, "Elements are too large"), strings.Contains(text, "invalid bulk length"):
		return driver.Refused, true
	}
	return driver.Failed, true
}

// outOfMemory tells that the server takes no command that could need memory, not even
// one that would change nothing.
func outOfMemory(err error) bool { return redis.HasErrorPrefix(err, "OOM") }

// missingGroup tells that the stream or the group is gone. Redis 7.0 answers a reader
// that is blocked at that moment with UNBLOCKED, later versions with NOGROUP; XINFO
// has words of its own; and older servers wrap the error of a command in a script.
func missingGroup(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := reply.Error()
	return strings.Contains(text, "NOGROUP") || strings.Contains(text, "UNBLOCKED") || strings.Contains(text, "no such key")
}
