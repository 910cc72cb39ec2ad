package testenv

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// schemaTimeout bounds one statement of the test's own handle.
	schemaTimeout = 30 * time.Second
	// dropTimeout is shorter: a schema that cannot be dropped is held by a
	// transaction that the test forgot, and waiting does not end it.
	dropTimeout = 10 * time.Second
)

// Schema is an empty schema of a test's own. The server's schemas are separate,
// the server's load and its global settings are not.
type Schema struct {
	Name string
	// DSN is user[:password]@tcp(host:port)/name, without parameters.
	DSN    string
	Kind   Kind
	Server *Server
	// DB is the test's own handle, with times parsed as UTC; the code under test
	// opens its own by DSN.
	DB *sql.DB
}

// MariaDB gives the test an empty schema on the MariaDB of this test process.
func MariaDB(t testing.TB) *Schema {
	t.Helper()
	return NewSchema(t, sharedOf(t, KindMariaDB))
}

// MySQL gives the test an empty schema on the MySQL of this test process.
func MySQL(t testing.TB) *Schema {
	t.Helper()
	return NewSchema(t, sharedOf(t, KindMySQL))
}

// SQLServers runs a test on both servers: the Debian one that everybody has and
// the one that production runs. Their locking and DDL differ.
func SQLServers(t *testing.T, test func(t *testing.T, s *Schema)) {
	t.Helper()
	for _, kind := range []Kind{KindMariaDB, KindMySQL} {
		t.Run(string(kind), func(t *testing.T) {
			test(t, NewSchema(t, sharedOf(t, kind)))
		})
	}
}

// PrivateMariaDB starts a MariaDB for this test alone, to be faulted by
// Schema.Server.
func PrivateMariaDB(t testing.TB, options ...Options) *Schema {
	t.Helper()
	return NewSchema(t, private(t, KindMariaDB, options))
}

// PrivateMySQL is PrivateMariaDB for MySQL.
func PrivateMySQL(t testing.TB, options ...Options) *Schema {
	t.Helper()
	return NewSchema(t, private(t, KindMySQL, options))
}

// NewSchema makes an empty schema on a server and drops it after the test.
func NewSchema(t testing.TB, server *Server) *Schema {
	t.Helper()
	name := uniqueName(t.Name())
	admin := openSQL(t, server, "")
	execBounded(t, admin, schemaTimeout, "CREATE DATABASE "+name)
	t.Cleanup(func() {
		// A private server goes away with its folder, and may be down by now.
		if server.refusal != nil {
			execBounded(t, admin, dropTimeout, "DROP DATABASE "+name)
		}
		_ = admin.Close()
	})
	s := &Schema{
		Name: name, DSN: server.DSN(name), Kind: server.Kind(), Server: server,
		DB: openSQL(t, server, name),
	}
	t.Cleanup(func() { _ = s.DB.Close() })
	return s
}

// Exec runs one statement or fails the test.
func (s *Schema) Exec(t testing.TB, statement string, args ...any) sql.Result {
	t.Helper()
	return execBounded(t, s.DB, schemaTimeout, statement, args...)
}

// QueryInt returns the single integer that a query selects.
func (s *Schema) QueryInt(t testing.TB, query string, args ...any) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), schemaTimeout)
	defer cancel()
	var value int64
	if err := s.DB.QueryRowContext(ctx, query, args...).Scan(&value); err != nil {
		t.Fatalf("testenv: %s: %v", query, err)
	}
	return value
}

func sharedOf(t testing.TB, kind Kind) *Server {
	t.Helper()
	// Not the test's context: the server outlives the test that needs it first.
	server, err := shared.get(string(kind), func() (sharable, error) {
		return startShared(context.Background(), kind)
	})
	if err != nil {
		t.Fatal(err)
	}
	return server.(*Server)
}

func private(t testing.TB, kind Kind, options []Options) *Server {
	t.Helper()
	var o Options
	if len(options) > 0 {
		o = options[0]
	}
	server, err := startKind(t.Context(), kind, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s at %s: its log ends:\n%s", kind, server.Addr(), server.Log())
		}
		if err := server.Close(); err != nil {
			t.Errorf("testenv: close %s: %v", kind, err)
		}
	})
	return server
}

func openSQL(t testing.TB, server *Server, schema string) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(server.DSN(schema))
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	config.ParseTime = true
	config.Timeout = 5 * time.Second
	config.Logger = &mysql.NopLogger{} // faulted servers break connections, as meant
	config.Params = map[string]string{"time_zone": "'+00:00'"}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	db := sql.OpenDB(connector)
	// An idle connection would keep a killed server's address half open.
	db.SetMaxIdleConns(2)
	return db
}

func execBounded(t testing.TB, db *sql.DB, bound time.Duration, statement string, args ...any) sql.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	result, err := db.ExecContext(ctx, statement, args...)
	if err != nil {
		t.Fatalf("testenv: %s: %v", statement, err)
	}
	return result
}

// uniqueName is a schema or key name that tells the test and is used once.
func uniqueName(test string) string {
	const longest = 40
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + ('a' - 'A')
		default:
			return '_'
		}
	}, test)
	if len(clean) > longest {
		clean = clean[:longest]
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // documented never to fail
	return fmt.Sprintf("t_%s_%s", clean, hex.EncodeToString(random[:]))
}
