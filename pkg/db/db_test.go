package db_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func config(s *testenv.Schema) db.Config {
	return db.Config{DSN: s.DSN, TimeZone: "+07:00", MaxOpen: 4, DialTimeout: 2 * time.Second, IOTimeout: 5 * time.Second}
}

func open(t *testing.T, cfg db.Config, opts ...db.Option) (*gorm.DB, *sql.DB) {
	t.Helper()
	g, err := db.Open(cfg, opts...)
	require.NoError(t, err)
	pool, err := db.Pool(g)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return g, pool
}

func TestSessionsAreWhatEveryRoomReliesOn(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		_, pool := open(t, config(s), db.WithSessionTimeouts(7*time.Second, 8*time.Second, 9*time.Second))
		require.NoError(t, db.WaitReady(t.Context(), pool))
		var zone, mode, wait, netRead, netWrite string
		err := pool.QueryRowContext(t.Context(), "SELECT @@SESSION.time_zone, @@SESSION.sql_mode, @@SESSION.wait_timeout, @@SESSION.net_read_timeout, @@SESSION.net_write_timeout").
			Scan(&zone, &mode, &wait, &netRead, &netWrite)
		require.NoError(t, err)
		require.Equal(t, []string{"+07:00", "7", "8", "9"}, []string{zone, wait, netRead, netWrite})
		require.Contains(t, mode, "STRICT_TRANS_TABLES")
	})
}

func TestTimesKeepTheirInstantWhateverTheZonesAre(t *testing.T) {
	want := time.Date(2026, 3, 1, 23, 59, 59, 700_000_000, time.UTC)
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		s.Exec(t, "CREATE TABLE x (at DATETIME(3) NOT NULL)")
		for zone, stored := range map[string]string{
			"+00:00": "2026-03-01 23:59:59.700", "+07:00": "2026-03-02 06:59:59.700", "-03:30": "2026-03-01 20:29:59.700",
		} {
			cfg := config(s)
			cfg.TimeZone = zone
			_, pool := open(t, cfg)
			s.Exec(t, "DELETE FROM x")
			for _, at := range []time.Time{want, want.Local(), want.In(time.FixedZone("", -5*3600))} {
				_, err := pool.ExecContext(t.Context(), "INSERT INTO x VALUES (?)", at)
				require.NoError(t, err)
			}
			var distinct int
			var got string
			var back time.Time
			require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT COUNT(DISTINCT at), MIN(CAST(at AS CHAR)), MIN(at) FROM x").Scan(&distinct, &got, &back))
			require.Equal(t, 1, distinct)
			require.Equal(t, stored, got, "written in the session's zone, and not rounded to the next day")
			require.True(t, back.Equal(want), "%s", back)

			var now time.Time
			var gap int
			require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT NOW(3), ABS(TIMESTAMPDIFF(SECOND, NOW(3), ?))", time.Now()).Scan(&now, &gap))
			require.WithinDuration(t, time.Now(), now, time.Minute)
			require.Less(t, gap, 60, "what the process and what the server calls now is the same")
		}
	})
}

// The same with the process in zones of its own, on a server that has another one.
func TestTimesInOtherZonesOfProcessAndServer(t *testing.T) {
	s := testenv.PrivateMariaDB(t)
	self, err := os.Executable()
	require.NoError(t, err)
	for _, server := range []string{"+00:00", "+07:00"} {
		s.Exec(t, "SET GLOBAL time_zone = '"+server+"'")
		for _, process := range []string{"UTC", "Asia/Jakarta", "America/New_York"} {
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestTimesKeepTheirInstantWhateverTheZonesAre$/^mariadb$", "-test.v")
			cmd.Env = append(os.Environ(), "TZ="+process, "SEAHUB_TEST_MARIADB_DSN="+s.Server.DSN(""))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "process %s, server %s:\n%s", process, server, out)
			require.Contains(t, string(out), "--- PASS: TestTimesKeepTheirInstantWhateverTheZonesAre/mariadb")
		}
	}
}

