package stack

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

// Env and Country of every stack.
const (
	Env     = "id-test"
	Country = "id"
)

// schema is the app's database in the private server.
const schema = "app"

// Options of a stack. Dir is required.
type Options struct {
	// Dir holds logs, key files and, until Close, the servers' data.
	Dir string
	// Root is the checkout; empty: the one around the working directory.
	Root string
	// Binaries, when given, are used instead of building (by service name).
	Binaries map[string]string
	// Race builds the services with the race detector.
	Race bool
	// Ports are fixed ones; a busy one is an error. 0: some free port.
	Ports Ports
	// Provider is the broker: RedisStreams (also when empty) or RocketMQ.
	Provider string
	// Durable makes the servers write as production's do.
	Durable bool
	// TimeZone is the app's session zone; empty: +00:00.
	TimeZone string
	// SeedTable creates outbox_event as the app's own DDL does, before migrating.
	SeedTable string
	// TikTok says how the fake of TikTok behaves.
	TikTok tiktokfake.Options
	// Progress, when not nil, is told each step.
	Progress func(step string)
}

// Ports of the servers and the fake.
type Ports struct{ MariaDB, Redis, FCM int }

// Stack is a running system without its services, which StartService adds. Env are
// the variables that every service gets; change it before starting them.
type Stack struct {
	MariaDB *testenv.Server
	// Redis is nil on RocketMQ, RocketMQ on Redis; Broker is the one that there is.
	Redis    *testenv.Server
	RocketMQ *testenv.RocketMQCluster
	Broker   *testenv.Server
	FCM      *fcmfake.Server
	TikTok   *tiktokfake.Server
	// DB is a handle on the app's schema with the session of Options.TimeZone.
	DB  *sql.DB
	DSN string
	Env map[string]string

	dir, logs string
	binaries  map[string]string
	closers   []func() error

	mu       sync.Mutex
	services []*Service
}

// Start builds the services, starts the servers and fakes and migrates the schema.
// On an error everything that was started is stopped again.
func Start(ctx context.Context, o Options) (_ *Stack, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.TimeZone == "" {
		o.TimeZone = "+00:00"
	}
	s := &Stack{dir: o.Dir, logs: filepath.Join(o.Dir, "logs"), binaries: o.Binaries}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	if err := os.MkdirAll(s.logs, 0o755); err != nil {
		return nil, fmt.Errorf("make the stack's folder: %w", err)
	}
	if s.binaries == nil {
		if err := s.build(ctx, o); err != nil {
			return nil, err
		}
	}
	o.Progress("starting MariaDB, " + brokerName(o.Provider) + " and the fakes of FCM and TikTok")
	if err := s.startServers(ctx, o); err != nil {
		return nil, err
	}
	o.Progress("creating the app's tables and migrating")
	if err := s.prepareSchema(ctx, o); err != nil {
		return nil, err
	}
	s.Env = s.serviceEnv(o)
	if err := s.prepareBroker(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Stack) build(ctx context.Context, o Options) error {
	root := o.Root
	if root == "" {
		var err error
		if root, err = Root(); err != nil {
			return err
		}
	}
	o.Progress("building the services")
	var err error
	s.binaries, err = Build(ctx, root, filepath.Join(o.Dir, "bin"), o.Race, Services()...)
	return err
}

func (s *Stack) startServers(ctx context.Context, o Options) error {
	// A socket's path is limited to 107 bytes, which a checkout's folder may exceed;
	// the server takes a relative one as seen from its data folder.
	mariadb, err := s.serverOptions("mariadb", o.Ports.MariaDB, o.Durable, "--socket=../s.sock")
	if err != nil {
		return err
	}
	if s.MariaDB, err = testenv.StartMariaDB(ctx, mariadb); err != nil {
		return err
	}
	s.closers = append(s.closers, s.MariaDB.Close)
	if err := s.startBroker(ctx, o); err != nil {
		return err
	}
	if err := s.startFCM(o); err != nil {
		return err
	}
	return s.startTikTok(o)
}

// serverOptions gives a server an empty folder of the stack's, which goes with Close.
func (s *Stack) serverOptions(name string, port int, durable bool, args ...string) (testenv.Options, error) {
	dir := filepath.Join(s.dir, name)
	remove := func() error { return os.RemoveAll(dir) }
	if err := remove(); err != nil {
		return testenv.Options{}, fmt.Errorf("clear the folder of %s: %w", name, err)
	}
	s.closers = append(s.closers, remove)
	return testenv.Options{Dir: dir, Port: port, Durable: durable, Args: args}, nil
}

// prepareSchema does what a deployment does: the app's tables exist, then `migrate`.
func (s *Stack) prepareSchema(ctx context.Context, o Options) error {
	admin, err := sql.Open("mysql", s.MariaDB.DSN(""))
	if err != nil {
		return fmt.Errorf("connect to MariaDB: %w", err)
	}
	defer func() { _ = admin.Close() }()
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+schema+" CHARACTER SET utf8mb4"); err != nil {
		return fmt.Errorf("create schema %s: %w", schema, err)
	}
	s.DSN = s.MariaDB.DSN(schema)
	s.DB, err = db.OpenSQL(db.Config{DSN: s.DSN, TimeZone: o.TimeZone, MaxOpen: 16, DialTimeout: 5 * time.Second, IOTimeout: 30 * time.Second})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, s.DB.Close)
	statements := testenv.AppSQL()
	if o.SeedTable != "" {
		statements = append(statements, o.SeedTable)
	}
	for _, statement := range statements {
		if _, err := s.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create the app's tables: %w", err)
		}
	}
	if _, err = migrations.Up(ctx, s.DB); err != nil {
		return err
	}
	return s.authoriseTikTok(ctx)
}

// serviceEnv is the configuration that all services of the stack share.
func (s *Stack) serviceEnv(o Options) map[string]string {
	env := map[string]string{
		"SEAHUB_ENV":          Env,
		"SEAHUB_COUNTRY":      Country,
		"SEAHUB_DB_DSN":       s.DSN,
		"SEAHUB_DB_TIME_ZONE": o.TimeZone,
	}
	maps.Copy(env, s.brokerEnv())
	maps.Copy(env, s.fcmEnv())
	maps.Copy(env, s.tiktokEnv())
	return env
}

func (s *Stack) track(svc *Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services = append(s.services, svc)
}

// Services returns those that were started and have not ended.
func (s *Stack) Services() []*Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	var running []*Service
	for _, svc := range s.services {
		select {
		case <-svc.Done():
		default:
			running = append(running, svc)
		}
	}
	return running
}

// Close stops the services politely, all at once, then the servers. It returns when
// nothing of the stack runs any more.
func (s *Stack) Close(ctx context.Context) error {
	s.mu.Lock()
	services := s.services
	s.services = nil
	s.mu.Unlock()
	errs := make([]error, len(services))
	var wg sync.WaitGroup
	for i, svc := range services {
		wg.Go(func() {
			if err := svc.Stop(ctx); err != nil {
				errs[i] = fmt.Errorf("stop %s: %w", svc.Name, err)
			}
		})
	}
	wg.Wait()
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}
