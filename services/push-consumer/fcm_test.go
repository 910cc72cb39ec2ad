package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

const (
	fcmError   = `{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"%"}`
	badRequest = `{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"%"}]}`
	html       = "<!DOCTYPE html><title>Error 404 (Not Found)!!1</title>"
)

func errorJSON(status, message string, details ...string) string {
	return `{"error":{"message":"` + message + `","status":"` + status + `","details":[` + strings.Join(details, ",") + `]}}`
}

func detail(form, value string) string { return strings.ReplaceAll(form, "%", value) }

// Every kind of answer has a line: what it means for the device decides about tokens
// and repeats.
func TestEveryAnswerHasItsMeaning(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		retry  string
		class  class
		code   string
		wait   time.Duration
	}{
		{"accepted", 200, `{"name":"projects/p/messages/1"}`, "", accepted, "", 0},
		{"page of a captive proxy", 200, "<html>log in</html>", "", ambiguous, "NO_MESSAGE_NAME", 0},
		{"success without a name", 200, `{}`, "", ambiguous, "NO_MESSAGE_NAME", 0},
		{"unregistered", 404, errorJSON("NOT_FOUND", "x", detail(fcmError, "UNREGISTERED")), "", deadToken, "UNREGISTERED", 0},
		{"malformed token by text", 400, errorJSON("INVALID_ARGUMENT", "The registration token is not a valid FCM registration token", detail(fcmError, "INVALID_ARGUMENT")), "", deadToken, "INVALID_ARGUMENT", 0},
		{"malformed token by field", 400, errorJSON("INVALID_ARGUMENT", "x", detail(fcmError, "INVALID_ARGUMENT"), detail(badRequest, "message.token")), "", deadToken, "INVALID_ARGUMENT", 0},
		{"payload", 400, errorJSON("INVALID_ARGUMENT", "x", detail(fcmError, "INVALID_ARGUMENT"), detail(badRequest, "message.data")), "", rejected, "INVALID_ARGUMENT", 0},
		{"payload and token blamed", 400, errorJSON("INVALID_ARGUMENT", "x", detail(fcmError, "INVALID_ARGUMENT"), detail(badRequest, "message.data"), detail(badRequest, "message.token")), "", rejected, "INVALID_ARGUMENT", 0},
		{"payload that mentions the token", 400, errorJSON("INVALID_ARGUMENT", "registration token is fine", detail(fcmError, "INVALID_ARGUMENT"), detail(badRequest, "message.data")), "", rejected, "INVALID_ARGUMENT", 0},
		{"invalid, nothing blamed", 400, errorJSON("INVALID_ARGUMENT", "x", detail(fcmError, "INVALID_ARGUMENT")), "", rejected, "INVALID_ARGUMENT", 0},
		{"400 of Google without FcmError", 400, errorJSON("INVALID_ARGUMENT", "registration token", detail(badRequest, "message")), "", rejected, "INVALID_ARGUMENT", 0},
		{"400 page of a proxy", 400, html, "", outside, "HTTP_400", 30 * time.Second},
		{"other project's token", 403, errorJSON("PERMISSION_DENIED", "x", detail(fcmError, "SENDER_ID_MISMATCH")), "", rejected, "SENDER_ID_MISMATCH", 0},
		{"APNs credential", 401, errorJSON("UNAUTHENTICATED", "x", detail(fcmError, "THIRD_PARTY_AUTH_ERROR")), "", outside, "THIRD_PARTY_AUTH_ERROR", 5 * time.Minute},
		{"our credential 401", 401, errorJSON("UNAUTHENTICATED", "x"), "", unauthorized, "UNAUTHENTICATED", 30 * time.Second},
		{"our credential 403", 403, errorJSON("PERMISSION_DENIED", "x"), "", unauthorized, "PERMISSION_DENIED", 30 * time.Second},
		{"quota with Retry-After", 429, errorJSON("RESOURCE_EXHAUSTED", "x", detail(fcmError, "QUOTA_EXCEEDED")), "7", throttled, "QUOTA_EXCEEDED", 7 * time.Second},
		{"quota without", 429, errorJSON("RESOURCE_EXHAUSTED", "x", detail(fcmError, "QUOTA_EXCEEDED")), "", throttled, "QUOTA_EXCEEDED", time.Minute},
		{"quota of one device", 429, errorJSON("RESOURCE_EXHAUSTED", "x", detail(fcmError, "QUOTA_EXCEEDED"), `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"subject":"device:x","description":"Device message rate exceeded"}]}`), "", transient, "QUOTA_EXCEEDED", time.Minute},
		{"429 page", 429, html, "", throttled, "HTTP_429", time.Minute},
		{"unavailable", 503, errorJSON("UNAVAILABLE", "x", detail(fcmError, "UNAVAILABLE")), "60", transient, "UNAVAILABLE", time.Minute},
		{"internal", 500, errorJSON("INTERNAL", "x", detail(fcmError, "INTERNAL")), "", transient, "INTERNAL", 0},
		{"500 page", 500, html, "", transient, "HTTP_500", 0},
		{"502", 502, html, "", ambiguous, "HTTP_502", 0},
		{"504", 504, html, "", ambiguous, "HTTP_504", 0},
		{"endpoint gone", 404, html, "", outside, "HTTP_404", 30 * time.Second},
		{"404 without FcmError", 404, errorJSON("NOT_FOUND", "x"), "", outside, "NOT_FOUND", 30 * time.Second},
		{"redirect", 302, "", "", outside, "HTTP_302", 30 * time.Second},
		{"too large", 413, html, "", rejected, "HTTP_413", 0},
		{"a code of tomorrow", 418, errorJSON("X", "x", detail(fcmError, "TEAPOT")), "", transient, "TEAPOT", 0},
		{"a code with a token in it", 418, errorJSON("X", "x", detail(fcmError, "<b>tok: A_1")), "", transient, "A_1", 0},
		{"absurd Retry-After", 503, html, "99999999", transient, "HTTP_503", time.Hour},
		{"negative Retry-After", 503, html, "-5", transient, "HTTP_503", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			if tt.retry != "" {
				h.Set("Retry-After", tt.retry)
			}
			a := classify(tt.status, h, []byte(tt.body), time.Now())
			require.Equal(t, tt.class, a.class, "class of %s", a.code)
			require.Equal(t, tt.code, a.code)
			require.Equal(t, tt.wait, a.retryAfter)
		})
	}
}

