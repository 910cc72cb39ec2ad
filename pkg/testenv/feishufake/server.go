// Package feishufake is a strict stand-in for a custom bot of Feishu (Lark) over real
// HTTP, and for a plain webhook beside it. Tests and the demo use it in process.
//
// What the real service refuses it refuses with the same code, most of them under HTTP
// 200: a wrong signature or a clock that is more than an hour off, a body above 20 KB,
// more than 5 messages a second or 100 a minute, a card with a property that version
// 2.0 does not know. Only a message that passes all of that meets the programmed
// Behaviour. Everything is recorded.
package feishufake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options say how the fake starts; the zero value is usable.
type Options struct {
	// Addr is where to listen; empty means a free port of 127.0.0.1.
	Addr string
	// Token is the last part of the hook's address; empty means "hook-token".
	Token string
	// Secret is what messages are signed with; empty means that none is checked.
	Secret string
	// PerSecond and PerMinute are the limits; 0 means 5 and 100.
	PerSecond, PerMinute int
	// Clock is the server's; nil means time.Now.
	Clock func() time.Time
}

// Message is one line of the record.
type Message struct {
	At time.Time `json:"at"`
	// Plain says that it came to the plain webhook and not to the bot.
	Plain bool `json:"plain,omitempty"`
	// Type is the msg_type, Title the card's title, Text everything a person would read;
	// Mentions says that people would be called by it.
	Type  string `json:"type"`
	Title string `json:"title,omitempty"`
	Text  string `json:"text"`
	Body  string `json:"body"`

	Mentions bool `json:"mentions,omitempty"`
	// Verdict is the behaviour that answered, or why the message was refused before.
	Verdict string `json:"verdict"`
	Code    int    `json:"code"`
	// Shown says that people see the message, whatever the sender was told.
	Shown bool `json:"shown"`
}

// Server is a running fake. All methods are safe for concurrent use.
type Server struct {
	o      Options
	url    string
	http   *http.Server
	served chan error

	mu       sync.Mutex
	program  []Behaviour
	taken    []time.Time // of the last minute
	messages []Message
}

// Start listens and serves until Close.
func Start(o Options) (*Server, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Token == "" {
		o.Token = "hook-token"
	}
	if o.PerSecond == 0 {
		o.PerSecond = 5
	}
	if o.PerMinute == 0 {
		o.PerMinute = 100
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("feishufake: %w", err)
	}
	s := &Server{o: o, url: "http://" + l.Addr().String(), served: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /open-apis/bot/v2/hook/{token}", s.serveHook)
	mux.HandleFunc("POST /plain", s.servePlain)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { s.served <- s.http.Serve(l) }()
	return s, nil
}

// Hook is the bot's address, Plain that of the plain webhook.
func (s *Server) Hook() string { return s.url + "/open-apis/bot/v2/hook/" + s.o.Token }

// Plain is the address of the plain webhook, which takes any JSON object.
func (s *Server) Plain() string { return s.url + "/plain" }

// Secret is what the bot's messages are to be signed with.
func (s *Server) Secret() string { return s.o.Secret }

// Close ends all connections and the listener.
func (s *Server) Close() error {
	err := s.http.Close()
	if served := <-s.served; served != nil && !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("feishufake: close: %w", err)
	}
	return nil
}

// Messages returns the whole record so far.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Message(nil), s.messages...)
}

// Shown returns the messages that people see in the bot's chat and that contain all of
// parts.
func (s *Server) Shown(parts ...string) []Message {
	var out []Message
	for _, m := range s.Messages() {
		ok := m.Shown && !m.Plain
		for _, part := range parts {
			ok = ok && (strings.Contains(m.Title, part) || strings.Contains(m.Text, part))
		}
		if ok {
			out = append(out, m)
		}
	}
	return out
}

// Reset forgets the record, the limits' memory and all programmed behaviour.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages, s.program, s.taken = nil, nil, nil
}

func (s *Server) record(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.At = s.o.Clock()
	s.messages = append(s.messages, m)
}

func (s *Server) servePlain(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.record(Message{Plain: true, Type: "plain", Text: string(body), Body: string(body), Verdict: "ok", Shown: true})
	w.WriteHeader(http.StatusNoContent)
}
