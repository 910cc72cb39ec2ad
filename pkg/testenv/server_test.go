package testenv_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

const (
	bound   = 20 * time.Second
	quickly = 500 * time.Millisecond
	forever = time.Hour
)

type starter func(context.Context, testenv.Options) (*testenv.Server, error)

func starters() map[testenv.Kind]starter {
	return map[testenv.Kind]starter{
		testenv.KindMariaDB: testenv.StartMariaDB,
		testenv.KindMySQL:   testenv.StartMySQL,
		testenv.KindRedis:   testenv.StartRedis,
	}
}

func forEachKind(t *testing.T, test func(t *testing.T, start starter)) {
	for kind, start := range starters() {
		t.Run(string(kind), func(t *testing.T) { test(t, start) })
	}
}

// running tells whether a process lives; a dead one that its parent has not
// reaped yet does not.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestAServerLeavesNothingBehind(t *testing.T) {
	forEachKind(t, func(t *testing.T, start starter) {
		server, err := start(t.Context(), testenv.Options{})
		require.NoError(t, err)
		pid := server.Pid()
		require.True(t, running(pid))
		require.DirExists(t, server.Dir())

		require.NoError(t, server.Close())
		require.False(t, running(pid))
		require.NoDirExists(t, server.Dir())
		_, err = net.DialTimeout("tcp", server.Addr(), quickly)
		require.Error(t, err)
		require.NoError(t, server.Close(), "closing twice")
		require.Error(t, server.Start(t.Context()), "starting after Close")
	})
}

func TestAFolderOfTheCallersIsKept(t *testing.T) {
	forEachKind(t, func(t *testing.T, start starter) {
		options := testenv.Options{Dir: t.TempDir()}
		server, err := start(t.Context(), options)
		require.NoError(t, err)
		require.NoError(t, server.Close())

		again, err := start(t.Context(), options)
		require.NoError(t, err)
		require.NoError(t, again.Close())
		require.DirExists(t, options.Dir)
	})
}

func TestSQLServerKeepsItsAddressAndData(t *testing.T) {
	private := map[testenv.Kind]func(testing.TB, ...testenv.Options) *testenv.Schema{
		testenv.KindMariaDB: testenv.PrivateMariaDB,
		testenv.KindMySQL:   testenv.PrivateMySQL,
	}
	for kind, open := range private {
		t.Run(string(kind), func(t *testing.T) {
			s := open(t)
			s.Exec(t, "CREATE TABLE kept (n INT PRIMARY KEY)")
			ways := map[string]func() error{
				"restart": func() error { return s.Server.Restart(t.Context()) },
				"stop": func() error {
					require.NoError(t, s.Server.Stop(t.Context()))
					require.Zero(t, s.Server.Pid())
					return s.Server.Start(t.Context())
				},
				"kill": func() error {
					require.NoError(t, s.Server.Kill())
					require.ErrorIs(t, s.Server.Thaw(), testenv.ErrNotRunning)
					return s.Server.Restart(t.Context())
				},
			}
			rows := int64(0)
			for name, cycle := range ways {
				rows++
				s.Exec(t, "INSERT INTO kept VALUES (?)", rows)
				before := s.Server.Pid()
				require.NoError(t, cycle(), name)
				require.NotEqual(t, before, s.Server.Pid(), name)
				require.Equal(t, rows, s.QueryInt(t, "SELECT COUNT(*) FROM kept"), name)
			}
			require.Error(t, s.Server.Start(t.Context()), "starting while it runs")
		})
	}
}

func TestRedisKeepsItsAddressAndData(t *testing.T) {
	redis := testenv.PrivateRedis(t)
	client := redis.Client(t)
	require.NoError(t, client.Set(t.Context(), "kept", "value", 0).Err())
	require.NoError(t, redis.Server.Kill())
	require.NoError(t, redis.Server.Start(t.Context()))
	require.NoError(t, redis.Server.Restart(t.Context()))
	require.Equal(t, "value", client.Get(t.Context(), "kept").Val())
}

func TestAFrozenServerIsSilentAndThaws(t *testing.T) {
	s := testenv.PrivateMariaDB(t)
	require.NoError(t, s.Server.Freeze())
	short, cancel := context.WithTimeout(t.Context(), quickly)
	defer cancel()
	require.ErrorIs(t, s.DB.PingContext(short), context.DeadlineExceeded)
	require.NoError(t, s.Server.Thaw())
	require.EqualValues(t, 1, s.QueryInt(t, "SELECT 1"))

	require.NoError(t, s.Server.Freeze())
	require.NoError(t, s.Server.Stop(t.Context()), "a frozen server stops too")
}

func TestADurableServerWritesItsLog(t *testing.T) {
	for _, open := range []func(testing.TB, ...testenv.Options) *testenv.Schema{
		testenv.PrivateMariaDB, testenv.PrivateMySQL,
	} {
		s := open(t, testenv.Options{Durable: true})
		require.EqualValues(t, 1, s.QueryInt(t,
			"SELECT @@log_bin = 1 AND @@sync_binlog = 1 AND @@innodb_flush_log_at_trx_commit = 1 AND @@global.binlog_format = 'ROW'"), s.Kind)
	}
}

