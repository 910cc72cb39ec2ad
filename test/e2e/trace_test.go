package e2e

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// collected are the spans that a collector of traces was sent, by their service.
type collected struct {
	mu    sync.Mutex
	spans map[string][]*otlp.Span
}

func newCollector(t *testing.T) (*collected, string) {
	t.Helper()
	c := &collected{spans: map[string][]*otlp.Span{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("x-token") != "t" || proto.Unmarshal(body, &request) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.take(&request)
	}))
	t.Cleanup(server.Close)
	return c, server.URL
}

func (c *collected) take(request *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.ResourceSpans {
		name := ""
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.name" {
				name = a.Value.GetStringValue()
			}
		}
		for _, scope := range of.ScopeSpans {
			c.spans[name] = append(c.spans[name], scope.Spans...)
		}
	}
}

// find returns the first span of a service that satisfies is.
func (c *collected) find(service string, is func(s *otlp.Span) bool) *otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans[service] {
		if is(s) {
			return s
		}
	}
	return nil
}

// One trace shows the way of a push: from the transaction that wrote it, through relay
// and consumer, to the request to FCM.
func TestATraceRunsFromTheTransactionToTheOutsideCall(t *testing.T) {
	const trace, transaction = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	spans, address := newCollector(t)
	w := newWorld(t)
	w.Env["SEAHUB_TRACE_ENDPOINT"], w.Env["SEAHUB_TRACE_HEADERS"] = address, "x-token=t"
	w.flagSince()
	relay := w.relay("relay-1")
	consume := w.consumer("consume-1", "consume")
	ctx := event.WithTrace(t.Context(), "00-"+trace+"-"+transaction+"-01", "req-1")
	id := w.pushIn(ctx, w.user(1))
	w.awaitSent(soon, id)
	require.NoError(t, relay.Stop(t.Context()), "what is not sent yet is sent at the stop")
	require.NoError(t, consume.Stop(t.Context()))

	ofTrace := func(s *otlp.Span) bool { return hex.EncodeToString(s.TraceId) == trace }
	var process *otlp.Span
	testenv.Eventually(t, soon, "the consumer's span is the transaction's child", func() bool {
		process = spans.find("push-consumer", func(s *otlp.Span) bool {
			return ofTrace(s) && hex.EncodeToString(s.ParentSpanId) == transaction && s.Kind == otlp.Span_SPAN_KIND_CONSUMER
		})
		return process != nil
	})
	require.NotNil(t, spans.find("push-consumer", func(s *otlp.Span) bool {
		return ofTrace(s) && string(s.ParentSpanId) == string(process.SpanId) && s.Kind == otlp.Span_SPAN_KIND_CLIENT && s.Name == http.MethodPost
	}), "the request to FCM is the consumer's child")
	require.NotNil(t, spans.find("relay", func(s *otlp.Span) bool {
		return s.Kind == otlp.Span_SPAN_KIND_PRODUCER && len(s.Links) == 1 && hex.EncodeToString(s.Links[0].SpanId) == transaction
	}), "the relay's span links to the transaction")
}

func TestACollectorThatIsAwayStopsNothing(t *testing.T) {
	w := newWorld(t)
	w.Env["SEAHUB_TRACE_ENDPOINT"], w.Env["SEAHUB_TRACE_SAMPLE"] = "http://127.0.0.1:1", "1"
	w.flagSince()
	w.relay("relay-1")
	consume := w.consumer("consume-1", "consume")
	w.awaitSent(soon, w.pushes(5)...)
	require.NoError(t, consume.Stop(t.Context()), "it stops in time, and as if all were well")
}

// pushIn is push in a context of the caller's.
func (w *world) pushIn(ctx context.Context, user string) string {
	w.t.Helper()
	const id = "p-traced"
	e, err := event.PushDispatched(id)
	require.NoError(w.t, err)
	require.NoError(w.t, db.InTx(ctx, w.gorm, func(tx *gorm.DB) error {
		err := tx.Exec(`INSERT INTO push_messages (id, user_id, title, body, due_at, created_at, updated_at)
			VALUES (?, ?, 'hello', ?, NOW(3), NOW(3), NOW(3))`, id, user, secretText).Error
		if err != nil {
			return err
		}
		_, err = outbox.Append(ctx, tx, e)
		return err
	}))
	return id
}
