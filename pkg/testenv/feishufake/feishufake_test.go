package feishufake_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seahub/seahub-mq/pkg/testenv/feishufake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type client struct {
	t    *testing.T
	fake *feishufake.Server
	http *http.Client
}

func newClient(t *testing.T, o feishufake.Options) client {
	t.Helper()
	fake, err := feishufake.Start(o)
	require.NoError(t, err)
	c := client{t, fake, &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	return c
}

func (c client) post(body map[string]any) (int, int) {
	c.t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(c.t, err)
	resp, err := c.http.Post(c.fake.Hook(), "application/json", strings.NewReader(string(raw)))
	require.NoError(c.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	var answer struct{ Code int }
	require.NoError(c.t, json.Unmarshal(text, &answer), string(text))
	return resp.StatusCode, answer.Code
}

func signed(secret string, at time.Time, body map[string]any) map[string]any {
	body["timestamp"] = strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(fmt.Sprint(body["timestamp"], "\n", secret)))
	body["sign"] = base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return body
}

func text(s string) map[string]any {
	return map[string]any{"msg_type": "text", "content": map[string]string{"text": s}}
}

func TestStrictness(t *testing.T) {
	c := newClient(t, feishufake.Options{Secret: "s", PerSecond: 1000, PerMinute: 1000})
	title := map[string]any{"title": map[string]string{"tag": "plain_text", "content": "t"}}
	card := func(more map[string]any) map[string]any {
		k := map[string]any{"schema": "2.0", "header": title, "body": map[string]any{"elements": []any{map[string]string{"tag": "markdown", "content": "x"}}}}
		for name, v := range more {
			k[name] = v
		}
		return map[string]any{"msg_type": "interactive", "card": k}
	}
	for name, tt := range map[string]struct {
		body map[string]any
		code int
	}{
		"text":               {signed("s", time.Now(), text("x")), 0},
		"card":               {signed("s", time.Now(), card(nil)), 0},
		"unsigned":           {text("x"), 19021},
		"wrong secret":       {signed("other", time.Now(), text("x")), 19021},
		"clock 61 min off":   {signed("s", time.Now().Add(-61*time.Minute), text("x")), 19021},
		"milliseconds":       {signed("s", time.Unix(time.Now().UnixMilli(), 0), text("x")), 19021},
		"too large":          {signed("s", time.Now(), text(strings.Repeat("x", 21*1024))), 19036},
		"unknown property":   {signed("s", time.Now(), card(map[string]any{"elements": []any{}})), 9499},
		"card as a string":   {signed("s", time.Now(), map[string]any{"msg_type": "interactive", "card": "{}"}), 9499},
		"empty text":         {signed("s", time.Now(), text("")), 9499},
		"unknown type":       {signed("s", time.Now(), map[string]any{"msg_type": "audio"}), 9499},
		"old form of a card": {signed("s", time.Now(), card(map[string]any{"schema": "1.0"})), 9499},
	} {
		_, code := c.post(tt.body)
		require.Equal(t, tt.code, code, name)
	}
	require.Len(t, c.fake.Shown(), 2)
	require.Len(t, c.fake.Messages(), 12)
}

func TestLimits(t *testing.T) {
	now := time.Now()
	c := newClient(t, feishufake.Options{Clock: func() time.Time { return now }})
	refused := 0
	for i := range 200 {
		if i%4 == 0 {
			now = now.Add(time.Second)
		}
		status, code := c.post(text("x"))
		require.Equal(t, 200, status)
		if code == 11232 {
			refused++
		}
	}
	require.Len(t, c.fake.Shown(), 100)
	require.Equal(t, 100, refused)
	now = now.Add(time.Minute)
	for range 6 {
		c.post(text("x"))
	}
	require.Len(t, c.fake.Shown(), 105)
}

func TestProgrammedAnswers(t *testing.T) {
	c := newClient(t, feishufake.Options{PerSecond: 1000})
	c.fake.Behave(feishufake.Behaviour{Kind: feishufake.Limited, Times: 1}, feishufake.Behaviour{Kind: feishufake.Throttled, Times: 1},
		feishufake.Behaviour{Kind: feishufake.BadSign, Times: 1})
	for _, want := range [][2]int{{200, 11232}, {400, 9499}, {200, 19021}, {200, 0}} {
		status, code := c.post(text("x"))
		require.Equal(t, want, [2]int{status, code})
	}
	c.fake.Behave(feishufake.Behaviour{Kind: feishufake.TakenThenNothing, Times: 1}, feishufake.Behaviour{Kind: feishufake.Nothing, Times: 1})
	for range 2 {
		_, err := c.http.Post(c.fake.Hook(), "application/json", strings.NewReader(`{"msg_type":"text","content":{"text":"lost?"}}`))
		require.Error(t, err)
	}
	require.Len(t, c.fake.Shown("lost?"), 1)
	resp, err := c.http.Post(c.fake.Plain(), "application/json", strings.NewReader(`{"a":1}`))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Len(t, c.fake.Shown(), 2, "the plain webhook is another place")
}
