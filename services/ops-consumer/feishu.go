package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// verdict of an outside answer to a message.
type answerClass int

const (
	answerTaken answerClass = iota
	// answerThrottled: too many; slower, and again.
	answerThrottled
	// answerTransient: nothing can be concluded; again.
	answerTransient
	// answerConfig: no message of ours will be taken until somebody changes something.
	answerConfig
	// answerTooLarge and answerBadBody are about this message; it goes once more as text.
	answerTooLarge
	answerBadBody
)

// answer is what came back. err never quotes the hook's address, which is a credential.
type answer struct {
	class answerClass
	code  int
	wait  time.Duration // what the other side asked for
	err   error
}

// feishuCodes is the table of documented codes; any other is transient.
func feishuCodes() map[int]answerClass {
	return map[int]answerClass{
		0:     answerTaken,
		11232: answerThrottled, // frequency limited, under HTTP 200
		9499:  answerBadBody,   // also throttling, by its text
		19001: answerConfig,    // the hook's address is wrong or was removed
		19021: answerConfig,    // signature, or a clock that is over an hour off
		19022: answerConfig,    // our address is not allowed
		19024: answerConfig,    // the bot demands a keyword
		19036: answerTooLarge,
	}
}

var (
	// errNoAnswer: the answer is none of Feishu's: a proxy's page, or no JSON at all.
	errNoAnswer = errors.New("not an answer of Feishu")
	// errRefused: Feishu said no.
	errRefused = errors.New("the message was refused by Feishu")
)

// feishu is the custom bot.
type feishu struct {
	hook, secret string
	http         *http.Client
	now          func() time.Time
}

func newFeishu(hook, secret string, timeout time.Duration) *feishu {
	return &feishu{hook: hook, secret: secret, http: newHTTP(timeout), now: time.Now}
}

func newHTTP(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout:   timeout,
		Transport: &http.Transport{MaxIdleConns: 2, IdleConnTimeout: 30 * time.Second, Proxy: http.ProxyFromEnvironment},
		// A redirect would carry the message, and be answered by whoever it leads to.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (f *feishu) close() { f.http.CloseIdleConnections() }

// sign is the custom bot's: the key is timestamp and secret, the message is empty.
func sign(timestamp, secret string) string {
	mac := hmac.New(sha256.New, []byte(timestamp+"\n"+secret))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// send makes one request. Each has a signature of its own: they age.
func (f *feishu) send(ctx context.Context, m message, asText bool) answer {
	body, err := m.body(asText)
	if err != nil {
		return answer{class: answerBadBody, err: err}
	}
	if f.secret != "" {
		body.Timestamp = strconv.FormatInt(f.now().Unix(), 10)
		body.Sign = sign(body.Timestamp, f.secret)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return answer{class: answerBadBody, err: err}
	}
	status, header, text, err := post(ctx, f.http, f.hook, raw)
	if err != nil {
		return answer{class: answerTransient, err: err}
	}
	return classifyFeishu(status, header, text)
}

// classifyFeishu goes by the code in the body; HTTP 200 alone is no success.
func classifyFeishu(status int, header http.Header, text []byte) answer {
	var a struct {
		Code *int   `json:"code"`
		Msg  string `json:"msg"`
	}
	wait := retryAfter(header)
	if err := json.Unmarshal(text, &a); err != nil || a.Code == nil {
		class := answerTransient
		if status == http.StatusTooManyRequests {
			class = answerThrottled
		}
		return answer{class: class, wait: wait, err: fmt.Errorf("%w: HTTP %d, %d bytes", errNoAnswer, status, len(text))}
	}
	class, ok := feishuCodes()[*a.Code]
	switch {
	case !ok, class == answerTaken && status/100 != 2:
		class = answerTransient
	case *a.Code == 9499 && strings.Contains(strings.ToLower(a.Msg), "too many request"):
		class = answerThrottled
	}
	if status == http.StatusTooManyRequests {
		class = answerThrottled
	}
	if class == answerTaken {
		return answer{}
	}
	return answer{class: class, code: *a.Code, wait: wait, err: fmt.Errorf("%w: HTTP %d, code %d, %s", errRefused, status, *a.Code, clean(a.Msg, 120))}
}

func retryAfter(h http.Header) time.Duration {
	s, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || s < 0 {
		return 0
	}
	return min(time.Duration(s)*time.Second, 10*time.Minute)
}

// post sends JSON and reads a bounded answer. Its errors do not carry the address.
func post(ctx context.Context, client *http.Client, address string, raw []byte) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(raw))
	if err != nil {
		return 0, nil, nil, errors.New("the webhook's address is not usable")
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	resp, err := client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address
		}
		return 0, nil, nil, fmt.Errorf("webhook at %s: %w", req.URL.Host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return 0, nil, nil, fmt.Errorf("webhook at %s: read the answer: %w", req.URL.Host, err)
	}
	return resp.StatusCode, resp.Header, text, nil
}

// webhook is the second route: any receiver of JSON that answers 2xx.
type webhook struct {
	address string
	http    *http.Client
}

func newWebhook(address string, timeout time.Duration) *webhook {
	return &webhook{address: address, http: newHTTP(timeout)}
}

func (w *webhook) close() { w.http.CloseIdleConnections() }

func (w *webhook) send(ctx context.Context, m message, _ bool) answer {
	raw, err := json.Marshal(struct {
		Text string `json:"text"`
		message
	}{m.text(), m})
	if err != nil {
		return answer{class: answerBadBody, err: err}
	}
	status, header, _, err := post(ctx, w.http, w.address, raw)
	switch {
	case err != nil:
		return answer{class: answerTransient, err: err}
	case status/100 == 2:
		return answer{}
	case status == http.StatusTooManyRequests:
		return answer{class: answerThrottled, wait: retryAfter(header), err: fmt.Errorf("second webhook: HTTP %d", status)}
	}
	return answer{class: answerTransient, err: fmt.Errorf("second webhook: HTTP %d", status)}
}
