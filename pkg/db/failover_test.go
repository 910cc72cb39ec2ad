package db_test

import (
	"database/sql"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// name is an address that leads to a server, and later to another one. What was opened
// before stays with the old one.
type name struct {
	addr   string
	target atomic.Value
}

func newName(t *testing.T, target string) *name {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &name{addr: listener.Addr().String()}
	n.target.Store(target)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", n.target.Load().(string))
			if err != nil {
				_ = client.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, client, server)
			mu.Unlock()
			wg.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			wg.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return n
}

// A server is demoted and goes on living, and its name leads to the new primary. Writers
// are there at once. Who only reads meets no error that would tell, and follows all the same.
func TestAPoolFollowsTheNameOfItsServer(t *testing.T) {
	old, primary := testenv.PrivateMariaDB(t), testenv.PrivateMariaDB(t)
	primary.Exec(t, "CREATE DATABASE "+old.Name)
	for _, s := range []*testenv.Schema{old, primary} {
		s.Exec(t, "CREATE TABLE "+old.Name+".x (id INT PRIMARY KEY) ENGINE=InnoDB")
		s.Exec(t, "CREATE USER app@'127.0.0.1' IDENTIFIED BY 'app'") // root may write to a read-only server
		s.Exec(t, "GRANT SELECT, INSERT ON "+old.Name+".* TO app@'127.0.0.1'")
	}
	n := newName(t, old.Server.Addr())
	cfg := config(old)
	cfg.DSN = "app:app@tcp(" + n.addr + ")/" + old.Name
	_, writer := open(t, cfg, db.WithPool(1))
	_, reader := open(t, cfg, db.WithPool(1), db.WithLifetime(200*time.Millisecond))
	_, patient := open(t, cfg, db.WithPool(1))
	for _, p := range []*sql.DB{writer, reader, patient} {
		require.Equal(t, old.Server.Addr(), serverOf(t, p))
	}
	_, err := writer.ExecContext(t.Context(), "INSERT INTO x VALUES (1)")
	require.NoError(t, err)

	n.target.Store(primary.Server.Addr())
	old.Exec(t, "SET GLOBAL read_only = 1")
	_, err = writer.ExecContext(t.Context(), "INSERT INTO x VALUES (2)")
	require.NoError(t, err, "the old server's refusal costs a connection and no statement")
	require.Equal(t, primary.Server.Addr(), serverOf(t, writer))
	testenv.Eventually(t, 10*time.Second, "the reader is there", func() bool {
		return serverOf(t, reader) == primary.Server.Addr()
	})
	require.Equal(t, old.Server.Addr(), serverOf(t, patient), "within the minute it stays, or the others prove nothing")
}

// serverOf is the address of the server that a pool works with.
func serverOf(t *testing.T, pool *sql.DB) string {
	t.Helper()
	var port string
	require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT @@port").Scan(&port))
	return "127.0.0.1:" + port
}
