package tiktokfake

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Rule is a programmed answer to requests that are valid. The first that matches and
// is not used up answers.
type Rule struct {
	// Call is the endpoint; Campaign, when set, the one campaign that it is about.
	Call     Call   `json:"call"`
	Campaign string `json:"campaign,omitempty"`
	// Status and Code are sent with Message and no data; Status 0 is 200.
	Status  int    `json:"status,omitempty"`
	Code    int    `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// RetryAfter is the header as it stands: seconds or a date.
	RetryAfter string `json:"retryAfter,omitempty"`
	// Body, when set, is sent as it is instead of an envelope.
	Body string `json:"body,omitempty"`
	// Hang keeps the request until the client goes away, Drop closes its connection.
	Hang bool `json:"hang,omitempty"`
	Drop bool `json:"drop,omitempty"`
	// Skip lets so many requests pass first; Times limits the rule, 0 does not.
	Skip  int `json:"skip,omitempty"`
	Times int `json:"times,omitempty"`

	seen, used int
}

// Program adds rules.
func (s *Server) Program(rules ...Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rules {
		s.rules = append(s.rules, &r)
	}
}

// Unprogram removes all rules.
func (s *Server) Unprogram() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

func (s *Server) ruleFor(name Call, campaign string) *Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		if r.Call != name || (r.Campaign != "" && r.Campaign != campaign) || (r.Times > 0 && r.used >= r.Times) {
			continue
		}
		if r.seen++; r.seen <= r.Skip {
			continue
		}
		r.used++
		return r
	}
	return nil
}

// obey answers as a rule says; false lets the endpoint answer.
func (s *Server) obey(w http.ResponseWriter, c *call, rule *Rule) bool {
	c.line.Status, c.line.Code = rule.Status, rule.Code
	if c.line.Status == 0 {
		c.line.Status = http.StatusOK
	}
	s.record(c.line)
	if rule.Hang {
		s.pause(c.r.Context(), time.Hour)
	}
	if rule.Hang || rule.Drop {
		panic(http.ErrAbortHandler)
	}
	if rule.RetryAfter != "" {
		w.Header().Set("Retry-After", rule.RetryAfter)
	}
	if rule.Body != "" {
		w.WriteHeader(c.line.Status)
		_, _ = w.Write([]byte(rule.Body))
		return true
	}
	writeJSON(w, c.line.Status, map[string]any{"code": rule.Code, "message": rule.Message, "request_id": requestID(), "data": nil})
	return true
}

// Control is the body of POST /control: what is given is done, in this order.
type Control struct {
	Forget       bool        `json:"forget,omitempty"`
	ExpireAccess bool        `json:"expireAccess,omitempty"`
	QPS          *int        `json:"qps,omitempty"`
	RetryAfter   int         `json:"retryAfter,omitempty"`
	Rules        []Rule      `json:"rules,omitempty"`
	Campaigns    []*Campaign `json:"campaigns,omitempty"`
}

func (s *Server) serveControl(w http.ResponseWriter, r *http.Request) {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<26))
	decoder.DisallowUnknownFields()
	var c Control
	if err := decoder.Decode(&c); err != nil {
		http.Error(w, "control: "+err.Error(), http.StatusBadRequest)
		return
	}
	if c.Forget {
		s.Forget()
	}
	if c.ExpireAccess {
		s.ExpireAccess()
	}
	if c.QPS != nil {
		s.SetQPS(*c.QPS, time.Duration(c.RetryAfter)*time.Second)
	}
	s.Program(c.Rules...)
	s.Add(c.Campaigns...)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) serveRecord(w http.ResponseWriter, _ *http.Request) {
	requests := s.Requests()
	if requests == nil {
		requests = []Request{}
	}
	w.Header().Set("X-Total", strconv.Itoa(len(requests)))
	writeJSON(w, http.StatusOK, map[string]any{"counts": s.Counts(), "requests": requests})
}
