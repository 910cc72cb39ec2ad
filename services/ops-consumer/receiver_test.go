package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

const amBody = `{"version":"4","groupKey":"{}:{}","status":"firing","receiver":"ops","alerts":[
	{"status":"STATUS","labels":{"alertname":"PodCrashLooping","severity":"critical","namespace":"seahub","pod":"relay-1","service":"relay"},
	 "annotations":{"summary":"a pod restarts again and again","runbook_url":"https://example.test/r"},"startsAt":"2026-07-19T01:00:00Z","fingerprint":"f1"},
	{"status":"firing","labels":{"alertname":"PodCrashLooping","severity":"critical","namespace":"seahub","pod":"relay-2","service":"relay"},
	 "annotations":{"summary":"a pod restarts again and again","runbook_url":"docs/runbooks/ServiceRestarts.md"},"startsAt":"2026-07-19T01:00:00Z","fingerprint":"f2"}]}`

func TestAlertmanagersAlerts(t *testing.T) {
	b := newBench(t, testenv.PrivateMariaDB(t), func(c *Config) { c.Alert.ReceiverToken = "hunter2" })
	rc := &receiver{cfg: b.cfg, store: b.store}
	post := func(body, token string) int {
		r := httptest.NewRequest(http.MethodPost, "/alertmanager", strings.NewReader(body))
		r.Header.Set("Authorization", token)
		w := httptest.NewRecorder()
		rc.ServeHTTP(w, r.WithContext(t.Context()))
		return w.Code
	}
	firing := strings.Replace(amBody, "STATUS", "firing", 1)
	require.Equal(t, http.StatusUnauthorized, post(firing, "Bearer wrong"))
	require.Equal(t, http.StatusBadRequest, post("{", "Bearer hunter2"))
	require.Equal(t, http.StatusBadRequest, post(`{"alerts":[]}`, "Bearer hunter2"))
	require.Equal(t, http.StatusNoContent, post(firing, "Bearer hunter2"))
	require.Equal(t, http.StatusNoContent, post(firing, "Bearer hunter2"), "Alertmanager repeats itself")
	require.Equal(t, []string{"firing PodCrashLooping QUEUED"}, b.messages(t), "one message for both pods, once")
	raw := b.text(t, "SELECT message_json FROM mq_alert_message")
	for _, part := range []string{"pod=relay-1", "pod=relay-2", `"env":"id-test"`, `"task":"PodCrashLooping"`, `"requestId":"sweep-`, "https://example.test/r", "https://example.test/runbooks/ServiceRestarts.md", `"service":"relay"`} {
		require.Contains(t, raw, part)
	}
	// A sweep leaves them alone.
	b.relayAlive(t, 0)
	b.sweepNow(t)
	require.Equal(t, 2, b.number(t, "SELECT COUNT(*) FROM mq_alert WHERE state = 'FIRING' AND origin = 'alertmanager'"))

	require.Equal(t, http.StatusNoContent, post(strings.Replace(amBody, "STATUS", "resolved", 1), "Bearer hunter2"))
	require.Equal(t, []string{"firing PodCrashLooping QUEUED", "resolved PodCrashLooping QUEUED"}, b.messages(t))

	// Labels and annotations may be of any length: cut, they are stored.
	long := strings.NewReplacer("STATUS", "firing", "PodCrashLooping", "Long", "a pod restarts again and again", strings.Repeat("ö", 40_000),
		"docs/runbooks/", strings.Repeat("x", 40_000), `"service":"relay"`, `"service":"`+strings.Repeat("s", 40_000)+`"`).Replace(amBody)
	require.Equal(t, http.StatusNoContent, post(long, "Bearer hunter2"))
	require.Equal(t, 2, b.number(t, "SELECT COUNT(*) FROM mq_alert WHERE rule = 'Long' AND state = 'FIRING'"))

	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprintf(`{"status":"firing","labels":{"alertname":"Many","n":"%d"},"annotations":{"description":"%s"}}`, i, strings.Repeat("d", 4096))
	}
	require.Equal(t, http.StatusNoContent, post(`{"version":"4","alerts":[`+strings.Join(many, ",")+`]}`, "Bearer hunter2"))
	require.Equal(t, 300, b.number(t, "SELECT COUNT(*) FROM mq_alert WHERE rule = 'Many'"))

	require.NoError(t, b.s.Server.Kill())
	require.Equal(t, http.StatusServiceUnavailable, post(firing, "Bearer hunter2"), "it is to try again")
	require.NoError(t, b.s.Server.Start(t.Context()))
}
