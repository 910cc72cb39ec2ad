package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kind is what an answer of the platform means for the work.
type kind int

// The kinds. The zero value is transient: what nobody foresaw is tried again, with a
// bound, and decides nothing.
const (
	// transient: tried again a few times at once, then the round comes back later.
	transient kind = iota
	// throttled: the shared budget slows and pauses; costs the round nothing.
	throttled
	// quota: used up for an hour or a day. The round ends, the budget closes a while.
	quota
	// expired: the access token is refreshed, and the request repeated once.
	expired
	// config: ours to mend by hand (scopes, secret, clock, cipher, version). The round
	// ends with an alarm.
	config
	// account: the platform has blocked us. As config.
	account
	// item: the thing asked for is not there or not ours. The round ends; no retry.
	item
	// badPage: the page token is no longer good. The list starts again, once.
	badPage
)

// String names a kind for metrics and logs.
func (k kind) String() string {
	return [...]string{"transient", "throttled", "quota", "expired", "config", "account", "item", "bad-page"}[k]
}

// fact is what the table matches on. code is -1 where the body has none.
type fact struct {
	status int
	code   int
	// message is lower case and without quotes: the platform quotes now this way, now
	// that way.
	message string
}

// row is one line of the table; the first that matches decides.
type row struct {
	name  string
	match func(f fact) bool
	kind  kind
}

func codes(list ...int) func(fact) bool {
	return func(f fact) bool { return slices.Contains(list, f.code) }
}

// about matches the code that stands for many faults of a request, by what it names.
func about(words ...string) func(fact) bool {
	return func(f fact) bool {
		return f.code == 36009004 && slices.ContainsFunc(words, func(w string) bool { return strings.Contains(f.message, w) })
	}
}

// answers is the one place where the platform's refusals get their meaning. The body's
// code goes before the HTTP status: errors come with 200 as well.
func answers() []row {
	return []row{
		{"throttled", codes(36009002), throttled},
		{"quota used up", codes(36009037, 45101004), quota},
		{"internal error", codes(36009003), transient},
		{"timeout", codes(36009007), transient},
		{"access token expired", codes(105002), expired},
		{"scope missing", codes(105005), config},
		{"token of another user type or shop", codes(101000), config},
		{"signature invalid", codes(106001), config},
		{"cipher missing", codes(106013), config},
		{"page token refused", about("page_token", "page token"), badPage},
		{"clock is off", about("timestamp"), config},
		{"cipher refused", about("cipher"), config},
		{"app key refused", about("app_key", "app key"), config},
		{"token header refused", about("access-token", "access_token"), config},
		{"version refused", about("version"), config},
		{"request refused", codes(36009004), config},
		{"path, method or version gone", codes(36009009, 36009010, 36009014), config},
		{"address not allowed", codes(36009033), account},
		{"shop or seller disabled", codes(36009043, 36009044), account},
		{"region mismatch", codes(16032001), item},
		{"campaign not found", codes(16032005), item},
		{"no permission for the campaign", codes(16032007), item},
		{"partner status", codes(16032008), item},
		{"campaign offline", codes(16032009), item},
		{"product not in campaign", codes(16032010), item},
		{"too many requests", func(f fact) bool { return f.code <= 0 && f.status == http.StatusTooManyRequests }, throttled},
		{"server error", func(f fact) bool { return f.status >= http.StatusInternalServerError }, transient},
		{"no code in the answer", func(f fact) bool { return f.code < 0 }, transient},
		{"unknown code", func(fact) bool { return true }, transient},
	}
}

// apiError is an answer other than success, or no answer. It holds neither tokens nor
// anything of a body but numbers.
type apiError struct {
	call      string
	name      string // the row's
	kind      kind
	status    int
	code      int
	requestID string
	// retryAfter is what the platform asked for, 0 if it did not.
	retryAfter time.Duration
	cause      error
}

func (e *apiError) Error() string {
	text := "TikTok " + e.call + ": " + e.name
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	if e.status != 0 {
		text += fmt.Sprintf(" (code %d, HTTP %d, request %s)", e.code, e.status, e.requestID)
	}
	return text
}

func (e *apiError) Unwrap() error { return e.cause }

// kindOf is the kind of an error that the client returned.
func kindOf(err error) (kind, bool) {
	var e *apiError
	if errors.As(err, &e) {
		return e.kind, true
	}
	return transient, false
}

// envelope is every answer of the platform.
type envelope struct {
	Code      *int            `json:"code"`
	Message   string          `json:"message"`
	RequestID string          `json:"request_id"`
	Data      json.RawMessage `json:"data"`
}

// classify gives an answer its meaning: the data of a success, or the error. Success
// is code 0 in the body and nothing else.
func classify(call string, status int, header http.Header, body []byte, now time.Time) (json.RawMessage, *apiError) {
	f := fact{status: status, code: -1}
	var e envelope
	if json.Unmarshal(body, &e) == nil && e.Code != nil {
		f.code = *e.Code
		f.message = strings.ToLower(strings.NewReplacer(`"`, "", "'", "", "`", "", "“", "", "”", "", "‘", "", "’", "").Replace(e.Message))
	}
	if f.code == 0 && status < 300 {
		return e.Data, nil
	}
	out := &apiError{call: call, status: status, code: f.code, requestID: clean(e.RequestID), retryAfter: retryAfter(header, now)}
	for _, r := range answers() {
		if r.match(f) {
			out.name, out.kind = r.name, r.kind
			break
		}
	}
	return nil, out
}

// clean keeps an id fit for a log line, whatever was sent.
func clean(id string) string {
	const longest = 64
	id = strings.Map(func(r rune) rune {
		if (r >= 'A' && r <= 'Z') || (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') || r == '-' || r == '_' {
			return r
		}
		return -1
	}, id)
	return id[:min(len(id), longest)]
}

// retryAfter reads seconds or a date, at most an hour ahead.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if v == "" {
		return 0
	}
	var d time.Duration
	if seconds, err := strconv.ParseInt(v, 10, 32); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(v); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), time.Hour)
}