func TestRetryAfterMayBeADate(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h := http.Header{"Retry-After": {at.Add(90 * time.Second).Format(http.TimeFormat)}}
	require.Equal(t, 90*time.Second, retryAfter(h, at))
}

// The zero value of a class must neither count as sent nor as failed.
func TestClassesAndStates(t *testing.T) {
	require.Equal(t, stateUnknown, class(0).state())
	require.False(t, class(0).final())
	for c, state := range map[class]string{
		accepted: stateAccepted, deadToken: stateDeadToken, rejected: stateRejected,
		transient: stateRetry, throttled: stateRetry, outside: stateOutside, unauthorized: stateOutside,
	} {
		require.Equal(t, state, c.state())
	}
}

func sendOne(t *testing.T, c *fcmClient, token string) answer {
	t.Helper()
	return c.send(t.Context(), newMessage("p1", token, "t", "b", map[string]string{"k": "v"}, time.Hour))
}

func client(t *testing.T, fake *fcmfake.Server) *fcmClient {
	t.Helper()
	c, err := newFCM(fake.URL(), fake.KeyFile(), 300*time.Millisecond)
	require.NoError(t, err)
	t.Cleanup(c.close)
	return c
}

func TestClientAgainstTheStrictFake(t *testing.T) {
	fake := startFCM(t)
	c := client(t, fake)
	for kind, want := range map[fcmfake.Kind]class{
		fcmfake.Accept: accepted, fcmfake.Unregistered: deadToken, fcmfake.InvalidToken: deadToken,
		fcmfake.InvalidPayload: rejected, fcmfake.SenderMismatch: rejected, fcmfake.Quota: throttled,
		fcmfake.Unavailable: transient, fcmfake.UnavailableAccepted: transient, fcmfake.Internal: transient,
		fcmfake.ThirdPartyAuth: outside, fcmfake.HTML404: outside, fcmfake.HTML200: ambiguous,
		fcmfake.AmbiguousClose: ambiguous, fcmfake.AmbiguousLate: ambiguous,
		fcmfake.Unauthorized: unauthorized, fcmfake.Forbidden: unauthorized,
	} {
		t.Run(string(kind), func(t *testing.T) {
			fake.BehaveFor(string(kind), fcmfake.Behaviour{Kind: kind, Delay: time.Second})
			require.Equal(t, want, sendOne(t, c, string(kind)).class)
		})
	}
	for _, r := range fake.Requests() {
		require.Equal(t, "p1", r.CollapseID)
		require.Equal(t, "p1", r.Tag)
		require.Equal(t, "3600s", r.TTL)
	}
}