// A compare-and-swap counts the rows that it matched, also when a value stays the same.
func TestAChangeThatChangesNothingCountsItsRow(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		s.Exec(t, "CREATE TABLE x (id INT PRIMARY KEY, n INT NOT NULL)")
		s.Exec(t, "INSERT INTO x VALUES (1, 5)")
		for name, opts := range map[string][]db.Option{"prepared": nil, "interpolated": {db.WithInterpolation()}} {
			_, pool := open(t, config(s), opts...)
			res, err := pool.ExecContext(t.Context(), "UPDATE x SET n = ? WHERE id = 1 AND n = ?", 5, 5)
			require.NoError(t, err)
			n, err := res.RowsAffected()
			require.NoError(t, err)
			require.EqualValues(t, 1, n, name)
		}
	})
}

func TestInTxRunsTheWholeUnitAgainAfterADeadlock(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		g, _ := open(t, config(s))
		s.Exec(t, "CREATE TABLE x (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB")
		s.Exec(t, "INSERT INTO x VALUES (1, 0), (2, 0)")
		// Two units lock the two rows in opposite order, each holding its first one
		// until both have it.
		firstLocks := make(chan struct{}, 2)
		both := make(chan struct{})
		go func() { <-firstLocks; <-firstLocks; close(both) }()
		results := make(chan error, 2)
		runs := make(chan int, 2)
		for _, order := range [][2]int{{1, 2}, {2, 1}} {
			go func() {
				n := 0
				results <- db.InTx(t.Context(), g, func(tx *gorm.DB) error {
					n++
					if err := tx.Exec("UPDATE x SET n = n + 1 WHERE id = ?", order[0]).Error; err != nil {
						return err
					}
					if n == 1 {
						firstLocks <- struct{}{}
						<-both
					}
					return tx.Exec("UPDATE x SET n = n + 1 WHERE id = ?", order[1]).Error
				})
				runs <- n
			}()
		}
		require.NoError(t, <-results)
		require.NoError(t, <-results)
		require.Equal(t, 3, <-runs+<-runs, "the victim ran twice, the other once")
		require.EqualValues(t, 4, s.QueryInt(t, "SELECT SUM(n) FROM x"), "each unit took effect once, whole")
	})
}

func TestInTxRollsBackOnErrorPanicAndCancelledContext(t *testing.T) {
	s := testenv.MariaDB(t)
	g, pool := open(t, config(s), db.WithPool(1)) // one connection: a leaked transaction would show at once
	s.Exec(t, "CREATE TABLE x (id INT PRIMARY KEY) ENGINE=InnoDB")
	insert := func(tx *gorm.DB) error { return tx.Exec("INSERT INTO x VALUES (1)").Error }

	err := db.InTx(t.Context(), g, func(tx *gorm.DB) error { return errors.Join(insert(tx), errors.New("no")) })
	require.ErrorContains(t, err, "no")
	require.Panics(t, func() {
		_ = db.InTx(t.Context(), g, func(tx *gorm.DB) error { _ = insert(tx); panic("boom") })
	})
	ctx, cancel := context.WithCancel(t.Context())
	err = db.InTx(ctx, g, func(tx *gorm.DB) error { cancel(); return insert(tx) })
	require.Error(t, err)
	require.EqualValues(t, 0, s.QueryInt(t, "SELECT COUNT(*) FROM x"))
	require.NoError(t, pool.PingContext(t.Context()))
	err = db.InTx(t.Context(), g, func(tx *gorm.DB) error { return db.InTx(t.Context(), tx, insert) })
	require.ErrorIs(t, err, db.ErrNested)
	err = db.InTx(t.Context(), g, func(tx *gorm.DB) error {
		require.ErrorIs(t, db.InTx(t.Context(), tx, insert), db.ErrNested)
		return nil // the outer one goes on all the same
	})
	require.NoError(t, err)
	require.EqualValues(t, 0, s.QueryInt(t, "SELECT COUNT(*) FROM x"), "a nested unit does not run")
}

