package event_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
)

var occurred = time.Date(2026, 7, 19, 8, 2, 3, 456_000_000, time.FixedZone("", 7*3600))

func TestGoldenOpsCounter(t *testing.T) {
	e, err := event.PushFailed("id", "pm1k2j3h4", 3, occurred)
	require.NoError(t, err)
	got, err := json.Marshal(map[string]any{
		"event_id": e.EventID, "event_type": e.Type, "aggregate_type": e.AggregateType,
		"aggregate_id": e.AggregateID, "payload": e.Payload,
	})
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join("testdata", "ops_counter.json"))
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
}

// An order's id is 64 characters long: what is built of it must still fit, and differ.
func TestOpsCounterIDsFitAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, build := range []func(string, string, time.Time) (event.Event, error){
		event.WhatsAppFailed, event.WebhookFailed, event.OrderCreated, event.CommissionCreated, event.RiskRaised,
	} {
		for _, id := range []string{"1", strings.Repeat("a", 64), strings.Repeat("a", 63) + "b"} {
			e, err := build("id", id, occurred)
			require.NoError(t, err)
			require.False(t, seen[e.EventID], e.EventID)
			seen[e.EventID] = true
		}
	}
	_, err := event.OrderCreated("id", "1", time.Time{})
	require.ErrorIs(t, err, event.ErrInvalid)
	_, err = event.OrderCreated("", "1", occurred)
	require.ErrorIs(t, err, event.ErrInvalid)
}

func TestDecodeOpsCounter(t *testing.T) {
	p, at, err := event.DecodeOpsCounter([]byte(`{"metric":"order_new","country":"id","occurredAt":"2026-07-19T08:02:03.456+07:00","later":1}`))
	require.NoError(t, err)
	require.Equal(t, event.MetricOrderNew, p.Metric)
	require.True(t, at.Equal(occurred))
	for _, body := range []string{``, `[]`, `{}`, `{"metric":"order_new","country":"id"}`, `{"metric":"order_new","country":"id","occurredAt":"hunter2"}`} {
		_, _, err := event.DecodeOpsCounter([]byte(body))
		require.ErrorIs(t, err, event.ErrPayload, body)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
