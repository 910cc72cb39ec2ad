package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Kind names a sort of server.
type Kind string

// The servers that testenv knows.
const (
	KindMariaDB Kind = "mariadb"
	KindMySQL   Kind = "mysql"
	KindRedis   Kind = "redis"
	// RocketMQ is two servers.
	KindNameServer Kind = "rocketmq-namesrv"
	KindBroker     Kind = "rocketmq-broker"
)

// Options of a started server. The zero value is right for a test.
type Options struct {
	// Dir holds the server's data, log and socket and is kept by Close. Empty: a
	// new folder that Close removes. A folder with data in it is used as it is.
	Dir string
	// Port is a fixed port, whose being busy is an error. 0: some free port.
	Port int
	// Durable makes every commit reach the disk and, on SQL servers, the binary
	// log, as production does: for the demo and for benchmarks.
	Durable bool
	// Args are appended to the server's command line, where the last one counts.
	Args []string
	// ReadyTimeout bounds each wait for the server to answer. 0: one minute.
	ReadyTimeout time.Duration
	// Version chooses among RocketMQVersions, the first by default. Other servers
	// are of the version that this machine has.
	Version string

	// discard lets Close end the server at once: the folder's owner removes it.
	discard bool
}

const (
	defaultReadyTimeout = time.Minute
	probeInterval       = 10 * time.Millisecond
	probeTimeout        = 2 * time.Second
	portAttempts        = 5
)

var (
	// ErrExternal is returned by the fault verbs of a server that we didn't start.
	ErrExternal = errors.New("testenv: this server was given by the environment; only a server that testenv started can be stopped, killed or frozen: use PrivateMariaDB, PrivateMySQL, PrivateRedis or PrivateRocketMQ")
	// ErrShared is returned by the fault verbs of a server that other tests use.
	ErrShared = errors.New("testenv: other tests of this process use this server too: use PrivateMariaDB, PrivateMySQL, PrivateRedis or PrivateRocketMQ")
	// ErrNotRunning is returned by verbs that need a running server.
	ErrNotRunning = errors.New("testenv: the server is not running")
	// ErrForeign says that somebody else answers at the server's address.
	ErrForeign = errors.New("testenv: another server answers at this address")
)

// engine is what differs between the servers.
type engine struct {
	kind Kind
	// beside are further ports that it takes, as distances from its own.
	beside []int
	// prepare fills a new folder, once.
	prepare func(ctx context.Context, s *Server) error
	// command returns the binary and its argv.
	command func(s *Server) (path string, argv []string, err error)
	// identify returns nil when the child of this pid answers at the address,
	// ErrForeign when somebody else does, any other error when nobody does yet.
	// It must only read.
	identify func(ctx context.Context, s *Server, pid int) error
}

// Server is one server process, or one that the environment named. Its address
// stays the same for its whole life, over Stop, Kill and Restart.
type Server struct {
	engine  engine
	options Options
	dir     string
	temp    *tempDir // nil: the caller named dir
	port    *reservedPort
	addr    string
	refusal error  // what fault verbs return, when they are not allowed
	account string // user[:password] of SQL servers

	mu     sync.Mutex // guards the below; held over whole verbs
	proc   *process   // nil: not started, or stopped
	closed bool
}

// start makes a server of this engine and waits until it answers as ours.
func start(ctx context.Context, e engine, options Options) (*Server, error) {
	var last error
	for range portAttempts {
		s, err := newServer(e, options)
		if err != nil {
			return nil, fmt.Errorf("testenv: start %s: %w", e.kind, err)
		}
		last = s.Start(ctx)
		if last == nil {
			return s, nil
		}
		last = errors.Join(last, s.Close())
		// Someone took the port between our look and the server's bind.
		if options.Port != 0 || ctx.Err() != nil || !isPortConflict(last) {
			break
		}
	}
	return nil, last
}

func newServer(e engine, options Options) (*Server, error) {
	s := &Server{engine: e, options: options, dir: options.Dir, account: "root"}
	if s.options.ReadyTimeout == 0 {
		s.options.ReadyTimeout = defaultReadyTimeout
	}
	var err error
	if options.Port != 0 {
		s.port, err = reserve(options.Port, e.beside...)
	} else {
		s.port, err = reserveAny(e.beside...)
	}
	if err != nil {
		return nil, err
	}
	s.addr = s.port.addr()
	if s.dir == "" {
		if s.temp, err = newTempDir(); err == nil {
			s.dir = s.temp.path
		}
	} else if s.dir, err = filepath.Abs(s.dir); err == nil {
		err = os.MkdirAll(s.dir, 0o700)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the server's folder: %w", err), s.port.release())
	}
	return s, nil
}

// isPortConflict tells a start that another port may cure.
func isPortConflict(err error) bool {
	return errors.Is(err, ErrForeign) || strings.Contains(err.Error(), "already in use")
}

