// Package db opens MySQL and MariaDB the one way that every room relies on.
//
// # Sessions
//
// Each new connection is set up by SET statements before its first use (a DSN
// parameter of one server is unknown to the other): READ COMMITTED, so that a claim
// on an empty queue blocks no INSERT; the app's time zone, so that NOW(3) compares
// with the DATETIME columns that the app writes; strict SQL mode, so that nothing is
// cut silently; and, where asked, timeouts after which the server frees what a frozen
// client holds. WaitReady asserts that the server took them.
//
// # Time
//
// Every comparison uses the database's NOW(3). A time.Time that goes in or comes out
// is in the session's zone, whatever the process's zone is.
//
// # Failing over
//
// Open and OpenSQL never dial: a database that is down at start is waited for. A
// server that turned read-only makes its connections bad, so that the pool finds the
// new primary behind the same name; and no connection is used for longer than a minute,
// since one that only reads would stay with the old server for ever.
package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/rs/zerolog"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// Config is how to reach the database and how to speak to it.
type Config struct {
	DSN         string        `env:"SEAHUB_DB_DSN" key:"seahub.db.dsn" required:"true" secret:"true" help:"user:password@tcp(host:port)/schema; of parameters only tls is taken, the service sets the others"`
	TimeZone    string        `env:"SEAHUB_DB_TIME_ZONE" envDefault:"+00:00" key:"seahub.db.time-zone" help:"session time zone in which the app writes DATETIME columns, as an offset"`
	MaxOpen     int           `env:"SEAHUB_DB_MAX_OPEN" envDefault:"16" key:"seahub.db.max-open" min:"4" max:"1000" help:"most connections of the main pool"`
	DialTimeout time.Duration `env:"SEAHUB_DB_DIAL_TIMEOUT" envDefault:"5s" key:"seahub.db.dial-timeout" min:"100ms" max:"1m" help:"longest wait for a new connection"`
	IOTimeout   time.Duration `env:"SEAHUB_DB_IO_TIMEOUT" envDefault:"30s" key:"seahub.db.io-timeout" min:"1s" max:"10m" help:"longest wait for one answer or one write"`
}

// Validate checks what tags cannot say.
func (c Config) Validate() error {
	var errs []error
	if _, err := zone(c.TimeZone); err != nil {
		errs = append(errs, fmt.Errorf("SEAHUB_DB_TIME_ZONE (seahub.db.time-zone): %w", err))
		c.TimeZone = "+00:00" // so that the address is judged by itself
	}
	if c.DSN != "" {
		if _, err := c.driverConfig(); err != nil {
			errs = append(errs, fmt.Errorf("SEAHUB_DB_DSN (seahub.db.dsn): %w", err))
		}
	}
	return errors.Join(errs...)
}

// zone reads an offset such as +07:00. Names are not taken: a server without loaded
// zone tables would refuse them, and the app's zones have no daylight saving.
func zone(offset string) (*time.Location, error) {
	t, err := time.Parse("-07:00", offset)
	if err != nil {
		return nil, fmt.Errorf("%q is not an offset such as +00:00 or +07:00", offset)
	}
	_, seconds := t.Zone()
	return time.FixedZone(offset, seconds), nil
}

func (c Config) driverConfig() (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(c.DSN)
	if err != nil {
		// The driver's message may quote the DSN with its password.
		return nil, errors.New("not of the form user:password@tcp(host:port)/schema")
	}
	if cfg.DBName == "" {
		return nil, errors.New("names no schema: add /schema at its end")
	}
	if err := checkParameters(c.DSN); err != nil {
		return nil, err
	}
	if cfg.Loc, err = zone(c.TimeZone); err != nil {
		return nil, err
	}
	cfg.ParseTime = true
	cfg.ClientFoundRows = true // a CAS counts the rows that it matched, also when a value stays the same
	cfg.RejectReadOnly = true
	cfg.InterpolateParams = false
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = c.DialTimeout, c.IOTimeout, c.IOTimeout
	cfg.Logger = quiet{}
	return cfg, nil
}

