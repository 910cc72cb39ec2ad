package testenv

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// shared holds the servers that the tests of this process have in common. It is
// the package's one registry: starting a server per test would cost half a
// second each, and TestMain, which must stop them, has no other way to reach
// what tests started.
var shared = &registry{servers: make(map[string]*sharedServer)}

type registry struct {
	mu      sync.Mutex
	open    bool // by Main: otherwise nobody would stop them
	servers map[string]*sharedServer
}

// sharedServer starts once; a failure stays, so that a missing server fails
// every test that needs it at once instead of being searched again.
type sharedServer struct {
	once   sync.Once
	server sharable // nil: it failed
	err    error
}

// sharable is a *Server or a *RocketMQCluster.
type sharable interface{ Close() error }

var errNoMain = errors.New("testenv: nobody would stop the server: " +
	"add `func TestMain(m *testing.M) { testenv.Main(m) }` to this test package")

// get returns the server of this name, which the first caller starts.
func (r *registry) get(name string, start func() (sharable, error)) (sharable, error) {
	r.mu.Lock()
	if !r.open {
		r.mu.Unlock()
		return nil, errNoMain
	}
	entry := r.servers[name]
	if entry == nil {
		entry = &sharedServer{}
		r.servers[name] = entry
	}
	r.mu.Unlock()
	entry.once.Do(func() { entry.server, entry.err = start() })
	return entry.server, entry.err
}

func startShared(ctx context.Context, kind Kind) (sharable, error) {
	server, err := existing(kind)
	if err != nil {
		return nil, err
	}
	if server != nil {
		return server, nil
	}
	server, err = startKind(ctx, kind, Options{})
	if err != nil {
		return nil, err
	}
	server.refusal = ErrShared
	return server, nil
}

func startKind(ctx context.Context, kind Kind, options Options) (*Server, error) {
	switch kind {
	case KindMariaDB:
		return StartMariaDB(ctx, options)
	case KindMySQL:
		return StartMySQL(ctx, options)
	case KindRedis:
		return StartRedis(ctx, options)
	default:
		return nil, fmt.Errorf("testenv: no server of kind %q", kind)
	}
}

func (r *registry) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = true
}

// end stops all shared servers.
func (r *registry) end() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = false
	var errs []error
	for _, entry := range r.servers {
		if entry.server != nil {
			errs = append(errs, entry.server.Close())
		}
	}
	clear(r.servers)
	return errors.Join(errs...)
}
