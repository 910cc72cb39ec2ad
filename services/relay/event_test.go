package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/outbox"
)

// An operator finds out why one event has had no effect.
func TestEventSaysWhereItIsAndWhatToDo(t *testing.T) {
	r := newRig(t)
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	show := func(id string) string {
		out, code := r.command(t, "event", id)
		require.Zero(t, code)
		return out
	}
	require.Contains(t, show("push:1"), "no such event")
	insert := `INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, status, created_at)
		VALUES (?, ?, ?, 'x', '1', '{"secret":"hunter2"}', ?, NOW(3))`
	r.Exec(t, insert, "a", "push:1", "PUSH_DISPATCH", "PENDING")
	require.Contains(t, show("push:1"), "relay status")
	r.Exec(t, "UPDATE outbox_event SET status = 'FAILED', last_error = 'refused: too large'")
	require.Contains(t, show("push:1"), "refused: too large")
	require.Contains(t, show("push:1"), "relay requeue")

	r.Exec(t, "UPDATE outbox_event SET status = 'PUBLISHED', published_at = NOW(3)")
	require.Contains(t, show("push:1"), "flag push-dispatch is off: the consumer skips the event")
	for percent, want := range map[string]string{"0.01": "not for this row", "100": "is on for this row"} {
		_, code = r.command(t, "flags", "set", "push-dispatch", "on", "--percent", percent, "--reason", "x")
		require.Zero(t, code)
		require.Contains(t, show("push:1"), want)
	}
	r.Exec(t, insert, "b", "other:1", "SOMETHING", "PUBLISHED")
	require.Contains(t, show("other:1"), "nothing here consumes SOMETHING")
	r.Exec(t, `INSERT INTO mq_dead_letter (dedup_key, consumer_group, topic, tag, event_id, body, headers_json, attempts, reason, last_error, created_at, updated_at)
		VALUES ('k', 'GID_id_push_dispatch', 't', 'PUSH_DISPATCH', 'push:1', '', '{}', 8, 'too many attempts', 'no such template', NOW(3), NOW(3))`)
	out := show("push:1")
	require.Contains(t, out, "too many attempts: no such template")
	require.Contains(t, out, "relay dead replay")
	require.NotContains(t, out, "hunter2", "payloads are nobody's business here")

	out, code = r.command(t, "event", "push:1", "--json")
	require.Zero(t, code)
	var told struct {
		Found []outbox.Sighting
		Hints []string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &told))
	require.Len(t, told.Found, 2)
	for _, wrong := range [][]string{{"event"}, {"event", "a", "b"}, {"event", ""}} {
		_, code := r.command(t, wrong...)
		require.Equal(t, 2, code, wrong)
	}
}
