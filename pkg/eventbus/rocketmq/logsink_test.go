package rocketmq_test

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq"
)

// logs is where the client and all subscriptions of this package's tests write.
var logs logSink

type logSink struct {
	mu    sync.Mutex
	lines []string
}

func (s *logSink) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, string(line))
	return len(line), nil
}

// take makes the sink the client's: the client has one logger for the process, that of
// the first driver.
func (s *logSink) take() error {
	d, err := rocketmq.New(rocketmq.Config{NameServers: []string{"127.0.0.1:1"}}, rocketmq.Options{Country: "id", Logger: zerolog.New(s)})
	if err != nil {
		return err
	}
	return d.Close(context.Background())
}

// of is the logger of one test's subscriptions, as a service has it.
func (s *logSink) of(t testing.TB) zerolog.Logger {
	return zerolog.New(s).Level(zerolog.InfoLevel).With().Str("test", t.Name()).Logger()
}

// mark is where the log is now.
func (s *logSink) mark() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines)
}

// since splits what was written after a mark: the test's own lines, and those of the
// client, which do not say whose they are.
func (s *logSink) since(t testing.TB, mark int) (own, client []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines[mark:] {
		switch {
		case strings.Contains(line, `"test":"`+t.Name()+`"`):
			own = append(own, line)
		case strings.Contains(line, `"client":"rocketmq"`):
			client = append(client, line)
		}
	}
	return own, client
}

// markedBody is that of messages whose body is looked for in logs.
const markedBody = `{"for":"no-log-to-read"}`

// bounded demands that an outage of a length was told in a few lines, however many
// messages it met, and that no line holds a message's body, as text or as the encoding
// of bytes.
func (s *logSink) bounded(t testing.TB, mark int, began time.Time, members int) {
	t.Helper()
	took := time.Since(began)
	own, client := s.since(t, mark)
	t.Logf("%d lines of %d members and %d of the client in %s", len(own), members, len(client), took.Round(time.Second))
	for _, line := range slices.Concat(own, client) {
		for _, body := range []string{"no-log-to-read", base64.StdEncoding.EncodeToString([]byte(markedBody))} {
			require.NotContains(t, line, body)
		}
	}
	periods := int(took/(10*time.Second)) + 1
	require.LessOrEqual(t, len(client), periods, "the client's lines: one in 10 s\n%s", strings.Join(client, ""))
	require.LessOrEqual(t, len(own), 6*members*periods, "the members' lines\n%s", strings.Join(own, ""))
	require.NotEmpty(t, own, "an outage is told")
	_, ever := s.since(t, 0)
	require.NotEmpty(t, ever, "the client's lines come here")
}
