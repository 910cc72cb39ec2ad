package feishufake

import (
	"encoding/json"
	"net/http"
	"time"
)

// Kind names how the fake answers a valid message.
type Kind string

// The kinds.
const (
	OK Kind = "ok"
	// Limited is 11232 under HTTP 200, Throttled 9499 "too many request" under 400.
	Limited   Kind = "limited"
	Throttled Kind = "throttled"
	// BadBody is 9499 for another reason.
	BadBody Kind = "bad-body"
	// BadSign is 19021, BadIP 19022, NoKeyword 19024, TooLarge 19036.
	BadSign   Kind = "bad-sign"
	BadIP     Kind = "bad-ip"
	NoKeyword Kind = "no-keyword"
	TooLarge  Kind = "too-large"
	// HTML is a page of a proxy under HTTP 200, Nothing a closed connection, Empty an
	// object without a code, Internal 500.
	HTML     Kind = "html"
	Nothing  Kind = "nothing"
	Empty    Kind = "empty"
	Internal Kind = "internal"
	// Odd is a code that nobody has documented.
	Odd Kind = "odd"
	// TakenThenNothing shows the message and closes the connection.
	TakenThenNothing Kind = "taken-then-nothing"
	// Slow shows the message and answers after Delay.
	Slow Kind = "slow"
)

// Behaviour is a programmed answer.
type Behaviour struct {
	Kind  Kind
	Delay time.Duration
	// Times is how many messages it is for; 0 means all that follow.
	Times int
}

// Behave programs the answers to the messages that follow, one behaviour after the
// other; after the last one messages are taken.
func (s *Server) Behave(b ...Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.program = append([]Behaviour(nil), b...)
}

// next picks the answer to a valid message.
func (s *Server) next() Behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.program) == 0 {
		return Behaviour{Kind: OK}
	}
	b := s.program[0]
	if b.Times > 0 {
		if s.program[0].Times--; s.program[0].Times == 0 {
			s.program = s.program[1:]
		}
	}
	return b
}

// limited counts a message against the limits, which look back from now.
func (s *Server) limited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Clock()
	var kept []time.Time
	inSecond := 0
	for _, t := range s.taken {
		if now.Sub(t) < time.Minute {
			kept = append(kept, t)
		}
		if now.Sub(t) < time.Second {
			inSecond++
		}
	}
	s.taken = kept
	if inSecond >= s.o.PerSecond || len(kept) >= s.o.PerMinute {
		return true
	}
	s.taken = append(s.taken, now)
	return false
}

// refusal is an answer other than success.
type refusal struct {
	status, code int
	message      string
}

func refusalOf(kind Kind) (refusal, bool) {
	r, ok := map[Kind]refusal{
		Limited:   {200, 11232, "frequency limited psm[lark.oapi.app_platform_runtime]appID[1500]"},
		Throttled: {400, 9499, "too many request"},
		BadBody:   {400, 9499, "Bad Request"},
		BadSign:   {200, 19021, "sign match fail or timestamp is not within one hour from current time"},
		BadIP:     {200, 19022, "Ip Not Allowed"},
		NoKeyword: {200, 19024, "Key Words Not Found"},
		TooLarge:  {200, 19036, "the request body is too large"},
		Odd:       {200, 77777, "something new"},
		Internal:  {500, 0, ""},
	}[kind]
	return r, ok
}

// answer writes what the behaviour says.
func answer(w http.ResponseWriter, b Behaviour) (code int) {
	switch b.Kind {
	case HTML:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte("<html><body>Please log in</body></html>"))
		return 0
	case Empty:
		writeJSON(w, http.StatusOK, map[string]any{"data": map[string]any{}})
		return 0
	case Nothing, TakenThenNothing:
		if h, ok := w.(http.Hijacker); ok {
			if conn, _, err := h.Hijack(); err == nil {
				_ = conn.Close()
			}
		}
		return 0
	case Slow:
		time.Sleep(b.Delay)
	case Internal:
		http.Error(w, "internal error", http.StatusInternalServerError)
		return 0
	}
	if r, ok := refusalOf(b.Kind); ok {
		return refuse(w, r)
	}
	writeJSON(w, http.StatusOK, map[string]any{"code": 0, "msg": "success", "data": map[string]any{}, "StatusCode": 0, "StatusMessage": "success"})
	return 0
}

func refuse(w http.ResponseWriter, r refusal) int {
	writeJSON(w, r.status, map[string]any{"code": r.code, "msg": r.message, "data": map[string]any{}})
	return r.code
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
