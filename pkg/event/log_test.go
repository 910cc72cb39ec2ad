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
	inner := event.WithLogFields(outer, event.LogFields{EventID: "push:1", TraceID: "t", RequestID: "r"})
	for _, c := range []struct {
		ctx  context.Context
		want string
	}{
		{inner, `{"level":"info","service":"relay","consumer_group":"GID_id_push_dispatch","event_id":"push:1","trace_id":"t","request_id":"r"}`},
		{outer, `{"level":"info","service":"relay","consumer_group":"GID_id_push_dispatch"}`},
		{base, `{"level":"info","service":"relay"}`},
	} {
		out.Reset()
		zerolog.Ctx(c.ctx).Info().Send()
		require.JSONEq(t, c.want, out.String())
	}
	require.Same(t, zerolog.Ctx(inner), zerolog.Ctx(inner), "it is made once")
	zerolog.Ctx(event.WithLogFields(t.Context(), event.LogFields{EventID: "push:1"})).Info().Msg("a context without a logger stays without")
}