func TestErrorClasses(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		_, pool := open(t, config(s))
		s.Exec(t, "CREATE TABLE x (id INT PRIMARY KEY) ENGINE=InnoDB")
		s.Exec(t, "INSERT INTO x VALUES (1)")
		_, err := pool.ExecContext(t.Context(), "INSERT INTO x VALUES (1)")
		require.True(t, db.IsDuplicate(err))
		_, err = pool.ExecContext(t.Context(), "SELECT nothing FROM x")
		require.True(t, db.IsMissing(err))
		_, err = pool.ExecContext(t.Context(), "SELECT 1 FROM y")
		require.True(t, db.IsMissing(err))
		require.False(t, db.IsUnavailable(err) || db.IsRetryable(err))
	})
}

func TestADatabaseThatIsAwayIsWaitedForAndFoundAgain(t *testing.T) {
	s := testenv.PrivateMariaDB(t)
	require.NoError(t, s.Server.Kill())
	cfg := config(s)
	_, pool := open(t, cfg) // opening needs no database
	_, err := pool.ExecContext(t.Context(), "SELECT 1")
	require.True(t, db.IsUnavailable(err), "%v", err)

	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, db.WaitReady(short, pool), context.DeadlineExceeded)
	ready := make(chan error, 1)
	go func() { ready <- db.WaitReady(t.Context(), pool) }()
	require.NoError(t, s.Server.Restart(t.Context()))
	require.NoError(t, <-ready)
}

func TestAReadOnlyServerIsUnavailableAndItsConnectionIsGivenUp(t *testing.T) {
	s := testenv.PrivateMariaDB(t)
	s.Exec(t, "CREATE TABLE x (id INT PRIMARY KEY) ENGINE=InnoDB")
	s.Exec(t, "CREATE USER app@'127.0.0.1' IDENTIFIED BY 'app'") // root may write to a read-only server
	s.Exec(t, "GRANT SELECT, INSERT ON "+s.Name+".* TO app@'127.0.0.1'")
	cfg := config(s)
	cfg.DSN = "app:app" + s.DSN[strings.Index(s.DSN, "@"):]
	_, pool := open(t, cfg, db.WithPool(1))
	var before, after int
	require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&before))
	s.Exec(t, "SET GLOBAL read_only = 1")
	_, err := pool.ExecContext(t.Context(), "INSERT INTO x VALUES (1)")
	require.True(t, db.IsUnavailable(err), "%v", err)
	s.Exec(t, "SET GLOBAL read_only = 0")
	_, err = pool.ExecContext(t.Context(), "INSERT INTO x VALUES (1)")
	require.NoError(t, err)
	require.NoError(t, pool.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&after))
	require.NotEqual(t, before, after)
}

func TestConfigErrorsNameTheKeyAndHideThePassword(t *testing.T) {
	err := db.Config{DSN: "root:hunter2@tcp(127.0.0.1", TimeZone: "Asia/Jakarta"}.Validate()
	require.ErrorContains(t, err, "SEAHUB_DB_DSN (seahub.db.dsn)")
	require.ErrorContains(t, err, "SEAHUB_DB_TIME_ZONE (seahub.db.time-zone)")
	require.NotContains(t, err.Error(), "hunter2")
	require.NotContains(t, db.Config{DSN: "root@tcp(127.0.0.1:3306)/app", TimeZone: "WIB"}.Validate().Error(), "SEAHUB_DB_DSN")
	require.ErrorContains(t, db.Config{DSN: "root@tcp(127.0.0.1:3306)/", TimeZone: "+00:00"}.Validate(), "names no schema")
	require.ErrorContains(t, db.Config{DSN: "root@tcp(127.0.0.1:3306)/app?parseTime=true", TimeZone: "+00:00"}.Validate(), `parameter "parseTime" is not taken`)
	require.NoError(t, db.Config{DSN: "root:a?b/c@tcp(127.0.0.1:3306)/app?tls=skip-verify", TimeZone: "+00:00"}.Validate())
	require.NoError(t, db.Config{DSN: "root@tcp(127.0.0.1:3306)/app", TimeZone: "-03:30"}.Validate())
}
