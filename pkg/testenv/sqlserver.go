package testenv

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// sqlMode is MySQL 8's default; MariaDB's own default would let SQL pass that
// production refuses.
const sqlMode = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE," +
	"ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

const (
	redoLogSize    = 16 << 20
	maxConnections = 500
	// toolWaitDelay: a killed script's own child may hold its output open.
	toolWaitDelay = 2 * time.Second
)

// redoLogFlag keeps the data folder small to copy. The size is that of a file in
// it, so making a template and running it must agree.
func redoLogFlag(kind Kind) string {
	name := "innodb-log-file-size"
	if kind == KindMySQL {
		name = "innodb-redo-log-capacity"
	}
	return fmt.Sprintf("--%s=%d", name, redoLogSize)
}

// StartMariaDB starts a private MariaDB and waits until it answers. The caller
// closes it.
func StartMariaDB(ctx context.Context, options Options) (*Server, error) {
	return start(ctx, engine{
		kind:     KindMariaDB,
		prepare:  prepareMariaDB,
		command:  mariadbCommand,
		identify: identifySQL,
	}, options)
}

// StartMySQL starts a private MySQL from the tree that dev/mysql-fetch.sh
// fetched and waits until it answers. The caller closes it.
func StartMySQL(ctx context.Context, options Options) (*Server, error) {
	return start(ctx, engine{
		kind:     KindMySQL,
		prepare:  prepareMySQL,
		command:  mysqlCommand,
		identify: identifySQL,
	}, options)
}

func prepareMariaDB(ctx context.Context, s *Server) error {
	if isDir(s.dataDir()) {
		return nil // a restart, or the caller's own folder
	}
	server, err := findMariaDB()
	if err != nil {
		return err
	}
	install, err := exec.LookPath("mariadb-install-db")
	if err != nil {
		return missing("MariaDB", "mariadb-server-core", err)
	}
	return fromTemplate(ctx, s, server, func(ctx context.Context, dir string) error {
		return runTool(ctx, install, append([]string{"--no-defaults"}, append(asRoot(),
			"--datadir="+dir, "--auth-root-authentication-method=normal", "--skip-test-db",
			redoLogFlag(KindMariaDB))...)...)
	})
}

func mariadbCommand(s *Server) (string, []string, error) {
	path, err := findMariaDB()
	if err != nil {
		return "", nil, err
	}
	argv := append([]string{path, "--no-defaults"}, commonSQLFlags(s)...)
	return path, append(argv, redoLogFlag(KindMariaDB)), nil
}

func prepareMySQL(ctx context.Context, s *Server) error {
	if isDir(s.dataDir()) {
		return nil
	}
	server, err := findMySQL()
	if err != nil {
		return err
	}
	return fromTemplate(ctx, s, server, func(ctx context.Context, dir string) error {
		init := dir + ".sql"
		if err := os.WriteFile(init, []byte(mysqlInit), 0o600); err != nil {
			return fmt.Errorf("write the first statements: %w", err)
		}
		defer os.Remove(init)
		return runTool(ctx, server, append(asRoot(), "--initialize-insecure", "--init-file="+init,
			"--datadir="+dir, redoLogFlag(KindMySQL),
			"--auto-generate-certs=OFF", "--caching-sha2-password-auto-generate-rsa-keys=OFF")...)
	})
}

// mysqlInit lets root in from where tests come from; by itself MySQL knows only
// root@localhost, which depends on this machine's name resolution.
const mysqlInit = `CREATE USER root@'127.0.0.1' IDENTIFIED BY '';
GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;
`

func mysqlCommand(s *Server) (string, []string, error) {
	path, err := findMySQL()
	if err != nil {
		return "", nil, err
	}
	// The wrapper already says --no-defaults, which must come first.
	argv := append([]string{path}, commonSQLFlags(s)...)
	argv = append(argv, redoLogFlag(KindMySQL), "--mysqlx=OFF", "--secure-file-priv=",
		"--performance-schema=OFF", "--auto-generate-certs=OFF",
		"--caching-sha2-password-auto-generate-rsa-keys=OFF")
	return path, argv, nil
}

