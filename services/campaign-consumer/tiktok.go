package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/budget"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/service"
)

const (
	// maxAnswer bounds what is read of an answer; a page of products has descriptions.
	maxAnswer = 16 << 20
	// triesAtOnce bounds how often one call is made before the round comes back later.
	triesAtOnce = 3
	// clockAllowance is subtracted from the timestamp: the platform takes one that is
	// five minutes old, but only half a minute of the future.
	clockAllowance = time.Minute
	// apiPatience is how long a call may wait for its unit of the budget.
	apiPatience = 10 * time.Second
	// quotaPause is how long the budget closes when a quota of hours is used up.
	quotaPause = 15 * time.Minute
	// throttlePause is the pause where a refusal names none.
	throttlePause = time.Second
)

// pacer is a shared budget as the client sees it.
type pacer interface {
	Wait(ctx context.Context, n int, patience time.Duration) (budget.Grant, error)
	Slow(ctx context.Context, pause time.Duration) error
}

// laterError: the work is to go on after a while; nothing is wrong with it.
type laterError struct {
	after time.Duration
	cause error
}

func (e *laterError) Error() string {
	return fmt.Sprintf("to be continued in %s: %v", e.after.Round(time.Millisecond), e.cause)
}

func (e *laterError) Unwrap() error { return e.cause }

// client makes calls of the Open API. Safe for concurrent use.
type client struct {
	cfg    Config
	http   *http.Client
	tokens *tokenKeeper
	pace   pacer
	seen   func(call, result string, took time.Duration)
	// again is the pause before a call is made again at once.
	again backoff.Policy
	now   func() time.Time
}

func newClient(cfg Config, st tokenStore, leases *lease.Store, pace pacer, seen func(call, result string, took time.Duration)) *client {
	h := newHTTP()
	return &client{
		cfg: cfg, http: h, pace: pace, seen: seen, now: time.Now, again: backoff.Policy{Base: time.Second, Max: 4 * time.Second},
		tokens: &tokenKeeper{cfg: cfg, store: st, leases: leases, http: h, seen: seen},
	}
}

func newHTTP() *http.Client {
	return &http.Client{
		Transport: service.Traced(&http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			MaxIdleConns: 64, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
		}),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// request is one call. Its path must be escaped, its body the bytes that are sent.
type request struct {
	name   string
	method string
	path   string
	query  url.Values
	body   []byte
	cipher bool // whether the endpoint wants the market's cipher
}

// call makes a request and decodes the data of its answer. It repeats what is worth it,
// as often as triesAtOnce says; a wait that patience does not cover is a laterError. A
// context that ends stops the repeats, not a request under way: that one has its own
// time limit.
func (c *client) call(ctx context.Context, r request, out any) error {
	refreshed := false
	for attempt := 1; ; attempt++ {
		access, err := c.tokens.access(ctx)
		if err != nil {
			return err
		}
		cipher := ""
		if r.cipher {
			if cipher, err = c.cipher(ctx); err != nil {
				return err
			}
		}
		if err := c.enter(ctx, r.name); err != nil {
			return err
		}
		data, failure := c.once(ctx, r, access, cipher)
		if failure == nil {
			return decode(r.name, data, out)
		}
		switch failure.kind {
		case expired:
			if refreshed {
				failure.kind, failure.name = config, "access token refused after a refresh"
				return failure
			}
			refreshed = true
			if err := c.tokens.renew(ctx, access); err != nil {
				return err
			}
			continue
		case throttled:
			if err := c.slow(ctx, failure); err != nil {
				return err
			}
		case quota:
			if err := c.pace.Slow(writing(ctx), max(failure.retryAfter, quotaPause)); err != nil {
				return err
			}
			return failure
		case config:
			if failure.name == "cipher refused" || failure.name == "cipher missing" {
				c.tokens.dropCipher(ctx)
			}
			return failure
		case transient:
			if attempt < triesAtOnce && backoff.Sleep(ctx, c.again.Delay(attempt)) {
				continue
			}
			return failure
		case account, item, badPage:
			return failure
		}
		if attempt >= triesAtOnce {
			return &laterError{after: max(failure.retryAfter, throttlePause), cause: failure}
		}
	}
}

// slow passes a refusal on to the budget, so that every replica hears of it.
func (c *client) slow(ctx context.Context, e *apiError) error {
	if e.retryAfter == 0 {
		e.retryAfter = throttlePause
	}
	return c.pace.Slow(writing(ctx), e.retryAfter)
}

// enter waits for a unit of the shared budget.
func (c *client) enter(ctx context.Context, name string) error {
	_, err := c.pace.Wait(ctx, 1, apiPatience)
	var busy *budget.BusyError
	if errors.As(err, &busy) {
		return &laterError{after: busy.After, cause: err}
	}
	if err != nil {
		return fmt.Errorf("TikTok %s: %w", name, err)
	}
	return nil
}

// once makes the request, freshly signed.
func (c *client) once(ctx context.Context, r request, access, cipher string) (json.RawMessage, *apiError) {
	began := time.Now()
	data, failure := c.send(ctx, r, access, cipher)
	result := "ok"
	if failure != nil {
		result = failure.kind.String()
	}
	c.seen(r.name, result, time.Since(began))
	return data, failure
}

func (c *client) send(ctx context.Context, r request, access, cipher string) (json.RawMessage, *apiError) {
	query := url.Values{}
	for key, values := range r.query {
		query[key] = values
	}
	query.Set("app_key", c.cfg.AppKey)
	query.Set("timestamp", strconv.FormatInt(c.now().Add(-clockAllowance).Unix(), 10))
	if cipher != "" {
		query.Set("category_asset_cipher", cipher)
	}
	query.Set("sign", sign(c.cfg.AppSecret, r.path, query, r.body))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.APITimeout)
	defer cancel()
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, strings.TrimSuffix(c.cfg.Endpoint, "/")+r.path+"?"+query.Encode(), body)
	if err != nil {
		return nil, asAPIError(r.name, withoutURL(err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("x-tts-access-token", access)
	status, header, answer, err := exchange(c.http, req)
	if err != nil {
		return nil, asAPIError(r.name, err)
	}
	return classify(r.name, status, header, answer, c.now())
}

// exchange sends a request and reads the whole answer, within bounds. Its errors hold
// no address: queries have secrets in them.
func exchange(h *http.Client, req *http.Request) (int, http.Header, []byte, error) {
	resp, err := h.Do(req)
	if err != nil {
		return 0, nil, nil, withoutURL(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, nil, nil, withoutURL(err)
	case len(body) > maxAnswer:
		return 0, nil, nil, fmt.Errorf("answer has more than %d bytes", maxAnswer)
	}
	return resp.StatusCode, resp.Header, body, nil
}

// withoutURL takes the address out of an error of net/http.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// asAPIError makes a transient failure of an error that is none of the platform's.
func asAPIError(call string, err error) *apiError {
	var e *apiError
	if errors.As(err, &e) {
		return e
	}
	return &apiError{call: call, name: "no answer", kind: transient, cause: err}
}

// decode reads the data of a success. Data that is missing is an error and never an
// empty list.
func decode(call string, data json.RawMessage, out any) error {
	if len(data) == 0 || string(data) == "null" {
		return &apiError{call: call, name: "success without data", kind: transient}
	}
	if err := json.Unmarshal(data, out); err != nil {
		return &apiError{call: call, name: "data is not of the known form", kind: transient}
	}
	return nil
}

// writing is for what must be written although the work is told to stop.
func writing(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }
