// Package fcmfake is a strict stand-in for FCM HTTP v1 over real HTTP: the OAuth token
// endpoint, messages:send, and a record of every request. Tests use it in process, the
// demo from a program of its own; both control it alike.
//
// It writes a service account key file whose token_uri is the fake itself, so that a
// client is pointed at it by that file and the endpoint's address alone. What the real
// service refuses it refuses with the same status and body: wrong assertions, expired
// tokens, unknown fields, more than one target, data that is not text, reserved keys,
// payloads over 4096 bytes. Only a request that passes all of that meets the programmed
// Behaviour.
package fcmfake

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options say how the fake starts; the zero value is usable in tests with a KeyFile.
type Options struct {
	// Addr is where to listen; empty means a free port of 127.0.0.1.
	Addr string
	// KeyFile is where the service account's key is written.
	KeyFile string
	// Project is the project id; empty means "seahub-test".
	Project string
	// TokenLife is how long an access token is valid; 0 means an hour.
	TokenLife time.Duration
	// QuotaPerMinute refuses further sends of a minute with 429; 0 means no quota.
	QuotaPerMinute int
}

// Server is a running fake. All methods are safe for concurrent use.
type Server struct {
	project   string
	url       string
	keyFile   string
	tokenLife time.Duration
	key       *rsa.PrivateKey
	http      *http.Server
	served    chan error

	mu       sync.Mutex
	tokens   map[string]time.Time // access tokens and when they expire
	issued   int
	general  *program
	perToken map[string]*program
	quota    int
	minute   time.Time
	inMinute int
	requests []Request
}

// Request is one line of the record.
type Request struct {
	At         time.Time `json:"at"`
	Token      string    `json:"token,omitempty"`
	CollapseID string    `json:"collapseId,omitempty"`
	Tag        string    `json:"tag,omitempty"`
	TTL        string    `json:"ttl,omitempty"`
	Title      string    `json:"title,omitempty"`
	Body       string    `json:"body,omitempty"`
	// Verdict is the behaviour that answered, or why the request was refused before.
	Verdict string `json:"verdict"`
	Status  int    `json:"status"`
	// Accepted says that a device would have shown the message, whatever the client
	// was told.
	Accepted bool   `json:"accepted"`
	Name     string `json:"name,omitempty"`
	Problem  string `json:"problem,omitempty"`
}

// Start listens and serves until Close.
func Start(o Options) (*Server, error) {
	if o.KeyFile == "" {
		return nil, errors.New("fcmfake: no KeyFile: a client would have nothing to sign with")
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("fcmfake: %w", err)
	}
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("fcmfake: %w", err)
	}
	s := &Server{
		project: o.Project, tokenLife: o.TokenLife, key: key, url: "http://" + l.Addr().String(), keyFile: o.KeyFile,
		served: make(chan error, 1), tokens: map[string]time.Time{}, perToken: map[string]*program{},
		general: &program{Behaviour: Behaviour{Kind: Accept}}, quota: o.QuotaPerMinute,
	}
	if s.project == "" {
		s.project = "seahub-test"
	}
	if s.tokenLife == 0 {
		s.tokenLife = time.Hour
	}
	if err := s.writeKeyFile(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s.http = &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	go func() { s.served <- s.http.Serve(l) }()
	return s, nil
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", s.serveToken)
	mux.HandleFunc("POST /v1/projects/{project}/{call}", s.serveSend)
	mux.HandleFunc("GET /record", s.serveRecord)
	mux.HandleFunc("POST /control", s.serveControl)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { answerHTML(w) })
	return mux
}

// URL is the endpoint without a path, Project the project id, KeyFile the key's path.
func (s *Server) URL() string { return s.url }

// Project is the project id that messages are sent to.
func (s *Server) Project() string { return s.project }

// KeyFile is where the service account's key was written.
func (s *Server) KeyFile() string { return s.keyFile }

// Close ends all connections and the listener.
func (s *Server) Close() error {
	err := s.http.Close()
	if served := <-s.served; served != nil && !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("fcmfake: close: %w", err)
	}
	return nil
}

// Requests returns the record of messages:send so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Accepted returns the requests of a push (by collapse id) that a device would show.
func (s *Server) Accepted(collapseID string) []Request {
	var out []Request
	for _, r := range s.Requests() {
		if r.Accepted && r.CollapseID == collapseID {
			out = append(out, r)
		}
	}
	return out
}

// TokensIssued counts the access tokens handed out.
func (s *Server) TokensIssued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issued
}

// ExpireTokens makes all access tokens invalid, as a revoked credential would.
func (s *Server) ExpireTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

// Reset forgets the record and all programmed behaviour.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
	s.general = &program{Behaviour: Behaviour{Kind: Accept}}
	clear(s.perToken)
}

func (s *Server) record(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // documented never to fail
	return hex.EncodeToString(b)
}
