package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/seahub/seahub-mq/pkg/service"
)

const (
	fcmScope = "https://www.googleapis.com/auth/firebase.messaging"
	// tokenTimeout bounds a request for an access token.
	tokenTimeout = 10 * time.Second
	// tokenMargin is how long before its end an access token is no longer used.
	tokenMargin = 10 * time.Second
	// maxTTL is the longest that FCM keeps a message.
	maxTTL = 28 * 24 * time.Hour
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 64 << 10
)

// message is one request to FCM. Field names are the wire's.
type message struct {
	Token        string            `json:"token"`
	Notification notification      `json:"notification"`
	Data         map[string]string `json:"data,omitempty"`
	Android      androidConfig     `json:"android"`
	APNS         apnsConfig        `json:"apns"`
}

type notification struct {
	Title string `json:"title"`
	Body  string `json:"body"`
}

type androidConfig struct {
	Priority     string              `json:"priority"`
	TTL          string              `json:"ttl"`
	Notification androidNotification `json:"notification"`
}

type androidNotification struct {
	Tag string `json:"tag"`
}

type apnsConfig struct {
	Headers map[string]string `json:"headers"`
}

// newMessage builds the request for one device. Tag and collapse id are the push's id:
// should FCM deliver it twice, the second replaces the first on the screen. FCM's own
// collapse_key is not used, since it keeps only four of them per device.
func newMessage(pushID, token, title, body string, data map[string]string, ttl time.Duration) message {
	ttl = min(max(ttl.Truncate(time.Second), time.Second), maxTTL)
	return message{
		Token:        token,
		Notification: notification{Title: title, Body: body},
		Data:         data,
		Android: androidConfig{
			Priority: "high", TTL: fmt.Sprintf("%ds", int64(ttl/time.Second)),
			Notification: androidNotification{Tag: pushID},
		},
		APNS: apnsConfig{Headers: map[string]string{
			"apns-collapse-id": pushID, "apns-priority": "10",
			"apns-expiration": fmt.Sprint(time.Now().Add(ttl).Unix()),
		}},
	}
}

// fcmClient sends one message per request and classifies the answer; it repeats
// nothing but a request that was turned away at the door because its access token was
// no longer good.
type fcmClient struct {
	url     string
	http    *http.Client
	tokens  *tokenSource
	timeout time.Duration
}

// newFCM reads the key file; it does not dial.
func newFCM(endpoint, keyFile string, timeout time.Duration) (*fcmClient, error) {
	key, err := readKey(keyFile)
	if err != nil {
		return nil, err
	}
	transport := service.Traced(&http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		MaxIdleConns: 64, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
	})
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &fcmClient{
		url:     strings.TrimSuffix(endpoint, "/") + "/v1/projects/" + url.PathEscape(key.ProjectID) + "/messages:send",
		http:    &http.Client{Transport: transport, CheckRedirect: stay},
		tokens:  newTokenSource(key, &http.Client{Transport: transport, CheckRedirect: stay, Timeout: tokenTimeout}),
		timeout: timeout,
	}, nil
}

func (c *fcmClient) close() { c.http.CloseIdleConnections() }

