package tiktokfake

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"
)

// The window of a timestamp around the server's clock.
const (
	oldest = 300 * time.Second
	newest = 30 * time.Second
)

// refusal is an answer other than success.
type refusal struct {
	status  int
	code    int
	message string
	// retryAfter goes into the header, in whole seconds.
	retryAfter time.Duration
}

// call is a request that passed the gate.
type call struct {
	r     *http.Request
	query url.Values
	body  []byte
	line  Request
}

// api puts the gate before an endpoint. The endpoint returns its data, or a refusal.
func (s *Server) api(name Call, method string, endpoint func(*call) (any, *refusal)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := &call{r: r, line: Request{Call: name, Campaign: r.PathValue("cid")}}
		o := s.options()
		s.pause(r.Context(), o.Delay)
		no := s.gate(c, method, o)
		if no != nil && no.code != codeThrottled {
			c.line.Problem = no.message
		}
		if no == nil {
			rule := s.ruleFor(name, c.line.Campaign)
			if rule != nil && s.obey(w, c, rule) {
				return
			}
			var data any
			if data, no = endpoint(c); no == nil {
				c.line.Status = http.StatusOK
				s.record(c.line)
				writeJSON(w, http.StatusOK, map[string]any{"code": 0, "message": "Success", "request_id": requestID(), "data": data})
				return
			}
		}
		s.answer(w, c.line, *no)
	}
}

// gate checks what the platform checks, in its order.
func (s *Server) gate(c *call, method string, o Options) *refusal {
	if c.r.Method != method {
		return &refusal{http.StatusMethodNotAllowed, 36009010, "Invalid method", 0}
	}
	var err error
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return &refusal{http.StatusBadRequest, 36009004, "Invalid query", 0}
	}
	if c.body, err = io.ReadAll(io.LimitReader(c.r.Body, 1<<20)); err != nil {
		return &refusal{http.StatusBadRequest, 36009004, "Invalid body", 0}
	}
	if c.query.Get("app_key") != o.AppKey {
		return &refusal{http.StatusBadRequest, 36009004, `Invalid "app_key"`, 0}
	}
	seconds, err := strconv.ParseInt(c.query.Get("timestamp"), 10, 64)
	if age := time.Since(time.Unix(seconds, 0)); err != nil || age > oldest || age < -newest-time.Second {
		return &refusal{http.StatusBadRequest, 36009004, `Invalid "timestamp"`, 0}
	}
	if c.r.Header.Get("Content-Type") != "application/json" {
		return &refusal{http.StatusBadRequest, 36009004, `Invalid "content-type" header`, 0}
	}
	want := sign(o.AppSecret, c.r.URL.EscapedPath(), c.query, c.body)
	if !hmac.Equal([]byte(want), []byte(c.query.Get("sign"))) {
		return &refusal{http.StatusUnauthorized, 106001, "Invalid sign", 0}
	}
	if no := s.checkToken(c.r.Header.Get("x-tts-access-token")); no != nil {
		return no
	}
	if no := s.checkCipher(c); no != nil {
		return no
	}
	return s.checkPace(o)
}

// sign is the platform's rule, written from its description: keys sorted, values
// decoded, the path before, the body behind, the secret around.
func sign(secret, path string, query url.Values, body []byte) string {
	var keys []string
	for key := range query {
		if key != "sign" && key != "access_token" {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	var text bytes.Buffer
	text.WriteString(secret + path)
	for _, key := range keys {
		text.WriteString(key + query.Get(key))
	}
	text.Write(body)
	text.WriteString(secret)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(text.Bytes())
	return hex.EncodeToString(mac.Sum(nil))
}

func (s *Server) checkCipher(c *call) *refusal {
	given := c.query.Get("category_asset_cipher")
	switch {
	case c.query.Has("shop_cipher"):
		return &refusal{http.StatusBadRequest, 36009004, `Invalid "shop_cipher"`, 0}
	case c.line.Call == CallAssets && given != "":
		return &refusal{http.StatusBadRequest, 36009004, `Invalid "category_asset_cipher": not needed`, 0}
	case c.line.Call != CallAssets && given == "":
		return &refusal{http.StatusBadRequest, 106013, "Cipher is missing", 0}
	case c.line.Call != CallAssets && given != s.cipher:
		return &refusal{http.StatusBadRequest, 36009004, `Invalid "category_asset_cipher"`, 0}
	}
	return nil
}

const codeThrottled = 36009002

func (s *Server) checkPace(o Options) *refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.window) > 0 && now.Sub(s.window[0]) >= time.Second {
		s.window = s.window[1:]
	}
	if o.QPS > 0 && len(s.window) >= o.QPS {
		return &refusal{http.StatusTooManyRequests, codeThrottled, "Request too frequent", o.RetryAfter}
	}
	s.window = append(s.window, now)
	return nil
}

// answer sends a refusal, with HTTP 200 where the fake is told to.
func (s *Server) answer(w http.ResponseWriter, line Request, no refusal) {
	if s.options().ErrorsOn200 {
		no.status = http.StatusOK
	}
	line.Status, line.Code = no.status, no.code
	s.record(line)
	if no.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(no.retryAfter/time.Second))))
	}
	writeJSON(w, no.status, map[string]any{"code": no.code, "message": no.message, "request_id": requestID(), "data": nil})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func requestID() string { return strings.ToUpper(randomHex(8)) }
