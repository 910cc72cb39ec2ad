package event_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
)

func valid() event.Event {
	return event.Event{EventID: "push:1", Type: event.PushDispatch, AggregateType: "push_task", AggregateID: "1", Payload: json.RawMessage(`{"pushId":"1"}`)}
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		change func(*event.Event)
		want   string // empty: valid
	}{
		"as it is":                 {func(*event.Event) {}, ""},
		"leading space in payload": {func(e *event.Event) { e.Payload = json.RawMessage(" \n{}") }, ""},
		"emoji in payload":         {func(e *event.Event) { e.Payload = json.RawMessage(`{"t":"🎁"}`) }, ""},
		"longest payload":          {func(e *event.Event) { e.Payload = object(event.MaxPayloadBytes) }, ""},
		"payload one byte over":    {func(e *event.Event) { e.Payload = object(event.MaxPayloadBytes + 1) }, "at most 65535"},
		"empty payload":            {func(e *event.Event) { e.Payload = nil }, "payload is empty"},
		"payload is no JSON":       {func(e *event.Event) { e.Payload = json.RawMessage(`{"a":`) }, "not valid JSON"},
		"payload is a list":        {func(e *event.Event) { e.Payload = json.RawMessage(`[]`) }, "not a JSON object"},
		"payload is not UTF-8":     {func(e *event.Event) { e.Payload = json.RawMessage("{\"a\":\"\xff\"}") }, "not valid UTF-8"},
		"empty id":                 {func(e *event.Event) { e.EventID = "" }, "event_id is empty"},
		"longest id":               {func(e *event.Event) { e.EventID = strings.Repeat("x", 64) }, ""},
		"id too long":              {func(e *event.Event) { e.EventID = strings.Repeat("x", 65) }, "event_id has 65 bytes"},
		"trailing space":           {func(e *event.Event) { e.EventID = "push:1 " }, "only printable ASCII"},
		"accent":                   {func(e *event.Event) { e.EventID = "push:é" }, "only printable ASCII"},
		"Kelvin sign":              {func(e *event.Event) { e.EventID = "push:\u212a" }, "only printable ASCII"},
		"control character":        {func(e *event.Event) { e.AggregateID = "1\x01" }, "aggregate_id has byte 0x01"},
		"aggregate type too long":  {func(e *event.Event) { e.AggregateType = strings.Repeat("x", 33) }, "aggregate_type has 33 bytes"},
		"empty type":               {func(e *event.Event) { e.Type = "" }, "event_type is empty"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := valid()
			tt.change(&e)
			err := e.Validate()
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, event.ErrInvalid)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func object(size int) json.RawMessage {
	const frame = `{"a":""}`
	return json.RawMessage(`{"a":"` + strings.Repeat("x", size-len(frame)) + `"}`)
}

func TestValidateNamesEveryFaultAndNoPayload(t *testing.T) {
	e := event.Event{EventID: "a b", Type: "T", AggregateType: "", AggregateID: "1", Payload: json.RawMessage(`{"secret":"hunter2"`)}
	err := e.Validate()
	require.ErrorContains(t, err, "event_id")
	require.ErrorContains(t, err, "aggregate_type")
	require.ErrorContains(t, err, "payload")
	require.NotContains(t, err.Error(), "hunter2")
}

// The golden files are what other languages write and read. A change here is a change
// of a contract with programs that are deployed at other times.
func TestGoldenPayloads(t *testing.T) {
	first, err := event.PushDispatched("pm1k2j3h4")
	require.NoError(t, err)
	retried, err := event.PushRetried("pm1k2j3h4", 2)
	require.NoError(t, err)
	coupon, err := event.CouponExpired("u7h3k", "uc9x2m4")
	require.NoError(t, err)
	for name, e := range map[string]event.Event{"push_dispatch": first, "push_retry": retried, "coupon_expire": coupon} {
		got, err := json.MarshalIndent(map[string]any{
			"event_id": e.EventID, "event_type": e.Type, "aggregate_type": e.AggregateType,
			"aggregate_id": e.AggregateID, "payload": e.Payload,
		}, "", "  ")
		require.NoError(t, err)
		want, err := os.ReadFile(filepath.Join("testdata", name+".json"))
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(got), name)
	}
}

func TestEventIDs(t *testing.T) {
	require.Equal(t, "push:7", event.PushEventID("7"))
	require.Equal(t, "push:7:a3", event.PushRetryEventID("7", 3))
	require.Equal(t, "coupon:u1:c2:expire", event.CouponExpireEventID("u1", "c2"))
	require.Equal(t, "campaign:id:9:r5", event.CampaignSyncEventID("id", "9", "r5"))
	require.Equal(t, "id:9", event.CampaignAggregateID("id", "9"))
}

func TestOutboxIDsAreUniqueAndSortByTime(t *testing.T) {
	form := regexp.MustCompile(`^obe[0-9a-z]{8,9}[0-9a-z]{12}$`)
	seen := map[string]bool{}
	first := event.NewOutboxID()
	for range 10_000 {
		id := event.NewOutboxID()
		require.Regexp(t, form, id)
		require.False(t, seen[id])
		seen[id] = true
	}
	time.Sleep(2 * time.Millisecond)
	require.Less(t, first, event.NewOutboxID())
}

func TestDecodePushDispatch(t *testing.T) {
	p, err := event.DecodePushDispatch([]byte(`{"pushId":"9007199254740993","later":{"x":1}}`))
	require.NoError(t, err)
	require.Equal(t, "9007199254740993", p.PushID)
	for _, body := range []string{``, `[]`, `{}`, `{"pushId":""}`, `{"pushId":7}`, `"hunter2"`} {
		_, err := event.DecodePushDispatch([]byte(body))
		require.ErrorIs(t, err, event.ErrPayload, body)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestDecodeCouponExpire(t *testing.T) {
	p, err := event.DecodeCouponExpire([]byte(`{"userCouponId":"9007199254740993","userId":"u1","later":[]}`))
	require.NoError(t, err)
	require.Equal(t, event.CouponExpirePayload{UserCouponID: "9007199254740993", UserID: "u1"}, p)
	for _, body := range []string{``, `[]`, `{}`, `{"userId":"u1"}`, `{"userCouponId":9007199254740993}`, `"hunter2"`} {
		_, err := event.DecodeCouponExpire([]byte(body))
		require.ErrorIs(t, err, event.ErrPayload, body)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestTimesInHeaders(t *testing.T) {
	at := time.Date(2026, 3, 2, 6, 59, 59, 700_000_000, time.FixedZone("", 7*3600))
	require.Equal(t, "2026-03-01T23:59:59.700Z", event.FormatTime(at))
	back, ok := event.ParseTime(event.FormatTime(at))
	require.True(t, ok && back.Equal(at))
	_, ok = event.ParseTime("yesterday")
	require.False(t, ok)
}

func TestLogFieldsStandOnEveryLine(t *testing.T) {
	var out bytes.Buffer
	ctx := zerolog.New(&out).WithContext(t.Context())
	ctx = event.WithLogFields(ctx, event.LogFields{Task: "push-dispatch", EventID: "push:1", Trace: event.Trace{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}})
	zerolog.Ctx(ctx).Info().Msg("x")
	require.JSONEq(t, `{"level":"info","task":"push-dispatch","event_id":"push:1","trace_id":"0af7651916cd43dd8448eb211c80319c","message":"x"}`, out.String())
	require.Empty(t, event.TraceID("garbage"))
}
