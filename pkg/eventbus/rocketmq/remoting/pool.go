package remoting

import (
	"bufio"
	"context"
	"net"
	"sync"
	"time"
)

const (
	// idlePerAddr: a call takes a connection for itself, so this is how many
	// callers at a time are spared a dial.
	idlePerAddr = 4
	// longestIdle is below the two minutes after which servers close idle peers.
	longestIdle = time.Minute
)

// conn serves one call at a time.
type conn struct {
	net.Conn
	reader     *bufio.Reader
	born, used time.Time
}

// exchange writes the question and reads until its answer. A server may send
// requests of its own in between, which are nothing to us.
func (c *conn) exchange(ctx context.Context, question *Command) (*Command, error) {
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := WriteCommand(c, question); err != nil {
		return nil, err
	}
	for {
		answer, err := ReadCommand(c.reader)
		if err != nil {
			return nil, err
		}
		if answer.Response() && answer.Opaque == question.Opaque {
			return answer, nil
		}
	}
}

// pool keeps idle connections by address.
type pool struct {
	lifetime time.Duration

	mu     sync.Mutex
	idle   map[string][]*conn
	closed bool
}

func newPool(lifetime time.Duration) *pool {
	return &pool{lifetime: lifetime, idle: make(map[string][]*conn)}
}

// take returns an idle connection, or dials.
func (p *pool) take(ctx context.Context, addr string) (c *conn, reused bool, err error) {
	c, err = p.takeIdle(addr)
	if c != nil || err != nil {
		return c, c != nil, err
	}
	dialed, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, false, err
	}
	now := time.Now()
	return &conn{Conn: dialed, reader: bufio.NewReader(dialed), born: now, used: now}, false, nil
}

func (p *pool) takeIdle(addr string) (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	for idle := p.idle[addr]; len(idle) > 0; idle = p.idle[addr] {
		c := idle[len(idle)-1]
		p.idle[addr] = idle[:len(idle)-1]
		if time.Since(c.born) < p.lifetime && time.Since(c.used) < longestIdle {
			return c, nil
		}
		_ = c.Close()
	}
	return nil, nil
}

// put takes a connection back; one that is not clean is closed.
func (p *pool) put(addr string, c *conn, clean bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !clean || p.closed || len(p.idle[addr]) >= idlePerAddr {
		_ = c.Close()
		return
	}
	c.used = time.Now()
	p.idle[addr] = append(p.idle[addr], c)
}

// forget closes what is idle for an address.
func (p *pool) forget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle[addr] {
		_ = c.Close()
	}
	delete(p.idle, addr)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, idle := range p.idle {
		for _, c := range idle {
			_ = c.Close()
		}
	}
	clear(p.idle)
}
