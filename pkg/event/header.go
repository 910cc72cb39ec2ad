package event

import "time"

// Header names that our relay adds to a message. Handlers need none of them: Java's
// publisher sends tag, key and body only.
const (
	HeaderAggregateType = "aggregate-type"
	HeaderAggregateID   = "aggregate-id"
	HeaderOutboxID      = "outbox-id"
	HeaderCreatedAt     = "created-at"
	HeaderEnv           = "env"
	HeaderCountry       = "country"
	HeaderTraceparent   = "traceparent"
	HeaderRequestID     = "request-id"
)

// FormatTime renders an instant for a header: RFC 3339 in UTC with milliseconds.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// ParseTime reads what FormatTime wrote; ok is false when there is nothing usable.
func ParseTime(s string) (t time.Time, ok bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	return t, err == nil
}

// DeadLetter is an event that a consumer group gave up on, as it is kept in
// mq_dead_letter until a person replays or discards it.
type DeadLetter struct {
	Group    string
	Topic    string
	Tag      string
	EventID  string
	Body     []byte
	Headers  map[string]string
	Attempts int
	// Reason is why no further attempt is made; LastError what the last one said.
	Reason    string
	LastError string
}
