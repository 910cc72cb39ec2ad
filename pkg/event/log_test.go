package event_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
)

func TestLogFieldsAddUpAndLeaveTheParentAlone(t *testing.T) {
	var out bytes.Buffer
	base := zerolog.New(&out).With().Str("service", "relay").Logger().WithContext(t.Context())
	outer := event.WithLogFields(base, event.LogFields{Group: "GID_id_push_dispatch"})
	inner := event.WithLogFields(outer, event.LogFields{EventID: "push:1", Trace: event.Trace{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", RequestID: "r"}})
	for _, c := range []struct {
		ctx  context.Context
		want string
	}{
		{inner, `{"level":"info","service":"relay","consumer_group":"GID_id_push_dispatch","event_id":"push:1","trace_id":"0af7651916cd43dd8448eb211c80319c","request_id":"r"}`},
		{outer, `{"level":"info","service":"relay","consumer_group":"GID_id_push_dispatch"}`},
		{base, `{"level":"info","service":"relay"}`},
	} {
		out.Reset()
		zerolog.Ctx(c.ctx).Info().Send()
		require.JSONEq(t, c.want, out.String())
	}
	require.Same(t, zerolog.Ctx(inner), zerolog.Ctx(inner), "it is made once")
	require.Equal(t, "r", event.TraceOf(event.WithLogFields(inner, event.LogFields{Task: "t"})).RequestID, "what is appended carries on the trace")
	require.Zero(t, event.TraceOf(outer))
	zerolog.Ctx(event.WithLogFields(t.Context(), event.LogFields{EventID: "push:1"})).Info().Msg("a context without a logger stays without")
}
