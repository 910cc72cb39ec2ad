package fcmfake_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type account struct {
	Email string `json:"client_email"`
	KeyID string `json:"private_key_id"`
	Key   string `json:"private_key"`
	URI   string `json:"token_uri"`
}

type client struct {
	t    *testing.T
	fake *fcmfake.Server
	http *http.Client
	acc  account
	key  *rsa.PrivateKey
}

func start(t *testing.T, o fcmfake.Options) *client {
	t.Helper()
	o.KeyFile = filepath.Join(t.TempDir(), "key.json")
	fake, err := fcmfake.Start(o)
	require.NoError(t, err)
	c := &client{t: t, fake: fake, http: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		c.http.CloseIdleConnections()
		require.NoError(t, fake.Close())
	})
	raw, err := os.ReadFile(fake.KeyFile())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &c.acc))
	block, _ := pem.Decode([]byte(c.acc.Key))
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	require.NoError(t, err)
	c.key = key.(*rsa.PrivateKey)
	return c
}

// assertion signs claims; change may spoil them.
func (c *client) assertion(key *rsa.PrivateKey, change func(header, claims map[string]any)) string {
	header := map[string]any{"alg": "RS256", "typ": "JWT", "kid": c.acc.KeyID}
	claims := map[string]any{
		"iss": c.acc.Email, "aud": c.acc.URI, "scope": "https://www.googleapis.com/auth/firebase.messaging",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	change(header, claims)
	part := func(v any) string {
		raw, err := json.Marshal(v)
		require.NoError(c.t, err)
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	signed := part(header) + "." + part(claims)
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	require.NoError(c.t, err)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func (c *client) do(method, path, contentType, bearer, body string) (*http.Response, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.fake.URL()+path, strings.NewReader(body))
	require.NoError(c.t, err)
	req.Header.Set("Content-Type", contentType)
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := c.http.Do(req)
	require.NoError(c.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	return resp, string(text)
}

func (c *client) exchange(grant, assertion string) (*http.Response, string) {
	form := url.Values{"grant_type": {grant}, "assertion": {assertion}}
	return c.do("POST", "/token", "application/x-www-form-urlencoded", "", form.Encode())
}

const jwtBearer = "urn:ietf:params:oauth:grant-type:jwt-bearer"

func (c *client) token() string {
	resp, body := c.exchange(jwtBearer, c.assertion(c.key, func(_, _ map[string]any) {}))
	require.Equal(c.t, 200, resp.StatusCode, body)
	var t struct {
		AccessToken string `json:"access_token"`
		TokenType   string `json:"token_type"`
	}
	require.NoError(c.t, json.Unmarshal([]byte(body), &t))
	require.Equal(c.t, "Bearer", t.TokenType)
	return t.AccessToken
}

func TestAssertionsAreVerified(t *testing.T) {
	c := start(t, fcmfake.Options{})
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	none := func(_, _ map[string]any) {}
	claim := func(name string, v any) func(_, claims map[string]any) {
		return func(_, claims map[string]any) { claims[name] = v }
	}
	for name, tt := range map[string]struct {
		grant     string
		assertion string
		want      string
	}{
		"good":             {jwtBearer, c.assertion(c.key, none), ""},
		"grant":            {"client_credentials", c.assertion(c.key, none), "unsupported_grant_type"},
		"another key":      {jwtBearer, c.assertion(other, none), "invalid JWT signature"},
		"no jwt":           {jwtBearer, "a.b", "three parts"},
		"alg none":         {jwtBearer, c.assertion(c.key, func(h, _ map[string]any) { h["alg"] = "none" }), "alg"},
		"kid":              {jwtBearer, c.assertion(c.key, func(h, _ map[string]any) { h["kid"] = "x" }), "kid"},
		"iss":              {jwtBearer, c.assertion(c.key, claim("iss", "x")), "iss"},
		"aud":              {jwtBearer, c.assertion(c.key, claim("aud", "https://oauth2.googleapis.com/token")), "aud"},
		"scope":            {jwtBearer, c.assertion(c.key, claim("scope", "x")), "scope"},
		"expired":          {jwtBearer, c.assertion(c.key, claim("exp", time.Now().Add(-time.Second).Unix())), "exp has passed"},
		"lives too long":   {jwtBearer, c.assertion(c.key, claim("exp", time.Now().Add(2*time.Hour).Unix())), "more than an hour"},
		"from the future":  {jwtBearer, c.assertion(c.key, claim("iat", time.Now().Add(time.Hour).Unix())), "future"},
		"claims of a type": {jwtBearer, c.assertion(c.key, claim("exp", "soon")), "claims"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := c.exchange(tt.grant, tt.assertion)
			if tt.want == "" {
				require.Equal(t, 200, resp.StatusCode, body)
				return
			}
			require.Equal(t, 400, resp.StatusCode)
			require.Contains(t, body, tt.want)
		})
	}
	require.Equal(t, 1, c.fake.TokensIssued())
}

const goodMessage = `{"message":{"token":"tok","notification":{"title":"t","body":"b"},"data":{"k":"v"},"android":{"ttl":"60s","notification":{"tag":"p"}},"apns":{"headers":{"apns-collapse-id":"p"}}}}`

func TestRequestsAreChecked(t *testing.T) {
	c := start(t, fcmfake.Options{})
	good := c.token()
	send := "/v1/projects/" + c.fake.Project() + "/messages:send"
	for name, tt := range map[string]struct {
		path, contentType, bearer, body string
		status                          int
		want                            string
	}{
		"good":             {send, "application/json; charset=UTF-8", good, goodMessage, 200, `"name":"projects/`},
		"no bearer":        {send, "application/json", "", goodMessage, 401, "UNAUTHENTICATED"},
		"wrong bearer":     {send, "application/json", "x", goodMessage, 401, "UNAUTHENTICATED"},
		"other project":    {"/v1/projects/other/messages:send", "application/json", good, goodMessage, 403, "PERMISSION_DENIED"},
		"batch endpoint":   {"/batch", "application/json", good, goodMessage, 404, "<html"},
		"other call":       {"/v1/projects/x/messages:sendAll", "application/json", good, goodMessage, 404, "NOT_FOUND"},
		"content type":     {send, "text/plain", good, goodMessage, 400, "INVALID_ARGUMENT"},
		"no JSON":          {send, "application/json", good, "hello", 400, "Invalid JSON"},
		"unknown field":    {send, "application/json", good, `{"message":{"token":"t","tital":"x"}}`, 400, "message.tital"},
		"case of a field":  {send, "application/json", good, `{"message":{"Token":"t"}}`, 400, "message.Token"},
		"no target":        {send, "application/json", good, `{"message":{"data":{}}}`, 400, "Exactly one"},
		"two targets":      {send, "application/json", good, `{"message":{"token":"t","topic":"x"}}`, 400, "Exactly one"},
		"number in data":   {send, "application/json", good, `{"message":{"token":"t","data":{"n":1}}}`, 400, "message.data"},
		"reserved key":     {send, "application/json", good, `{"message":{"token":"t","data":{"google.x":"1"}}}`, 400, "Invalid data payload key"},
		"reserved from":    {send, "application/json", good, `{"message":{"token":"t","data":{"from":"1"}}}`, 400, "Invalid data payload key"},
		"too big":          {send, "application/json", good, `{"message":{"token":"t","data":{"k":"` + strings.Repeat("x", 4096) + `"}}}`, 400, "too big"},
		"just fits":        {send, "application/json", good, `{"message":{"token":"t","data":{"k":"` + strings.Repeat("x", 4095) + `"}}}`, 200, "name"},
		"ttl without s":    {send, "application/json", good, `{"message":{"token":"t","android":{"ttl":"60"}}}`, 400, "Invalid TTL"},
		"ttl too long":     {send, "application/json", good, `{"message":{"token":"t","android":{"ttl":"2419201s"}}}`, 400, "Invalid TTL"},
		"long collapse id": {send, "application/json", good, `{"message":{"token":"t","apns":{"headers":{"apns-collapse-id":"` + strings.Repeat("x", 65) + `"}}}}`, 400, "apns-collapse-id"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := c.do("POST", tt.path, tt.contentType, tt.bearer, tt.body)
			require.Equal(t, tt.status, resp.StatusCode, body)
			require.Contains(t, body, tt.want)
		})
	}
	require.Len(t, c.fake.Accepted("p"), 1)
}

func TestQuotaSpellsAndControlOverHTTP(t *testing.T) {
	c := start(t, fcmfake.Options{QuotaPerMinute: 2})
	good := c.token()
	send := func() *http.Response {
		resp, _ := c.do("POST", "/v1/projects/"+c.fake.Project()+"/messages:send", "application/json", good, goodMessage)
		return resp
	}
	require.Equal(t, 200, send().StatusCode)
	require.Equal(t, 200, send().StatusCode)
	resp := send()
	require.Equal(t, 429, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))

	control := func(body string) int {
		resp, _ := c.do("POST", "/control", "application/json", "", body)
		return resp.StatusCode
	}
	require.Equal(t, 204, control(`{"reset":true,"quota":0,"behaviour":{"kind":"unavailable","retryAfter":7000000000,"times":2}}`))
	for range 2 {
		resp = send()
		require.Equal(t, 503, resp.StatusCode)
		require.Equal(t, "7", resp.Header.Get("Retry-After"))
	}
	require.Equal(t, 200, send().StatusCode)
	require.Equal(t, 204, control(`{"behaviour":{"kind":"unregistered"},"tokens":["tok"]}`))
	require.Equal(t, 404, send().StatusCode)
	require.Equal(t, 204, control(`{"reset":true,"expireTokens":true}`))
	require.Equal(t, 401, send().StatusCode)
	require.Equal(t, 400, control(`{"bahaviour":{}}`))

	_, body := c.do("GET", "/record", "", "", "")
	var record struct {
		TokensIssued int
		Requests     []fcmfake.Request
	}
	require.NoError(t, json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&record))
	require.Equal(t, 1, record.TokensIssued)
	require.Len(t, record.Requests, 1)
	require.Equal(t, 401, record.Requests[0].Status)
}

func TestAmbiguousAnswersAreAcceptedAndSilent(t *testing.T) {
	c := start(t, fcmfake.Options{})
	good := c.token()
	c.fake.Behave(fcmfake.Behaviour{Kind: fcmfake.AmbiguousClose})
	req, err := http.NewRequestWithContext(t.Context(), "POST", c.fake.URL()+"/v1/projects/"+c.fake.Project()+"/messages:send", strings.NewReader(goodMessage))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+good)
	_, err = c.http.Do(req) //nolint:bodyclose // there is no answer
	require.Error(t, err)
	require.Len(t, c.fake.Accepted("p"), 1)
}
