package fcmfake

import (
	"encoding/json"
	"net/http"
)

// Control is the body of POST /control: what is given is done, in this order.
type Control struct {
	Reset        bool       `json:"reset,omitempty"`
	ExpireTokens bool       `json:"expireTokens,omitempty"`
	Quota        *int       `json:"quota,omitempty"`
	Behaviour    *Behaviour `json:"behaviour,omitempty"`
	// Tokens are the device tokens that Behaviour is for; none means all.
	Tokens []string `json:"tokens,omitempty"`
}

// Apply does what a Control says.
func (s *Server) Apply(c Control) {
	if c.Reset {
		s.Reset()
	}
	if c.ExpireTokens {
		s.ExpireTokens()
	}
	if c.Quota != nil {
		s.SetQuota(*c.Quota)
	}
	if c.Behaviour == nil {
		return
	}
	if len(c.Tokens) == 0 {
		s.Behave(*c.Behaviour)
	}
	for _, token := range c.Tokens {
		s.BehaveFor(token, *c.Behaviour)
	}
}

func (s *Server) serveControl(w http.ResponseWriter, r *http.Request) {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<22))
	decoder.DisallowUnknownFields()
	var c Control
	if err := decoder.Decode(&c); err != nil {
		http.Error(w, "control: "+err.Error(), http.StatusBadRequest)
		return
	}
	s.Apply(c)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) serveRecord(w http.ResponseWriter, _ *http.Request) {
	requests := s.Requests()
	if requests == nil {
		requests = []Request{}
	}
	writeJSON(w, http.StatusOK, map[string]any{"tokensIssued": s.TokensIssued(), "requests": requests})
}
