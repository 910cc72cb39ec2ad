package tiktokfake

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"time"
)

// The kinds of user that a token may be of.
const (
	UserSeller  = 0
	UserCreator = 1
	UserPartner = 3
)

// tokens are the authorisations; a refresh token works once.
type tokens struct {
	access  map[string]accessToken
	refresh map[string]int // user type
	codes   map[string]int
	lose    int
	keep    bool
	hooks   []func()
}

type accessToken struct {
	userType int
	scopes   bool
	expires  time.Time
}

func newTokens() tokens {
	return tokens{access: map[string]accessToken{}, refresh: map[string]int{}, codes: map[string]int{}}
}

// Tokens are what an authorisation hands out.
type Tokens struct {
	Access, Refresh                 string
	AccessExpires, RefreshExpires   time.Time
	accessSeconds, refreshInSeconds int64
}

// Issue hands out a pair of tokens, as a person's authorisation does.
func (s *Server) Issue(userType int) Tokens {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issue(userType)
}

// IssueWithoutScopes hands out tokens that open nothing.
func (s *Server) IssueWithoutScopes() Tokens {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.issue(UserPartner)
	a := s.tokens.access[t.Access]
	a.scopes = false
	s.tokens.access[t.Access] = a
	return t
}

func (s *Server) issue(userType int) Tokens {
	now := time.Now()
	t := Tokens{
		Access: "TTP_" + randomHex(24), Refresh: "TTR_" + randomHex(24),
		AccessExpires: now.Add(s.o.TokenLife), RefreshExpires: now.Add(365 * 24 * time.Hour),
	}
	t.accessSeconds, t.refreshInSeconds = t.AccessExpires.Unix(), t.RefreshExpires.Unix()
	s.tokens.access[t.Access] = accessToken{userType: userType, scopes: true, expires: t.AccessExpires}
	s.tokens.refresh[t.Refresh] = userType
	return t
}

// AuthCode makes a code that a token can be had for once.
func (s *Server) AuthCode() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	code := "TTC_" + randomHex(12)
	s.tokens.codes[code] = UserPartner
	return code
}

// ExpireAccess makes all access tokens of now invalid; refresh tokens stay good.
func (s *Server) ExpireAccess() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens.access)
}

// LoseRefreshAnswers lets the next n refreshes take effect and closes the connection
// instead of answering.
func (s *Server) LoseRefreshAnswers(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens.lose = n
}

// KeepRefreshTokens makes refresh tokens reusable, which the platform may do.
func (s *Server) KeepRefreshTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens.keep = true
}

// OnAccess calls f, before the gate looks at the token, with every API request.
func (s *Server) OnAccess(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens.hooks = append(s.tokens.hooks, f)
}

func (s *Server) checkToken(given string) *refusal {
	s.mu.Lock()
	hooks := s.tokens.hooks
	s.mu.Unlock()
	for _, f := range hooks {
		f()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, known := s.tokens.access[given]
	switch {
	case given == "":
		return &refusal{http.StatusUnauthorized, 36009004, `Invalid "x-tts-access-token" header`, 0}
	case !known || time.Now().After(t.expires):
		return &refusal{http.StatusUnauthorized, 105002, "Expired credentials", 0}
	case t.userType != UserPartner:
		return &refusal{http.StatusUnauthorized, 101000, "Token of another user type", 0}
	case !t.scopes:
		return &refusal{http.StatusForbidden, 105005, "Access denied: scope is missing", 0}
	}
	return nil
}

func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	userType, ok := s.tokens.codes[q.Get("auth_code")]
	delete(s.tokens.codes, q.Get("auth_code"))
	s.mu.Unlock()
	if no := s.checkApp(r, "authorized_code"); no != nil {
		s.answer(w, Request{Call: CallToken, Problem: no.message}, *no)
		return
	}
	if !ok {
		s.answer(w, Request{Call: CallToken}, refusal{http.StatusOK, 36004004, "auth code is invalid", 0})
		return
	}
	s.handOut(w, CallToken, s.Issue(userType))
}

func (s *Server) serveRefresh(w http.ResponseWriter, r *http.Request) {
	if no := s.checkApp(r, "refresh_token"); no != nil {
		s.answer(w, Request{Call: CallRefresh, Problem: no.message}, *no)
		return
	}
	if rule := s.ruleFor(CallRefresh, ""); rule != nil && s.obey(w, &call{r: r, line: Request{Call: CallRefresh}}, rule) {
		return
	}
	given := r.URL.Query().Get("refresh_token")
	s.mu.Lock()
	userType, ok := s.tokens.refresh[given]
	if ok && !s.tokens.keep {
		delete(s.tokens.refresh, given) // spent from this moment, whatever becomes of the answer
	}
	lose := s.tokens.lose > 0
	if ok && lose {
		s.tokens.lose--
	}
	s.mu.Unlock()
	s.pause(r.Context(), s.options().RefreshDelay)
	if !ok {
		s.answer(w, Request{Call: CallRefresh}, refusal{http.StatusOK, 36004004, "refresh token is invalid", 0})
		return
	}
	t := s.Issue(userType)
	if lose {
		s.record(Request{Call: CallRefresh, Problem: ""})
		panic(http.ErrAbortHandler)
	}
	s.handOut(w, CallRefresh, t)
}

func (s *Server) checkApp(r *http.Request, grant string) *refusal {
	o, q := s.options(), r.URL.Query()
	switch {
	case r.Method != http.MethodGet:
		return &refusal{http.StatusMethodNotAllowed, 36009010, "Invalid method", 0}
	case q.Get("app_key") != o.AppKey || q.Get("app_secret") != o.AppSecret:
		return &refusal{http.StatusOK, 36004003, "app key or secret is invalid", 0}
	case q.Get("grant_type") != grant:
		return &refusal{http.StatusOK, 36004001, "grant type is invalid", 0}
	}
	return nil
}

// handOut answers with a pair of tokens; the *_expire_in values are instants.
func (s *Server) handOut(w http.ResponseWriter, name Call, t Tokens) {
	s.record(Request{Call: name, Status: http.StatusOK})
	writeJSON(w, http.StatusOK, map[string]any{"code": 0, "message": "success", "request_id": requestID(), "data": map[string]any{
		"access_token": t.Access, "access_token_expire_in": t.accessSeconds,
		"refresh_token": t.Refresh, "refresh_token_expire_in": t.refreshInSeconds,
		"open_id": "open", "seller_name": "partner", "seller_base_region": s.o.Market, "user_type": UserPartner,
		"granted_scopes": []string{"partner.authorization.info", "partner.tap_campaign.read"},
	}})
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // documented never to fail
	return hex.EncodeToString(b)
}