func TestASharedServerCanNotBeFaulted(t *testing.T) {
	server := testenv.Redis(t).Server
	require.ErrorIs(t, server.Kill(), testenv.ErrShared)
	require.ErrorIs(t, server.Stop(t.Context()), testenv.ErrShared)
	require.ErrorIs(t, server.Freeze(), testenv.ErrShared)
	require.ErrorIs(t, server.Restart(t.Context()), testenv.ErrShared)
	require.NotZero(t, server.Pid())
}

// Somebody else's server took the address while ours was down: ours must not be
// reported as started, or the test would write into theirs.
func TestAnotherServerAtTheAddressIsRefused(t *testing.T) {
	tests := map[testenv.Kind]string{
		testenv.KindMariaDB: testenv.MariaDB(t).Server.Addr(),
		testenv.KindMySQL:   testenv.MySQL(t).Server.Addr(),
		testenv.KindRedis:   testenv.Redis(t).Addr,
	}
	for kind, foreign := range tests {
		t.Run(string(kind), func(t *testing.T) {
			server, err := starters()[kind](t.Context(), testenv.Options{})
			require.NoError(t, err)
			defer server.Close()
			require.NoError(t, server.Stop(t.Context()))
			stopForeign := forward(t, server.Addr(), foreign)

			require.ErrorIs(t, server.Start(t.Context()), testenv.ErrForeign)
			require.Zero(t, server.Pid())

			stopForeign()
			require.NoError(t, server.Start(t.Context()), "the address is free again")
		})
	}
}

// forward makes a foreign server answer at addr.
func forward(t *testing.T, addr, to string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go pipe(conn, to)
		}
	}()
	return func() {
		require.NoError(t, listener.Close())
		<-done
	}
}

func pipe(conn net.Conn, to string) {
	defer conn.Close()
	upstream, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(upstream, conn)
		_ = upstream.Close()
	}()
	_, _ = io.Copy(conn, upstream)
}

func TestABusyPort(t *testing.T) {
	redis := testenv.Redis(t)
	_, text, err := net.SplitHostPort(redis.Addr)
	require.NoError(t, err)
	var port int
	_, err = fmt.Sscan(text, &port)
	require.NoError(t, err)
	_, err = testenv.StartRedis(t.Context(), testenv.Options{Port: port})
	require.ErrorContains(t, err, fmt.Sprintf("port %d", port))
}

func TestAServerThatFailsShowsItsLog(t *testing.T) {
	_, err := testenv.StartRedis(t.Context(), testenv.Options{Args: []string{"--no-such-setting", "1"}})
	require.ErrorContains(t, err, "no-such-setting")
	require.ErrorContains(t, err, "ended while starting")

	_, err = testenv.StartMariaDB(t.Context(), testenv.Options{Args: []string{"--no-such-setting"}})
	require.ErrorContains(t, err, "no-such-setting")
}

func TestAServerThatNeverAnswersIsGivenUp(t *testing.T) {
	// It listens elsewhere than where we look.
	_, err := testenv.StartRedis(t.Context(), testenv.Options{
		Args: []string{"--port", "0", "--unixsocket", "elsewhere.sock"}, ReadyTimeout: quickly,
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "not ready within")
}

func TestAMissingServerIsNamedWithTheWayOut(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("SEAHUB_TEST_CACHE_DIR", t.TempDir())
	for kind, want := range map[testenv.Kind]string{
		testenv.KindMySQL: "MySQL is not on this machine (package mysql-server-core",
		testenv.KindRedis: "Redis is not on this machine (package redis-tools)",
	} {
		_, err := starters()[kind](t.Context(), testenv.Options{})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "make deps")
	}
}

// ownServersUntilKilled is the part of a test process that dies without cleaning
// up.
func ownServersUntilKilled() {
	for _, start := range []starter{testenv.StartMariaDB, testenv.StartRedis} {
		server, err := start(context.Background(), testenv.Options{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(server.Pid(), server.Addr())
	}
	time.Sleep(forever)
}

// Two test binaries start at once on a machine that has no template yet, as
// `go test` runs packages; both die, and take their servers along.
func TestTwoProcessesAtOnceAndTheirDeath(t *testing.T) {
	cache, temp := t.TempDir(), shortTempDir(t) // they leave their folders behind
	var owners []*exec.Cmd
	var outputs []*bufio.Scanner
	for range 2 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"=owner", "SEAHUB_TEST_CACHE_DIR="+cache, "TMPDIR="+temp)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		owners, outputs = append(owners, cmd), append(outputs, bufio.NewScanner(out))
	}
	var pids []int
	addresses := map[string]bool{}
	for _, output := range outputs {
		for range 2 {
			require.True(t, output.Scan())
			var pid int
			var addr string
			_, err := fmt.Sscan(output.Text(), &pid, &addr)
			require.NoError(t, err, output.Text())
			require.True(t, running(pid))
			pids, addresses[addr] = append(pids, pid), true
		}
	}
	require.Len(t, addresses, 4, "each server has an address of its own")

	for _, owner := range owners {
		require.NoError(t, owner.Process.Signal(syscall.SIGKILL))
		_ = owner.Wait()
	}
	for _, pid := range pids {
		testenv.Eventually(t, bound, fmt.Sprintf("server %d dies with its owner", pid),
			func() bool { return !running(pid) })
	}
}
