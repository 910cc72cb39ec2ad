package fcmfake

import (
	"net/http"
	"strconv"
	"time"
)

// Kind names how the fake answers a valid request.
type Kind string

// The kinds.
const (
	Accept Kind = "accept"
	// Slow accepts after Delay.
	Slow Kind = "slow"
	// AmbiguousClose accepts, then closes the connection without an answer.
	AmbiguousClose Kind = "ambiguous-close"
	// AmbiguousLate accepts, and answers only after Delay: make that longer than the
	// client's patience.
	AmbiguousLate Kind = "ambiguous-late"
	// Quota is 429 QUOTA_EXCEEDED, Unavailable 503, Internal 500, each with
	// RetryAfter if that is set.
	Quota       Kind = "quota"
	Unavailable Kind = "unavailable"
	// UnavailableAccepted accepts and says 503.
	UnavailableAccepted Kind = "unavailable-accepted"
	Internal            Kind = "internal"
	// Unregistered and InvalidToken are about the device's token.
	Unregistered Kind = "unregistered"
	InvalidToken Kind = "invalid-token"
	// InvalidPayload is about the message.
	InvalidPayload Kind = "invalid-payload"
	SenderMismatch Kind = "sender-mismatch"
	// ThirdPartyAuth is a broken APNs credential, Unauthorized and Forbidden ours.
	ThirdPartyAuth Kind = "third-party-auth"
	Unauthorized   Kind = "unauthorized"
	Forbidden      Kind = "forbidden"
	// HTML404 is the page of an endpoint that is gone, HTML200 one of a captive proxy.
	HTML404 Kind = "html-404"
	HTML200 Kind = "html-200"
)

// Behaviour is a programmed answer.
type Behaviour struct {
	Kind Kind `json:"kind"`
	// RetryAfter goes into the header of 429, 500 and 503, in whole seconds.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
	Delay      time.Duration `json:"delay,omitempty"`
	// Times limits the behaviour to that many requests, For to a time; then the fake
	// accepts again. 0 means no limit.
	Times int           `json:"times,omitempty"`
	For   time.Duration `json:"for,omitempty"`
}

// program is a behaviour in use.
type program struct {
	Behaviour
	used  int
	until time.Time
}

func newProgram(b Behaviour) *program {
	p := &program{Behaviour: b}
	if b.For > 0 {
		p.until = time.Now().Add(b.For)
	}
	return p
}

// next returns the behaviour for one request, or ok false when it has run out.
func (p *program) next() (Behaviour, bool) {
	if (p.Times > 0 && p.used >= p.Times) || (!p.until.IsZero() && time.Now().After(p.until)) {
		return Behaviour{}, false
	}
	p.used++
	return p.Behaviour, true
}

// Behave programs the answer for all tokens that have none of their own.
func (s *Server) Behave(b Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.general = newProgram(b)
}

// BehaveFor programs the answer for one device token.
func (s *Server) BehaveFor(token string, b Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.perToken[token] = newProgram(b)
}

// SetQuota changes the quota per minute; 0 lifts it.
func (s *Server) SetQuota(perMinute int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quota, s.inMinute, s.minute = perMinute, 0, time.Now()
}

// behaviourFor picks the answer to a valid request and counts it against the quota.
func (s *Server) behaviourFor(token string) Behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.minute) >= time.Minute {
		s.minute, s.inMinute = now, 0
	}
	s.inMinute++
	if s.quota > 0 && s.inMinute > s.quota {
		return Behaviour{Kind: Quota, RetryAfter: time.Until(s.minute.Add(time.Minute)).Round(time.Second)}
	}
	if p := s.perToken[token]; p != nil {
		if b, ok := p.next(); ok {
			return b
		}
	}
	if b, ok := s.general.next(); ok {
		return b
	}
	return Behaviour{Kind: Accept}
}

// refusal is an answer other than success.
type refusal struct {
	status  int
	code    string // google.rpc status
	message string
	fcm     string   // FcmError.errorCode, "" for none
	fields  []string // BadRequest.fieldViolations, none for none
}

func refusalOf(kind Kind) (refusal, bool) {
	r, ok := map[Kind]refusal{
		Quota:               {429, "RESOURCE_EXHAUSTED", "Quota exceeded for quota metric.", "QUOTA_EXCEEDED", nil},
		Unavailable:         {503, "UNAVAILABLE", "The service is currently unavailable.", "UNAVAILABLE", nil},
		UnavailableAccepted: {503, "UNAVAILABLE", "The service is currently unavailable.", "UNAVAILABLE", nil},
		Internal:            {500, "INTERNAL", "Internal error encountered.", "INTERNAL", nil},
		Unregistered:        {404, "NOT_FOUND", "Requested entity was not found.", "UNREGISTERED", nil},
		InvalidToken:        {400, "INVALID_ARGUMENT", "The registration token is not a valid FCM registration token", "INVALID_ARGUMENT", nil},
		InvalidPayload:      {400, "INVALID_ARGUMENT", "Request contains an invalid argument.", "INVALID_ARGUMENT", []string{"message.android.ttl"}},
		SenderMismatch:      {403, "PERMISSION_DENIED", "SenderId mismatch", "SENDER_ID_MISMATCH", nil},
		ThirdPartyAuth:      {401, "UNAUTHENTICATED", "Auth error from APNS or Web Push Service", "THIRD_PARTY_AUTH_ERROR", nil},
		Unauthorized:        {401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", "", nil},
		Forbidden:           {403, "PERMISSION_DENIED", "Permission denied on resource project.", "", nil},
	}[kind]
	return r, ok
}

func (r refusal) write(w http.ResponseWriter, retryAfter time.Duration) {
	details := []map[string]any{}
	if r.fcm != "" {
		details = append(details, map[string]any{
			"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": r.fcm,
		})
	}
	if len(r.fields) > 0 {
		var violations []map[string]string
		for _, f := range r.fields {
			violations = append(violations, map[string]string{"field": f, "description": r.message})
		}
		details = append(details, map[string]any{
			"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations,
		})
	}
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(retryAfter/time.Second))))
	}
	writeJSON(w, r.status, map[string]any{"error": map[string]any{
		"code": r.status, "message": r.message, "status": r.code, "details": details,
	}})
}

func answerHTML(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=UTF-8")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte("<!DOCTYPE html><html lang=en><title>Error 404 (Not Found)!!1</title>"))
}