// Kind of the server.
func (s *Server) Kind() Kind { return s.engine.kind }

// Addr is host:port; it never changes.
func (s *Server) Addr() string { return s.addr }

// Dir is the folder that holds the server's data and log.
func (s *Server) Dir() string { return s.dir }

// Log returns the end of the server's log.
func (s *Server) Log() string { return tail(s.logPath()) }

// DSN of a schema in go-sql-driver's form, without parameters: those are the
// opener's business. An empty schema gives the server's own DSN.
func (s *Server) DSN(schema string) string {
	return fmt.Sprintf("%s@tcp(%s)/%s", s.account, s.addr, schema)
}

// Pid of the running server, 0 when it does not run or is not ours.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.exited() {
		return 0
	}
	return s.proc.pid()
}

// Start starts a stopped or killed server on its folder and address and waits
// until it answers.
func (s *Server) Start(ctx context.Context) error {
	if s.refusal != nil {
		return s.refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startLocked(ctx)
}

func (s *Server) startLocked(ctx context.Context) error {
	if s.closed {
		return fmt.Errorf("testenv: start %s: it was closed", s.Kind())
	}
	if s.proc != nil && !s.proc.exited() {
		return fmt.Errorf("testenv: start %s: it runs already, pid %d", s.Kind(), s.proc.pid())
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.ReadyTimeout)
	defer cancel()
	if err := s.engine.prepare(ctx, s); err != nil {
		return fmt.Errorf("testenv: prepare %s: %w", s.Kind(), err)
	}
	path, argv, err := s.engine.command(s)
	if err != nil {
		return err
	}
	proc, err := startProcess(path, slices.Concat(argv, s.options.Args), s.dir, s.logPath())
	if err != nil {
		return fmt.Errorf("testenv: %w", err)
	}
	if err := s.awaitReady(ctx, proc); err != nil {
		err = fmt.Errorf("testenv: %s at %s: %w; its log ends:\n%s", s.Kind(), s.addr, err, s.Log())
		return errors.Join(err, proc.kill())
	}
	s.proc = proc
	return nil
}

// awaitReady polls until the child answers as itself, ends, or ctx does.
func (s *Server) awaitReady(ctx context.Context, proc *process) error {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		probe, cancel := context.WithTimeout(ctx, probeTimeout)
		err := s.engine.identify(probe, s, proc.pid())
		cancel()
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrForeign) {
			return err
		}
		select {
		case <-proc.done:
			return fmt.Errorf("it ended while starting: %w", proc.waitErr)
		case <-ctx.Done():
			return fmt.Errorf("not ready within %v: %w (last answer: %w)", s.options.ReadyTimeout, ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// Stop ends the server politely. Its folder and address stay.
func (s *Server) Stop(ctx context.Context) error {
	return s.fault("stop", func(p *process) error {
		s.proc = nil
		return p.stop(ctx)
	})
}

// Kill ends the server as a power cut of the process would (SIGKILL).
func (s *Server) Kill() error {
	return s.fault("kill", func(p *process) error {
		s.proc = nil
		return p.kill()
	})
}

// Freeze stops the server's clock (SIGSTOP): connections stay open and silent.
func (s *Server) Freeze() error {
	return s.fault("freeze", func(p *process) error { return p.signal(syscall.SIGSTOP) })
}

// Thaw undoes Freeze.
func (s *Server) Thaw() error {
	return s.fault("thaw", func(p *process) error { return p.signal(syscall.SIGCONT) })
}

// Restart stops the server if it runs and starts it on the same folder and
// address.
func (s *Server) Restart(ctx context.Context) error {
	if s.refusal != nil {
		return s.refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		proc := s.proc
		s.proc = nil
		if err := proc.stop(ctx); err != nil {
			return fmt.Errorf("testenv: restart %s: %w", s.Kind(), err)
		}
	}
	return s.startLocked(ctx)
}

func (s *Server) fault(verb string, do func(*process) error) error {
	if s.refusal != nil {
		return s.refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.exited() {
		return fmt.Errorf("%s %s: %w", verb, s.Kind(), ErrNotRunning)
	}
	if err := do(s.proc); err != nil {
		return fmt.Errorf("testenv: %s %s: %w", verb, s.Kind(), err)
	}
	return nil
}

// Close ends the server for good, releases its address and removes its folder
// unless the caller named it. It may be called twice.
func (s *Server) Close() error {
	if errors.Is(s.refusal, ErrExternal) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var stopErr, removeErr error
	if s.proc != nil {
		// The data goes away: killing saves the flush of a polite end.
		if s.temp != nil || s.options.discard {
			stopErr = s.proc.kill()
		} else {
			stopErr = s.proc.stop(context.Background())
		}
		s.proc = nil
	}
	if s.temp != nil {
		removeErr = s.temp.remove()
	}
	return errors.Join(stopErr, s.port.release(), removeErr)
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "server.log") }
