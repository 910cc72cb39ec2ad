package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrSession: the server answers but did not take the session settings.
var ErrSession = errors.New("database session is not as required")

// isolation is asserted by checkSession.
const isolation = "READ-COMMITTED"

// sqlMode is MySQL 8's default, which MariaDB lacks in parts.
const sqlMode = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

// maxLifetime is after what time a connection is replaced, so that whatever the
// server's name leads to by then is found.
const maxLifetime = time.Minute

type settings struct {
	maxOpen     int
	lifetime    time.Duration
	zone        string
	interpolate bool
	wait        time.Duration
	netRead     time.Duration
	netWrite    time.Duration
}

// Option changes one pool.
type Option func(*settings)

// WithPool sets the most connections of the pool, all of which may stay idle.
func WithPool(maxOpen int) Option { return func(s *settings) { s.maxOpen = maxOpen } }

// WithInterpolation lets the client put parameters into statements: one round trip
// instead of two for a statement that is not prepared.
func WithInterpolation() Option { return func(s *settings) { s.interpolate = true } }

// WithSessionTimeouts makes the server end a session whose client is silent: wait
// between statements, netRead while it sends one, netWrite while it should read an
// answer. Row locks of a frozen process come free after the longest of them.
// Whole seconds, at least 1 s each.
func WithSessionTimeouts(wait, netRead, netWrite time.Duration) Option {
	return func(s *settings) { s.wait, s.netRead, s.netWrite = wait, netRead, netWrite }
}

func (s settings) statements() []string {
	set := []string{
		"time_zone = '" + s.zone + "'", // validated as an offset
		"sql_mode = '" + sqlMode + "'",
	}
	for _, t := range []struct {
		name string
		d    time.Duration
	}{{"wait_timeout", s.wait}, {"net_read_timeout", s.netRead}, {"net_write_timeout", s.netWrite}} {
		if t.d > 0 {
			set = append(set, fmt.Sprintf("%s = %d", t.name, max(1, int(t.d/time.Second))))
		}
	}
	return []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"SET SESSION " + strings.Join(set, ", SESSION "),
	}
}

// maxIdleTime keeps idle connections below the server's wait_timeout, which would
// end them under the pool's feet.
func (s settings) maxIdleTime() time.Duration {
	if s.wait > 0 {
		return s.wait / 2
	}
	return 5 * time.Minute
}

// connector runs the session statements on each new connection.
type connector struct {
	driver.Connector
	statements []string
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	execer, ok := conn.(driver.ExecerContext)
	if !ok {
		_ = conn.Close()
		return nil, errors.New("database driver cannot execute statements on a new connection")
	}
	for _, stmt := range c.statements {
		if _, err := execer.ExecContext(ctx, stmt, nil); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("set up session (%s): %w", stmt, err)
		}
	}
	return conn, nil
}

// checkSession asks one connection what it got.
func checkSession(ctx context.Context, pool *sql.DB) error {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close() }()
	level, err := isolationLevel(ctx, conn)
	if err != nil {
		return err
	}
	if level != isolation {
		return fmt.Errorf("%w: isolation level is %s, not %s; a proxy between here and the server may ignore SET SESSION", ErrSession, level, isolation)
	}
	return nil
}

func isolationLevel(ctx context.Context, conn *sql.Conn) (string, error) {
	var level string
	// MySQL 8 knows only the first name, MariaDB before 11.1 only the second.
	err := conn.QueryRowContext(ctx, "SELECT @@SESSION.transaction_isolation").Scan(&level)
	if code(err) == errUnknownSystemVariable {
		err = conn.QueryRowContext(ctx, "SELECT @@SESSION.tx_isolation").Scan(&level)
	}
	if err != nil {
		return "", fmt.Errorf("read the session's isolation level: %w", err)
	}
	return level, nil
}
