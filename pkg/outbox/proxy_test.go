package outbox_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// commitRequest is a COMMIT as the driver sends it. The word alone also stands in the
// statement that sets READ COMMITTED on each new connection.
const commitRequest = "\x03COMMIT"

// stepProxy forwards TCP to a database. It can hold a relay at a step of its pass, at a
// request that contains a word, before it reaches the server or after, its answer
// unread; and it can change words on their way.
type stepProxy struct {
	addr   string
	target string

	mu      sync.Mutex
	word    string
	after   bool
	reached chan struct{}
	from    []byte
	to      []byte
	conns   []net.Conn
}

func newStepProxy(t testing.TB, target string) *stepProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &stepProxy{addr: listener.Addr().String(), target: target}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.cutAll()
		wg.Wait()
	})
	return p
}

// arm makes the proxy hold the next request with the word.
func (p *stepProxy) arm(word string, after bool) (reached <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.word, p.after, p.reached = word, after, make(chan struct{})
	return p.reached
}

// replace changes a word in requests to another one of the same length, from the next
// connection on; all connections are ended.
func (p *stepProxy) replace(from, to string) {
	p.mu.Lock()
	p.from, p.to = []byte(from), []byte(to)
	p.mu.Unlock()
	p.cutAll()
}

// cutAll ends every connection, the one that is held too.
func (p *stepProxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.word = ""
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// look changes a request and reports whether it is the one to be held.
func (p *stepProxy) look(request []byte) (changed []byte, hold, after bool, reached chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.from) > 0 {
		request = bytes.ReplaceAll(request, p.from, p.to)
	}
	if p.word == "" || !bytes.Contains(request, []byte(p.word)) {
		return request, false, false, nil
	}
	p.word = ""
	return request, true, p.after, p.reached
}

func (p *stepProxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	p.mu.Unlock()
	var muted sync.Mutex // locked for good once an answer must not pass
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { _ = client.Close() }()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			if !muted.TryLock() {
				continue
			}
			_, err = client.Write(buf[:n])
			muted.Unlock()
			if err != nil {
				return
			}
		}
	})
	p.forward(client, server, &muted)
	_ = server.Close()
	wg.Wait()
}

func (p *stepProxy) forward(client, server net.Conn, muted *sync.Mutex) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		request, hold, after, reached := p.look(buf[:n])
		if hold && !after {
			close(reached)
			_, _ = client.Read(buf) // until either side is gone
			return
		}
		if hold {
			muted.Lock()
		}
		if _, err := server.Write(request); err != nil {
			return
		}
		if hold {
			time.Sleep(50 * time.Millisecond) // the server does it
			close(reached)
			_, _ = client.Read(buf)
			return
		}
	}
}
