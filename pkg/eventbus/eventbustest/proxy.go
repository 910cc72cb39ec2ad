package eventbustest

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy is a Link over TCP: it forwards connections to a broker until it is told
// otherwise.
type Proxy struct {
	target   string
	addr     string
	listener net.Listener
	loops    sync.WaitGroup

	mu      sync.Mutex
	mode    mode
	conns   map[net.Conn]struct{}
	resumed chan struct{} // closed when a stall ends
	closed  bool
}

type mode int

const (
	forwarding mode = iota
	cut
	stalled
)

// NewProxy starts a proxy to target that ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the proxy: %v", err)
	}
	p := &Proxy{target: target, addr: l.Addr().String(), listener: l, conns: map[net.Conn]struct{}{}}
	p.loops.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is what clients dial instead of the broker.
func (p *Proxy) Addr() string { return p.addr }

// Drop implements Link.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked()
}

// Cut implements Link. Connections are accepted and reset at once: giving up the port
// could give it to someone else.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLocked(cut)
	p.dropLocked()
}

// Stall implements Link.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLocked(stalled)
}

// Restore implements Link.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLocked(forwarding)
}

func (p *Proxy) setLocked(m mode) {
	if p.mode == stalled && m != stalled {
		close(p.resumed)
	}
	if m == stalled && p.mode != stalled {
		p.resumed = make(chan struct{})
	}
	p.mode = m
}

func (p *Proxy) dropLocked() {
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, as a crashed peer's kernel sends it
		}
		_ = c.Close()
	}
	clear(p.conns)
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.setLocked(cut)
	p.dropLocked()
	p.mu.Unlock()
	_ = p.listener.Close()
	p.loops.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.loops.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if !p.enter(client) {
		return
	}
	defer p.leave(client)
	p.waitStall()
	broker, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	if !p.enter(broker) {
		return
	}
	defer p.leave(broker)
	var back sync.WaitGroup
	back.Go(func() {
		p.copy(client, broker)
		_ = client.Close()
	})
	p.copy(broker, client)
	_ = broker.Close()
	back.Wait()
}

// enter takes a connection into the books, or closes it when there is to be none.
func (p *Proxy) enter(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.mode == cut {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) leave(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

func (p *Proxy) copy(dst io.Writer, src io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		p.waitStall()
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// waitStall returns when nothing is stalled.
func (p *Proxy) waitStall() {
	for {
		p.mu.Lock()
		resumed, waiting := p.resumed, p.mode == stalled
		p.mu.Unlock()
		if !waiting {
			return
		}
		<-resumed
	}
}