func commonSQLFlags(s *Server) []string {
	flags := append(asRoot(),
		"--datadir="+s.dataDir(),
		"--socket="+filepath.Join(s.dir, "s.sock"),
		"--pid-file="+s.pidFile(),
		"--tmpdir="+s.dir,
		"--bind-address=127.0.0.1",
		"--skip-name-resolve",
		"--port="+strconv.Itoa(s.port.number),
		"--character-set-server=utf8mb4",
		"--default-time-zone=+00:00",
		"--sql-mode="+sqlMode,
		"--max-connections="+strconv.Itoa(maxConnections),
	)
	if s.options.Durable {
		return append(flags, "--server-id=1", "--log-bin=binlog", "--binlog-format=ROW",
			"--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=256M")
	}
	// 2 hands each commit to the kernel without a wait for the disk. 0 would be
	// faster still, but Kill would then lose the last second of commits, which no
	// production server does.
	return append(flags, "--skip-log-bin",
		"--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=64M")
}

// identifySQL asks over TCP, as the tests will, whose server it is. The data
// folder is ours alone, and the pid file in it holds the pid that we started.
func identifySQL(ctx context.Context, s *Server, pid int) error {
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = "root", "tcp", s.addr
	config.Logger = &mysql.NopLogger{} // refused dials are what waiting looks like
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	var dataDir, pidFile string
	err = db.QueryRowContext(ctx, "SELECT @@datadir, @@pid_file").Scan(&dataDir, &pidFile)
	var refused *mysql.MySQLError
	if errors.As(err, &refused) {
		return foreignUnless(refused.Number == errServerShutdown, err)
	}
	if err != nil {
		return fmt.Errorf("ask for its identity: %w", err)
	}
	if filepath.Clean(dataDir) != s.dataDir() {
		return fmt.Errorf("%w: its data folder is %s, ours is %s", ErrForeign, dataDir, s.dataDir())
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return fmt.Errorf("read its pid file: %w", err)
	}
	if got := strings.TrimSpace(string(text)); got != strconv.Itoa(pid) {
		return fmt.Errorf("%w: its pid is %s, ours is %d", ErrForeign, got, pid)
	}
	return nil
}

// errServerShutdown is ER_SERVER_SHUTDOWN: a predecessor on its way out.
const errServerShutdown = 1053

// foreignUnless marks an answer that our own server would not give: a private
// server lets root in.
func foreignUnless(ours bool, err error) error {
	if ours {
		return err
	}
	return fmt.Errorf("%w: it says %w", ErrForeign, err)
}

func (s *Server) dataDir() string { return filepath.Join(s.dir, "data") }
func (s *Server) pidFile() string { return filepath.Join(s.dir, "server.pid") }

func findMariaDB() (string, error) {
	for _, name := range []string{"mariadbd", "/usr/sbin/mariadbd"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", missing("MariaDB", "mariadb-server-core", exec.ErrNotFound)
}

func findMySQL() (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	path, err := exec.LookPath(filepath.Join(cache, "mysql", "bin", "mysqld"))
	if err != nil {
		return "", missing("MySQL", "mysql-server-core, fetched by dev/mysql-fetch.sh", err)
	}
	return path, nil
}

// missing is the error of a server that is not on this machine.
func missing(server, pkg string, err error) error {
	return fmt.Errorf("%s is not on this machine (package %s): run `make deps`: %w", server, pkg, err)
}

// asRoot: both servers refuse to run as root unless told to.
func asRoot() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

var versionNumber = regexp.MustCompile(`\d+\.\d+\.\d+`)

// templateRevision changes when what fills a template does.
const templateRevision = 2

// fromTemplate gives the server a data folder, copied from one that fill made
// once for this version of the server.
func fromTemplate(ctx context.Context, s *Server, server string, fill func(context.Context, string) error) error {
	out, err := exec.CommandContext(ctx, server, "--version").Output()
	if err != nil {
		return fmt.Errorf("ask %s for its version: %w", server, err)
	}
	version := versionNumber.FindString(string(out))
	if version == "" {
		return fmt.Errorf("no version in what %s says: %q", server, out)
	}
	// The files belong to whoever made them, so users don't share templates.
	name := fmt.Sprintf("%s-%s-r%d-uid%d", s.Kind(), version, templateRevision, os.Geteuid())
	from, err := template(ctx, name, fill)
	if err != nil {
		return err
	}
	return copyTree(s.dataDir(), from)
}

// runTool runs a helper program to its end. It stays in our process group, so a
// Ctrl-C ends it too.
func runTool(ctx context.Context, path string, args ...string) error {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = toolWaitDelay
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(path), err, strings.TrimSpace(string(out)))
	}
	return nil
}
