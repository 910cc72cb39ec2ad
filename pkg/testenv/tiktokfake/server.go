// Package tiktokfake is a strict stand-in for the TikTok Shop Open API of an affiliate
// partner over real HTTP: the token endpoints, category assets, campaigns, their
// products, promotion links, and the share links themselves; with a record of every
// request. Tests use it in process, other programs by GET /record and POST /control.
//
// It recomputes each signature from the bytes that arrived and refuses, with the real
// codes, what the platform refuses: unknown app keys, clocks that are off, tokens that
// expired or are of the wrong kind, missing or needless ciphers, page sizes and batch
// sizes beyond the caps, and more requests a second than it is told to take. Only a
// request that passes all of that meets the programmed Rules.
//
// Links are always written as https://affiliate.tiktok.com/…; a client reaches them at
// the fake's own address.
package tiktokfake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// LinkHost is the host of the share links that the fake hands out.
const LinkHost = "affiliate.tiktok.com"

// Options say how the fake starts; the zero value is usable.
type Options struct {
	// Addr is where to listen; empty means a free port of 127.0.0.1.
	Addr string
	// AppKey, AppSecret and Market are what clients must use; empty: test values, "ID".
	AppKey, AppSecret, Market string
	// Delay is how long each call takes, LinkDelay each share link.
	Delay, LinkDelay time.Duration
	// QPS refuses calls beyond so many in a second; 0 means no limit.
	QPS int
	// RetryAfter goes with those refusals; 0: no header.
	RetryAfter time.Duration
	// ErrorsOn200 sends error codes with HTTP 200, as the platform sometimes does.
	ErrorsOn200 bool
	// TokenLife is how long an access token is valid; 0 means a week.
	TokenLife time.Duration
	// RefreshDelay is how long a token refresh takes.
	RefreshDelay time.Duration
}

// Server is a running fake. All methods are safe for concurrent use.
type Server struct {
	o      Options
	url    string
	cipher string
	http   *http.Server
	closed chan struct{}
	served chan error

	mu        sync.Mutex
	campaigns []*Campaign
	links     map[string]*Product // by share code
	linkSeq   int
	tokens    tokens
	rules     []*Rule
	window    []time.Time // calls of the last second
	requests  []Request
}

// Request is one line of the record. It never holds a secret.
type Request struct {
	At   time.Time `json:"at"`
	Call Call      `json:"call"`
	// Campaign and Product are the ids of the path, or the product of a share link.
	Campaign string `json:"campaign,omitempty"`
	Product  string `json:"product,omitempty"`
	// Page is the page token, Items how many products or ids went out.
	Page    string `json:"page,omitempty"`
	Items   int    `json:"items,omitempty"`
	Status  int    `json:"status"`
	Code    int    `json:"code"`
	Problem string `json:"problem,omitempty"`
}

// Call names an endpoint.
type Call string

// The endpoints.
const (
	CallToken     Call = "token"
	CallRefresh   Call = "refresh"
	CallAssets    Call = "assets"
	CallCampaigns Call = "campaigns"
	CallProducts  Call = "products"
	CallLinks     Call = "links"
	CallShare     Call = "share"
	CallUnknown   Call = "unknown"
)

// Start listens and serves until Close.
func Start(o Options) (*Server, error) {
	setDefault(&o.Addr, "127.0.0.1:0")
	setDefault(&o.AppKey, "29a39d")
	setDefault(&o.AppSecret, "e59af819cc")
	setDefault(&o.Market, "ID")
	if o.TokenLife == 0 {
		o.TokenLife = 7 * 24 * time.Hour
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("tiktokfake: %w", err)
	}
	s := &Server{
		o: o, url: "http://" + l.Addr().String(), cipher: "CIPHER+/" + o.Market + "==",
		closed: make(chan struct{}), served: make(chan error, 1), links: map[string]*Product{}, tokens: newTokens(),
	}
	s.http = &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	go func() { s.served <- s.http.Serve(l) }()
	return s, nil
}

func setDefault(v *string, d string) {
	if *v == "" {
		*v = d
	}
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v2/token/get", s.serveToken)
	mux.HandleFunc("/api/v2/token/refresh", s.serveRefresh)
	mux.HandleFunc("/api/v1/share/{code}", s.serveShare)
	mux.HandleFunc("/authorization/202405/category_assets", s.api(CallAssets, http.MethodGet, s.assets))
	mux.HandleFunc("/affiliate_partner/202405/campaigns", s.api(CallCampaigns, http.MethodGet, s.listCampaigns))
	mux.HandleFunc("/affiliate_partner/202405/campaigns/{cid}/products", s.api(CallProducts, http.MethodGet, s.listProducts))
	mux.HandleFunc("/affiliate_partner/202505/campaigns/{cid}/products/promotion_links/generate_batch",
		s.api(CallLinks, http.MethodPost, s.generateLinks))
	mux.HandleFunc("GET /record", s.serveRecord)
	mux.HandleFunc("POST /control", s.serveControl)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		s.answer(w, Request{Call: CallUnknown}, refusal{http.StatusNotFound, 36009009, "Invalid path", 0})
	})
	return mux
}

// URL is the endpoint without a path, for the API and the tokens alike; Addr its
// host and port, where share links are reached.
func (s *Server) URL() string { return s.url }

// Addr is host:port.
func (s *Server) Addr() string { return strings.TrimPrefix(s.url, "http://") }

// AppKey is the key that clients must use.
func (s *Server) AppKey() string { return s.o.AppKey }

// AppSecret is the secret that clients must sign with.
func (s *Server) AppSecret() string { return s.o.AppSecret }

// Close ends all connections, hanging ones too, and the listener.
func (s *Server) Close() error {
	close(s.closed)
	err := s.http.Close()
	if served := <-s.served; served != nil && !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("tiktokfake: close: %w", err)
	}
	return nil
}

// Requests returns the record so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Counts are how many requests of each endpoint came, refused ones too.
func (s *Server) Counts() map[Call]int {
	counts := map[Call]int{}
	for _, r := range s.Requests() {
		counts[r.Call]++
	}
	return counts
}

// Problems are the requests that broke a rule of the platform's: those that a correct
// client never makes.
func (s *Server) Problems() []Request {
	var out []Request
	for _, r := range s.Requests() {
		if r.Problem != "" {
			out = append(out, r)
		}
	}
	return out
}

// Forget empties the record and removes all rules; campaigns, links and tokens stay.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.rules = nil, nil
}

// SetDelay changes how long a call and a share link take.
func (s *Server) SetDelay(call, link time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.Delay, s.o.LinkDelay = call, link
}

// SetQPS changes the limit and what a refusal asks for.
func (s *Server) SetQPS(qps int, retryAfter time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.QPS, s.o.RetryAfter = qps, retryAfter
}

func (s *Server) options() Options {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o
}

func (s *Server) record(r Request) {
	r.At = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
}

// pause waits, but not for a client that is gone nor beyond Close.
func (s *Server) pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-s.closed:
	}
}
