package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// class is what an answer means for the device, the push and the lane.
type class int

// The classes. The zero value is ambiguous: what was forgotten must not count as sent
// nor as failed.
const (
	// ambiguous: FCM may have taken it. Tried again, under the same collapse id.
	ambiguous class = iota
	// accepted: FCM took it. Final.
	accepted
	// deadToken: this token will never work again. Final; the device is switched off.
	deadToken
	// rejected: this message will never be taken for this device. Final; token kept.
	rejected
	// transient: FCM could not this time. Tried again; costs an attempt.
	transient
	// throttled: FCM asks for a slower pace. Like transient, and the lane slows.
	throttled
	// outside: the request did not get as far as FCM's judgement. Tried again, costs
	// no attempt.
	outside
	// unauthorized: our credential was refused. The client fetches another one once;
	// then it is like outside, and the lane rests.
	unauthorized
)

// The states of mq_push_attempts.
const (
	stateSending   = "SENDING"
	stateAccepted  = "ACCEPTED"
	stateDeadToken = "DEAD_TOKEN"
	stateRejected  = "REJECTED"
	stateRetry     = "RETRY"
	stateUnknown   = "UNKNOWN"
	stateOutside   = "OUTSIDE"
)

func (c class) state() string {
	switch c {
	case accepted:
		return stateAccepted
	case deadToken:
		return stateDeadToken
	case rejected:
		return stateRejected
	case transient, throttled:
		return stateRetry
	case outside, unauthorized:
		return stateOutside
	case ambiguous:
	}
	return stateUnknown
}

// final says that the device needs no further request for this push.
func (c class) final() bool { return c == accepted || c == deadToken || c == rejected }

// answer is what became of one request. It never holds a token or a payload.
type answer struct {
	class class
	// code is FCM's errorCode, or ours where there was none; for logs and the ledger.
	code string
	// providerID names the accepted message.
	providerID string
	// retryAfter is what FCM asked for, 0 if it did not.
	retryAfter time.Duration
	err        error
}

// fact is what the table matches on.
type fact struct {
	status int    // HTTP
	fcm    string // FcmError.errorCode, "" if the body has none
	google bool   // the body is an error of Google's form
	// aboutToken and aboutPayload: which part of the request the error blames.
	aboutToken   bool
	aboutPayload bool
	// aboutDevice: the quota that is exceeded is one device's own.
	aboutDevice bool
}

// row is one line of the table; the first that matches decides.
type row struct {
	name  string
	match func(f fact) bool
	class class
	// wait is the least wait where the answer names none.
	wait time.Duration
}

// answers is the one place where FCM's refusals get their meaning. An HTTP status alone
// never switches a device off: a proxy's or a retired endpoint's 404 says nothing of it.
func answers() []row {
	status := func(codes ...int) func(fact) bool {
		return func(f fact) bool {
			for _, c := range codes {
				if f.status == c {
					return true
				}
			}
			return false
		}
	}
	fcm := func(codes ...string) func(fact) bool {
		return func(f fact) bool {
			for _, c := range codes {
				if f.fcm == c {
					return true
				}
			}
			return false
		}
	}
	return []row{
		{"unregistered", fcm("UNREGISTERED"), deadToken, 0},
		{"malformed token", func(f fact) bool { return f.fcm == "INVALID_ARGUMENT" && f.aboutToken && !f.aboutPayload }, deadToken, 0},
		{"our payload", fcm("INVALID_ARGUMENT"), rejected, 0},
		{"token of another project", fcm("SENDER_ID_MISMATCH"), rejected, 0},
		{"APNs credential", fcm("THIRD_PARTY_AUTH_ERROR", "APNS_AUTH_ERROR"), outside, 5 * time.Minute},
		{"one device's quota", func(f fact) bool { return f.fcm == "QUOTA_EXCEEDED" && f.aboutDevice }, transient, time.Minute},
		{"quota", func(f fact) bool { return f.fcm == "QUOTA_EXCEEDED" || f.status == http.StatusTooManyRequests }, throttled, time.Minute},
		{"our credential", func(f fact) bool {
			return f.fcm == "" && (f.status == http.StatusUnauthorized || f.status == http.StatusForbidden)
		}, unauthorized, 30 * time.Second},
		{"overloaded", fcm("UNAVAILABLE", "INTERNAL"), transient, 0},
		{"server error", status(http.StatusInternalServerError, http.StatusServiceUnavailable), transient, 0},
		{"gateway gave up", status(http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusRequestTimeout), ambiguous, 0},
		{"request refused as a whole", func(f fact) bool { return f.google && f.status == http.StatusBadRequest }, rejected, 0},
		{"too large", status(http.StatusRequestEntityTooLarge), rejected, 0},
		{"unknown FCM code", func(f fact) bool { return f.fcm != "" }, transient, 0},
		{"not FCM that answers", func(f fact) bool { return f.status >= 300 }, outside, 30 * time.Second},
	}
}

// errorBody is Google's form of an error.
type errorBody struct {
	Error struct {
		Message string `json:"message"`
		Status  string `json:"status"`
		Details []struct {
			Type            string `json:"@type"`
			ErrorCode       string `json:"errorCode"`
			FieldViolations []struct {
				Field string `json:"field"`
			} `json:"fieldViolations"`
			Violations []struct {
				Subject     string `json:"subject"`
				Description string `json:"description"`
			} `json:"violations"` // of google.rpc.QuotaFailure
		} `json:"details"`
	} `json:"error"`
}

// classify gives an answer its meaning. Success needs the name of a message: a page of
// a proxy with status 200 is no success.
func classify(status int, header http.Header, body []byte, now time.Time) answer {
	if status >= 200 && status < 300 {
		var ok struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(body, &ok) == nil && ok.Name != "" {
			return answer{class: accepted, providerID: ok.Name}
		}
		return answer{class: ambiguous, code: "NO_MESSAGE_NAME"}
	}
	f, code := factOf(status, body)
	a := answer{class: ambiguous, code: code, retryAfter: retryAfter(header, now)}
	for _, r := range answers() {
		if r.match(f) {
			a.class = r.class
			if a.retryAfter == 0 {
				a.retryAfter = r.wait
			}
			break
		}
	}
	return a
}

func factOf(status int, body []byte) (fact, string) {
	f := fact{status: status}
	var e errorBody
	if json.Unmarshal(body, &e) != nil || e.Error.Status == "" {
		return f, "HTTP_" + strconv.Itoa(status)
	}
	f.google = true
	violations := 0
	for _, d := range e.Error.Details {
		if strings.HasSuffix(d.Type, "google.firebase.fcm.v1.FcmError") {
			f.fcm = d.ErrorCode
		}
		for _, v := range d.Violations {
			f.aboutDevice = f.aboutDevice || strings.Contains(strings.ToLower(v.Subject+" "+v.Description), "device")
		}
		for _, v := range d.FieldViolations {
			violations++
			if v.Field == "message.token" {
				f.aboutToken = true
			} else {
				f.aboutPayload = true
			}
		}
	}
	if violations == 0 {
		f.aboutToken = strings.Contains(strings.ToLower(e.Error.Message), "registration token")
	}
	code := f.fcm
	if code == "" {
		code = e.Error.Status
	}
	return f, clean(code)
}

// clean keeps a code fit for a column and a log line, whatever was sent.
func clean(code string) string {
	const longest = 64
	code = strings.Map(func(r rune) rune {
		if (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9') || r == '_' {
			return r
		}
		return -1
	}, code)
	return code[:min(len(code), longest)]
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
