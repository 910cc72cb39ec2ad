package redisstreams

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// The fields of a stream entry. Every entry has all four in this order, which lets
// Redis store the names once for a run of entries.
const (
	fieldTag     = "tag"
	fieldKey     = "key"
	fieldBody    = "body"
	fieldHeaders = "headers"
)

// appendHeaders writes headers in one field, each name and value as its length, a
// colon and its bytes: "7:country2:id". Nothing needs escaping, and reading takes no
// parser.
func appendHeaders(b []byte, headers map[string]string) []byte {
	for name, value := range headers {
		b = strconv.AppendInt(b, int64(len(name)), 10)
		b = append(b, ':')
		b = append(b, name...)
		b = strconv.AppendInt(b, int64(len(value)), 10)
		b = append(b, ':')
		b = append(b, value...)
	}
	return b
}

var errHeaders = errors.New("headers field is malformed")

// parseHeaders is the reverse of appendHeaders. What came before a malformed part is
// returned with the error: headers are an aid, and no reason to lose a message.
func parseHeaders(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	out := make(map[string]string, 8)
	for s != "" {
		name, rest, ok := cutPiece(s)
		if !ok {
			return out, errHeaders
		}
		value, rest, ok := cutPiece(rest)
		if !ok {
			return out, errHeaders
		}
		out[name], s = value, rest
	}
	return out, nil
}

func cutPiece(s string) (piece, rest string, ok bool) {
	digits, rest, ok := strings.Cut(s, ":")
	if !ok {
		return "", "", false
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n > len(rest) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}

// entry is a stream entry as its reader got it.
type entry struct {
	id, tag, key, headers string
	body                  []byte
	// count is the delivery counter of the entry for this group, see attempts.go.
	count int64
}

// set takes one field; unknown ones are passed over. The bytes are copied.
func (e *entry) set(name, value []byte) {
	switch string(name) {
	case fieldTag:
		e.tag = string(value)
	case fieldKey:
		e.key = string(value)
	case fieldBody:
		e.body = slices.Clone(value)
	case fieldHeaders:
		e.headers = string(value)
	}
}

// delivery turns an entry into what a handler gets.
func (e *entry) delivery(topic, group string, crashSlack int) (driver.Delivery, error) {
	headers, err := parseHeaders(e.headers)
	return driver.Delivery{
		Message: driver.Message{Topic: topic, Tag: e.tag, Key: e.key, Body: e.body, Headers: headers},
		Group:   group, BrokerID: e.id,
		Attempt:     attempt(e.count, crashSlack),
		PublishedAt: idTime(e.id),
	}, err
}

// idTime is when the server gave out an entry id, by the server's clock.
func idTime(id string) time.Time {
	ms, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
