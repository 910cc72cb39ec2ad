package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestTracingIsChecked(t *testing.T) {
	require.NoError(t, Tracing{}.Validate())
	require.NoError(t, Tracing{Endpoint: "http://collector:4318", Headers: "a=b,c=d=e"}.Validate())
	headers, err := Tracing{Headers: "a=b, c = d=e"}.headers()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b", "c": "d=e"}, headers)
	for _, bad := range []string{"collector:4318", "grpc://collector:4317", "http://"} {
		require.ErrorContains(t, Tracing{Endpoint: bad}.Validate(), "SEAHUB_TRACE_ENDPOINT", bad)
	}
	err = Tracing{Headers: "a=b,hunter2"}.Validate()
	require.ErrorContains(t, err, "entry 2")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestATracedRequestTellsHostAndStatusAlone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("traceparent") != "" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	client := &http.Client{Transport: Traced(&http.Transport{})}
	defer client.CloseIdleConnections()
	get := func(ctx context.Context, url string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		require.NoError(t, err)
		res, err := client.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			err = errors.Join(err, res.Body.Close())
		}
		return err
	}
	require.NoError(t, get(t.Context(), server.URL))
	require.Empty(t, spans.Ended(), "without a span there is none")

	ctx, parent := tracer.Start(t.Context(), "process")
	require.NoError(t, get(ctx, server.URL+"/path-hunter2?sign=hunter2"))
	require.Error(t, get(ctx, "http://127.0.0.1:1/?sign=hunter2"))
	require.Len(t, spans.Ended(), 2)
	for _, span := range spans.Ended() {
		require.Equal(t, parent.SpanContext().SpanID(), span.Parent().SpanID())
		require.NotContains(t, fmt.Sprint(span.Name(), span.Attributes(), span.Status(), span.Events()), "hunter2")
	}
	require.Contains(t, fmt.Sprint(spans.Ended()[0].Attributes()), "403")
}