func TestAccessTokenIsFetchedOnceAndReplacedOnce(t *testing.T) {
	fake := startFCM(t)
	c := client(t, fake)
	done := make(chan class, 20)
	for range cap(done) {
		go func() { done <- sendOne(t, c, "tok").class }()
	}
	for range cap(done) {
		require.Equal(t, accepted, <-done)
	}
	require.Equal(t, 1, fake.TokensIssued())
	fake.ExpireTokens()
	require.Equal(t, accepted, sendOne(t, c, "tok").class, "a refused token is replaced and the request made again")
	require.Equal(t, 2, fake.TokensIssued())
	fake.Behave(fcmfake.Behaviour{Kind: fcmfake.Unauthorized})
	require.Equal(t, unauthorized, sendOne(t, c, "tok").class, "once only")
	require.Equal(t, 3, fake.TokensIssued())
}

func TestTokensThatExpireSoonAreReplacedInTime(t *testing.T) {
	fake, err := fcmfake.Start(fcmfake.Options{KeyFile: filepath.Join(t.TempDir(), "k"), TokenLife: time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, fake.Close()) }()
	c := client(t, fake)
	for range 3 {
		require.Equal(t, accepted, sendOne(t, c, "tok").class)
		time.Sleep(600 * time.Millisecond)
	}
	for _, r := range fake.Requests() {
		require.Equal(t, 200, r.Status)
	}
}

func TestUnreachableIsNotAmbiguous(t *testing.T) {
	fake, err := fcmfake.Start(fcmfake.Options{KeyFile: filepath.Join(t.TempDir(), "k")})
	require.NoError(t, err)
	c := client(t, fake)
	require.Equal(t, accepted, sendOne(t, c, "tok").class)
	require.NoError(t, fake.Close())
	c.close()
	a := sendOne(t, c, "tok-secret")
	require.Equal(t, outside, a.class, "no byte left")
	require.NotContains(t, a.err.Error(), "tok-secret")
	require.NotContains(t, a.err.Error(), "projects/", "the address stays out of the error")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, outside, c.send(ctx, message{Token: "tok"}).class)
}

func TestTokenFetchEndsWithItsContext(t *testing.T) {
	hangs := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-hangs }))
	defer server.Close()
	defer close(hangs)
	fake := startFCM(t)
	c := client(t, fake)
	c.tokens.config.TokenURL = server.URL
	began := time.Now()
	a := sendOne(t, c, "tok")
	require.Equal(t, outside, a.class)
	require.Equal(t, "NO_ACCESS_TOKEN", a.code)
	require.Less(t, time.Since(began), 3*time.Second)
}

func TestKeyFileErrorsNameTheVariableAndNoSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.json")
	for content, want := range map[string]string{
		"hunter2": "is not a JSON key file", `{"private_key":"hunter2"}`: "has no ",
	} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err := newFCM("http://x", path, time.Second)
		require.ErrorContains(t, err, "SEAHUB_FCM_KEY_FILE")
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := newFCM("http://x", path+".none", time.Second)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = newFCM("http://x", `{"private_key":"hunter2"}`, time.Second)
	require.ErrorContains(t, err, "SEAHUB_FCM_KEY_FILE")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestConfigReportsWhatOneKeyCannotShow(t *testing.T) {
	c := testConfig()
	c.FCMEndpoint, c.FCMKeyFile = "https://user:hunter2@", filepath.Join(t.TempDir(), "none.json")
	c.FCMTimeout = c.Lease
	c.KeepAttempts = 0
	err := c.Validate()
	for _, want := range []string{"SEAHUB_FCM_ENDPOINT", "SEAHUB_FCM_KEY_FILE", "SEAHUB_PUSH_LEASE", "SEAHUB_PUSH_KEEP_ATTEMPTS"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "hunter2")
}

func TestTTLIsBounded(t *testing.T) {
	for left, want := range map[time.Duration]string{
		time.Millisecond: "1s", 90 * time.Second: "90s", 1000 * 24 * time.Hour: "2419200s",
	} {
		require.Equal(t, want, newMessage("p", "t", "", "", nil, left).Android.TTL)
	}
}