// send makes one request and says what became of it.
func (c *fcmClient) send(ctx context.Context, m message) answer {
	body, err := json.Marshal(map[string]message{"message": m})
	if err != nil {
		return answer{class: rejected, code: "NOT_ENCODABLE"} // all fields are text
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for refreshed := false; ; refreshed = true {
		token, err := c.tokens.token(ctx)
		if err != nil {
			return answer{class: outside, code: "NO_ACCESS_TOKEN", err: err}
		}
		a := c.post(ctx, token, body)
		if a.class != unauthorized {
			return a
		}
		c.tokens.discard(token)
		if refreshed {
			return a
		}
	}
}

func (c *fcmClient) post(ctx context.Context, token string, body []byte) answer {
	var left atomic.Bool // whether the request may have reached FCM
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { left.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return answer{class: outside, code: "BAD_ENDPOINT", err: errors.New("request cannot be made for this endpoint")}
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json; charset=UTF-8")
	resp, err := c.http.Do(req)
	if err != nil {
		return lost(left.Load(), err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return lost(true, err)
	}
	return classify(resp.StatusCode, resp.Header, text, time.Now())
}

// lost is a request without an answer. Once it may have left, FCM may have taken it.
func lost(left bool, err error) answer {
	// The error's text would name the whole address; its cause is enough.
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if left {
		return answer{class: ambiguous, code: "NO_ANSWER", err: fmt.Errorf("no answer from FCM: %w", err)}
	}
	return answer{class: outside, code: "UNREACHABLE", err: fmt.Errorf("FCM not reached: %w", err)}
}

// serviceAccount is the part of a key file that matters.
type serviceAccount struct {
	ProjectID    string `json:"project_id"`
	PrivateKeyID string `json:"private_key_id"`
	PrivateKey   string `json:"private_key"`
	ClientEmail  string `json:"client_email"`
	TokenURI     string `json:"token_uri"`
}

// readKey never quotes the file's contents.
func readKey(path string) (serviceAccount, error) {
	var key serviceAccount
	if strings.Contains(path, "{") { // an error of the file system would quote it
		return key, errors.New("SEAHUB_FCM_KEY_FILE (seahub.fcm.key-file) holds the key itself: give the path of a file that has it")
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return key, fmt.Errorf("SEAHUB_FCM_KEY_FILE (seahub.fcm.key-file): %w", err)
	}
	if err := json.Unmarshal(raw, &key); err != nil {
		return key, fmt.Errorf("SEAHUB_FCM_KEY_FILE (seahub.fcm.key-file): %s is not a JSON key file", path)
	}
	for field, value := range map[string]string{
		"project_id": key.ProjectID, "private_key": key.PrivateKey, "client_email": key.ClientEmail, "token_uri": key.TokenURI,
	} {
		if value == "" {
			return key, fmt.Errorf("SEAHUB_FCM_KEY_FILE (seahub.fcm.key-file): %s has no %s: it is not a service account's key", path, field)
		}
	}
	return key, nil
}

// tokenSource keeps one access token. Unlike oauth2's own source it can be told that
// the token is no longer good, and a waiting caller can leave.
type tokenSource struct {
	config jwt.Config
	client *http.Client
	turn   chan struct{} // one fetch at a time
	shared atomic.Pointer[accessToken]
}

type accessToken struct {
	value string
	until time.Time // when it is no longer used; zero means never
}

func newTokenSource(key serviceAccount, client *http.Client) *tokenSource {
	return &tokenSource{
		config: jwt.Config{
			Email: key.ClientEmail, PrivateKey: []byte(key.PrivateKey), PrivateKeyID: key.PrivateKeyID,
			Scopes: []string{fcmScope}, TokenURL: key.TokenURI,
		},
		client: client,
		turn:   make(chan struct{}, 1),
	}
}

func (s *tokenSource) token(ctx context.Context) (string, error) {
	if t := s.usable(); t != "" {
		return t, nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for an access token: %w", ctx.Err())
	}
	if t := s.usable(); t != "" {
		return t, nil
	}
	client := *s.client
	client.Transport = under{ctx, s.client.Transport}
	fetched, err := s.config.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, &client)).Token()
	if err != nil {
		return "", fmt.Errorf("fetch an access token: %w", withoutBody(err))
	}
	t := &accessToken{value: fetched.AccessToken}
	if !fetched.Expiry.IsZero() {
		t.until = fetched.Expiry.Add(-min(tokenMargin, time.Until(fetched.Expiry)/10))
	}
	s.shared.Store(t)
	return t.value, nil
}

func (s *tokenSource) usable() string {
	t := s.shared.Load()
	if t == nil || (!t.until.IsZero() && !time.Now().Before(t.until)) {
		return ""
	}
	return t.value
}

// under makes requests end with a context; oauth2's own do not.
type under struct {
	ctx  context.Context
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (u under) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(u.ctx, func() { cancel(context.Cause(u.ctx)) })
	resp, err := u.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		stop()
		cancel(err)
		return nil, err
	}
	resp.Body = closing{resp.Body, func() { stop(); cancel(nil) }}
	return resp, nil
}

// closing releases a request's context with its body.
type closing struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (c closing) Close() error {
	defer c.release()
	return c.ReadCloser.Close()
}

// discard forgets a token that was refused, unless it was replaced already.
func (s *tokenSource) discard(token string) {
	if t := s.shared.Load(); t != nil && t.value == token {
		s.shared.CompareAndSwap(t, nil)
	}
}

// withoutBody keeps what a token server answered out of errors and logs, but for the
// short code that the protocol defines.
func withoutBody(err error) error {
	var refused *oauth2.RetrieveError
	if !errors.As(err, &refused) {
		return err
	}
	var body struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal(refused.Body, &body) // HTML has no code
	const longest = 40
	if len(body.Error) > longest {
		body.Error = body.Error[:longest]
	}
	return fmt.Errorf("token server answered %d %s", refused.Response.StatusCode, body.Error)
}