// checkParameters refuses what would change the sessions that every room relies on.
// tls is about the way there and stays the operator's.
func checkParameters(dsn string) error {
	_, query, _ := strings.Cut(dsn[strings.LastIndexByte(dsn, '/'):], "?")
	for parameter := range strings.SplitSeq(query, "&") {
		if name, _, _ := strings.Cut(parameter, "="); name != "" && name != "tls" {
			return fmt.Errorf("parameter %q is not taken, the service sets its own: remove it (tls is allowed)", name)
		}
	}
	return nil
}

// quiet drops the driver's own lines: each of them repeats an error that a caller gets.
type quiet struct{}

func (quiet) Print(...any) {}

// OpenSQL makes a pool with our sessions. It does not dial.
func OpenSQL(c Config, opts ...Option) (*sql.DB, error) {
	cfg, err := c.driverConfig()
	if err != nil {
		return nil, fmt.Errorf("database configuration: %w", err)
	}
	s := settings{maxOpen: c.MaxOpen, zone: c.TimeZone, lifetime: maxLifetime}
	for _, o := range opts {
		o(&s)
	}
	cfg.InterpolateParams = s.interpolate
	base, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("database configuration: %w", err)
	}
	pool := sql.OpenDB(&connector{Connector: base, statements: s.statements()})
	pool.SetMaxOpenConns(s.maxOpen)
	pool.SetMaxIdleConns(s.maxOpen)
	pool.SetConnMaxIdleTime(s.maxIdleTime())
	pool.SetConnMaxLifetime(s.lifetime)
	return pool, nil
}

// Open makes the gorm handle that business code and stores use: no implicit
// transactions, no savepoints, no statement cache, no dialling.
func Open(c Config, opts ...Option) (*gorm.DB, error) {
	pool, err := OpenSQL(c, opts...)
	if err != nil {
		return nil, err
	}
	return Gorm(pool)
}

// Gorm puts gorm on a pool made by OpenSQL.
func Gorm(pool *sql.DB) (*gorm.DB, error) {
	g, err := gorm.Open(gormmysql.New(gormmysql.Config{
		Conn:                      pool,
		SkipInitializeWithVersion: true,
		DisableWithReturning:      true, // MySQL has no RETURNING, and MariaDB is to behave alike
	}), &gorm.Config{
		SkipDefaultTransaction:   true,
		DisableNestedTransaction: true,
		DisableAutomaticPing:     true,
		Logger:                   logger.Discard, // errors are returned; gorm would log statements with their values
	})
	if err != nil {
		return nil, fmt.Errorf("open gorm: %w", err)
	}
	return g, nil
}

// Pool is the *sql.DB under a handle made by Open.
func Pool(g *gorm.DB) (*sql.DB, error) {
	pool, err := g.DB()
	if err != nil {
		return nil, fmt.Errorf("gorm handle without a pool: %w", err)
	}
	return pool, nil
}

// WaitReady returns when the database answers with the session that we ask for, or
// when ctx ends. It logs the first failure and then one line a minute.
func WaitReady(ctx context.Context, pool *sql.DB) error {
	wait := backoff.Policy{Base: 100 * time.Millisecond, Max: 5 * time.Second}
	var lastLog time.Time
	for attempt := 1; ; attempt++ {
		err := checkSession(ctx, pool)
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrSession) {
			return err
		}
		if time.Since(lastLog) > time.Minute {
			lastLog = time.Now()
			zerolog.Ctx(ctx).Warn().Err(err).Msg("database is not reachable yet, waiting for it")
		}
		if !backoff.Sleep(ctx, wait.Delay(attempt)) {
			return fmt.Errorf("waiting for the database: %w (last answer: %w)", ctx.Err(), err)
		}
	}
}
