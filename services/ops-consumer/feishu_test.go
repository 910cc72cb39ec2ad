package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv/feishufake"
)

// The vector was made with openssl: the key is timestamp, newline, secret; the message
// is empty.
func TestSignature(t *testing.T) {
	require.Equal(t, "mbm4Y4oluIPQ00qlBIhX8vAZ0EKv3nw0LuTb91jPL84=", sign("1700000000", "test-secret"))
}

func sample(items int) message {
	m := message{
		Kind: kindFiring, Rule: "OutboxFailed", Severity: severityCritical, Env: "id-test", Country: "id", Service: "ops-consumer",
		Summary: "the relay gave up", Runbook: "https://example.test/OutboxFailed.md", SweepID: "sweep-1", At: time.Now(),
	}
	for i := range items {
		m.Items = append(m.Items, item{
			Fingerprint: fmt.Sprintf("%032d", i), Episode: 1, Subject: fmt.Sprint("type-", i), Task: "outbox-relay",
			Value: "7", Threshold: "0", Since: time.Now(), RequestID: "req-1",
		})
	}
	return m
}

// Whatever stands in the data, the message is valid, small enough, and mentions nobody.
func TestCardsAreSafe(t *testing.T) {
	fake := startFeishu(t, feishufake.Options{Secret: "s", PerSecond: 1000, PerMinute: 1000})
	f := newFeishu(fake.Hook(), fake.Secret(), time.Second)
	defer f.close()
	nasty := "\"quo\\ted\"\n<at id=all></at> <at user_id=\"all\">x</at> [link](http://evil.test) **b** `c` 🎁\x00\u202e " + string([]byte{0xff, 0xfe})
	for name, m := range map[string]message{
		"plain":      sample(1),
		"500 alerts": sample(500),
		"nasty": func() message {
			m := sample(3)
			m.Summary, m.Runbook = nasty, "http://a/)"+nasty
			m.Items[1].Subject, m.Items[1].Note, m.Items[1].EventID = nasty, strings.Repeat(nasty, 300), nasty
			return m
		}(),
		"nasty labels of Prometheus": func() message {
			m := sample(1)
			m.Rule, m.Service, m.Items[0].Task = "<at user_id=\"all\"></at>", "<at id=all></at>", nasty
			return m
		}(),
		"nasty and long": func() message {
			m := sample(200)
			for i := range m.Items {
				m.Items[i].Note = strings.Repeat("界<&\"", 3000)
			}
			return m
		}(),
	} {
		for _, asText := range []bool{false, true} {
			body, err := m.body(asText)
			require.NoError(t, err, name)
			raw, err := json.Marshal(body)
			require.NoError(t, err, name)
			require.LessOrEqual(t, len(raw), 20*1024-200, name)
			require.True(t, utf8.Valid(raw), name)
			a := f.send(t.Context(), m, asText)
			require.NoError(t, a.err, name)
		}
	}
	for _, m := range fake.Messages() {
		require.False(t, m.Mentions)
		for _, live := range []string{`\u003cat`, "](http://evil", `\u0000`, "\u202e", `\u202e`} {
			if m.Type == "interactive" || live != "](http://evil" { // text has no links
				require.NotContains(t, m.Body, live)
			}
		}
	}
	for _, part := range []string{"[critical][id] OutboxFailed", "id-test", "outbox-relay", "req-1", "threshold 0", "since", "runbook"} {
		require.True(t, slices.ContainsFunc(fake.Shown("type-0"), func(m feishufake.Message) bool { return strings.Contains(m.Title+m.Text, part) }), part)
	}
	require.NotEmpty(t, fake.Shown("and 480 more"))
}

// A card that would be too large goes as text.
func TestLargeCardsBecomeText(t *testing.T) {
	m := sample(20)
	for i := range m.Items {
		m.Items[i].Note = strings.Repeat("<", 300)
	}
	body, err := m.body(false)
	require.NoError(t, err)
	require.Equal(t, "text", body.Type)
	body, err = sample(20).body(false)
	require.NoError(t, err)
	require.Equal(t, "interactive", body.Type)
}

func TestAnswersOfFeishu(t *testing.T) {
	for text, want := range map[string]answerClass{
		`200 {"code":0,"msg":"success"}`:                                answerTaken,
		`200 {"StatusCode":0,"StatusMessage":"success","code":0}`:       answerTaken,
		`200 {"code":11232,"msg":"frequency limited"}`:                  answerThrottled,
		`400 {"code":9499,"msg":"too many request"}`:                    answerThrottled,
		`400 {"code":9499,"msg":"Bad Request"}`:                         answerBadBody,
		`200 {"code":19021,"msg":"sign match fail"}`:                    answerConfig,
		`200 {"code":19022,"msg":"Ip Not Allowed"}`:                     answerConfig,
		`200 {"code":19024,"msg":"Key Words Not Found"}`:                answerConfig,
		`400 {"code":19001,"msg":"token invalid"}`:                      answerConfig,
		`200 {"code":19036,"msg":"too large"}`:                          answerTooLarge,
		`200 {"code":77777,"msg":"?"}`:                                  answerTransient,
		`200 {"data":{}}`:                                               answerTransient,
		`200 <html>`:                                                    answerTransient,
		`200 `:                                                          answerTransient,
		`502 <html>`:                                                    answerTransient,
		`302 {"code":0}`:                                                answerTransient,
		`500 {"code":0}`:                                                answerTransient,
		`429 slow down`:                                                 answerThrottled,
		`429 {"code":99991400,"msg":"request trigger frequency limit"}`: answerThrottled,
	} {
		var status int
		_, err := fmt.Sscan(text[:3], &status)
		require.NoError(t, err)
		a := classifyFeishu(status, http.Header{}, []byte(text[4:]))
		require.Equal(t, want, a.class, text)
		require.Equal(t, want == answerTaken, a.err == nil, text)
	}
}

// The hook's address is a credential: no error shows it.
func TestErrorsHideTheHook(t *testing.T) {
	fake := startFeishu(t, feishufake.Options{Token: "hunter2"})
	fake.Behave(feishufake.Behaviour{Kind: feishufake.Nothing})
	f := newFeishu(fake.Hook(), "", time.Second)
	defer f.close()
	a := f.send(t.Context(), sample(1), false)
	require.Error(t, a.err)
	require.NotContains(t, a.err.Error(), "hunter2")
	f = newFeishu("http://127.0.0.1:1/hook/hunter2", "", time.Second)
	a = f.send(t.Context(), sample(1), false)
	require.Error(t, a.err)
	require.NotContains(t, a.err.Error(), "hunter2")
}
