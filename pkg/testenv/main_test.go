package testenv_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

// roleVariable makes a copy of this test binary play a part that a test can't
// play in its own process. Without it the tests of these parts do nothing.
const roleVariable = "TESTENV_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "owner" {
		ownServersUntilKilled()
	}
	testenv.Main(m)
}

func playing(role string) bool { return os.Getenv(roleVariable) == role }

// rerun runs one test of this binary in a process of its own.
func rerun(t *testing.T, role, test string, environment ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), append(environment, roleVariable+"="+role)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestRoleLeak(t *testing.T) {
	if playing("leak") {
		go func() { select {} }()
	}
}

func TestMainFindsAGoroutineLeftBehind(t *testing.T) {
	out, err := rerun(t, "none", "TestRoleLeak")
	require.NoError(t, err, out)

	out, err = rerun(t, "leak", "TestRoleLeak")
	require.Error(t, err)
	require.Contains(t, out, "goroutines left behind by the tests")
	require.Contains(t, out, "TestRoleLeak.func1")
}

func TestRoleExternal(t *testing.T) {
	if !playing("external") {
		return
	}
	redis := testenv.Redis(t)
	require.Equal(t, os.Getenv("SEAHUB_TEST_REDIS_ADDR"), redis.Addr)
	require.ErrorIs(t, redis.Server.Kill(), testenv.ErrExternal)
	require.ErrorIs(t, redis.Server.Restart(t.Context()), testenv.ErrExternal)
	key := "some:" + redis.Namespace(t) + ":key"
	require.NoError(t, redis.Client(t).Set(t.Context(), key, 1, 0).Err())

	schema := testenv.MariaDB(t)
	require.Equal(t, os.Getenv("SEAHUB_TEST_MARIADB_DSN"), schema.Server.DSN(""))
	require.ErrorIs(t, schema.Server.Freeze(), testenv.ErrExternal)
	schema.LoadApp(t)
	fmt.Println("played external")
}

func TestServersOfTheEnvironmentAreUsedAndLeftClean(t *testing.T) {
	redis := testenv.PrivateRedis(t)
	schema := testenv.PrivateMariaDB(t)
	schema.Exec(t, "CREATE USER app@'%' IDENTIFIED BY 'p:w'")
	schema.Exec(t, "GRANT ALL ON *.* TO app@'%'")

	out, err := rerun(t, "external", "TestRoleExternal",
		"SEAHUB_TEST_REDIS_ADDR="+redis.Addr,
		"SEAHUB_TEST_MARIADB_DSN=app:p:w@tcp("+schema.Server.Addr()+")/")
	require.NoError(t, err, out)
	require.Contains(t, out, "played external")

	left, err := redis.Client(t).DBSize(t.Context()).Result()
	require.NoError(t, err)
	require.Zero(t, left, "keys of the test")
	require.EqualValues(t, 1, schema.QueryInt(t,
		"SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE 't\\_%'"), "only our own schema")
}

func TestRoleUnusableDSN(t *testing.T) {
	if playing("unusable") {
		testenv.MariaDB(t)
	}
}

func TestAnUnusableDSNIsRefused(t *testing.T) {
	for _, dsn := range []string{"not a dsn", "root@unix(/run/m.sock)/"} {
		out, err := rerun(t, "unusable", "TestRoleUnusableDSN", "SEAHUB_TEST_MARIADB_DSN="+dsn)
		require.Error(t, err, out)
		require.Contains(t, out, "SEAHUB_TEST_MARIADB_DSN: want user:password@tcp(host:port)/")
	}
}
