// Package rmqfake imitates a RocketMQ name server and broker for what a real one
// does not do on command: flow control, a busy broker, a disk or replica that has
// not confirmed, silence, a broken connection, a group without members.
// Everything else is tested on the real broker that testenv starts.
//
// It speaks the protocol of package remoting well enough for the Go client to send
// and consume: name server and broker listen at two addresses, so that one may fail
// alone; topics are given at the start, %RETRY% and %DLQ% topics exist for every
// group. It is strict where a broker is: a topic must exist, sizes are checked,
// requests must be signed if there is an account. It keeps messages in memory, does
// not filter by tag (the client does that once more anyway) and delays no retry.
package rmqfake

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

// Options of a fake.
type Options struct {
	// Topics have this many queues.
	Topics map[string]int
	// Account must have signed every request to the broker; the zero value takes all.
	Account remoting.Account
}

// Server is a running fake. It is safe for concurrent use.
type Server struct {
	account   remoting.Account
	listeners [2]net.Listener // name server, broker
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	running   sync.WaitGroup

	mu      sync.Mutex
	program map[int]*Behaviour
	seen    map[int]int
	conns   map[*conn]bool
	broker  string // what the name server says where the broker is
	state
}

// conn is one client. Requests of one connection are answered side by side, since
// a pull is held until there is something to give.
type conn struct {
	net.Conn
	write sync.Mutex
}

// Start starts a fake on free ports. The caller closes it.
func Start(o Options) (*Server, error) {
	s := &Server{
		account: o.Account, program: make(map[int]*Behaviour), seen: make(map[int]int),
		conns: make(map[*conn]bool), state: newState(o.Topics),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for i := range s.listeners {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(fmt.Errorf("rmqfake: %w", err), s.Close())
		}
		s.listeners[i] = listener
		s.running.Go(func() { s.accept(listener) })
	}
	s.Advertise(s.BrokerAddr())
	return s, nil
}

// Addr is host:port of the name server.
func (s *Server) Addr() string { return s.listeners[0].Addr().String() }

// BrokerAddr is host:port of the broker.
func (s *Server) BrokerAddr() string { return s.listeners[1].Addr().String() }

// Advertise changes what the name server says where the broker is: clients that ask
// from now on dial that address.
func (s *Server) Advertise(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broker = addr
}

// Close ends the fake and waits for all that it started.
func (s *Server) Close() error {
	s.cancel()
	var errs []error
	for _, listener := range s.listeners {
		if listener != nil {
			if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				errs = append(errs, fmt.Errorf("rmqfake: close: %w", err))
			}
		}
	}
	s.DropConnections()
	s.running.Wait()
	return errors.Join(errs...)
}

// DropConnections closes all connections, as a restart does.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

func (s *Server) accept(listener net.Listener) {
	for {
		accepted, err := listener.Accept()
		if err != nil {
			return // closed
		}
		c := &conn{Conn: accepted}
		s.mu.Lock()
		s.conns[c] = true
		if s.ctx.Err() != nil { // after Close dropped the others
			_ = c.Close()
		}
		s.mu.Unlock()
		s.running.Go(func() { s.serve(c) })
	}
}

func (s *Server) serve(c *conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
		s.leave(c)
	}()
	reader := bufio.NewReader(c)
	for {
		question, err := remoting.ReadCommand(reader)
		if err != nil {
			return
		}
		s.running.Go(func() { s.handle(c, question) })
	}
}

// handle carries out one request as its behaviour says.
func (s *Server) handle(c *conn, question *remoting.Command) {
	b := s.take(question.Code)
	if !s.wait(b.Delay) {
		return
	}
	var answer *remoting.Command
	if b.usual() || b.Carried {
		answer = s.answer(c, question)
	}
	switch {
	case b.Drop:
		_ = c.Close()
		return
	case b.Silent, question.OneWay():
		return
	case b.Code != 0:
		fields := map[string]string{}
		if answer != nil {
			fields = answer.Fields
		}
		answer = question.Reply(b.Code, b.Remark)
		answer.Fields = fields
	}
	if answer == nil {
		return // closed meanwhile
	}
	c.write.Lock()
	defer c.write.Unlock()
	_ = remoting.WriteCommand(c, answer) // a client that left needs no answer
}

// wait returns false when the fake was closed before the time was over.
func (s *Server) wait(d time.Duration) bool {
	if d <= 0 {
		return s.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}
