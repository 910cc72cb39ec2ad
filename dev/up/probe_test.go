package up_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/lockdir"
	"github.com/seahub/seahub-mq/dev/up"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A server that died or hangs is named, and nothing else is called ill.
func TestStatusSeesADeadServer(t *testing.T) {
	o := up.Options{Dir: t.TempDir()}
	lock, err := lockdir.Acquire(o.Dir) // as a supervisor does while it lives
	require.NoError(t, err)
	defer func() { require.NoError(t, lock.Release()) }()
	mariadb, redis := testenv.PrivateMariaDB(t), testenv.PrivateRedis(t)
	fcm, err := fcmfake.Start(fcmfake.Options{KeyFile: filepath.Join(t.TempDir(), "key.json")})
	require.NoError(t, err)
	write(t, o.Dir, up.State{Pid: 1, Phase: up.Ready, DSN: mariadb.DSN, Redis: redis.Addr, FCM: fcm.URL()})

	status := func() (bool, string) {
		var out bytes.Buffer
		well, err := up.Status(t.Context(), o, &out)
		require.NoError(t, err)
		return well, out.String()
	}
	well, said := status()
	require.True(t, well, said)
	require.NotContains(t, said, "does not answer")

	for _, fault := range []struct {
		name          string
		breaks, mends func() error
	}{
		{"Redis", redis.Server.Kill, func() error { return redis.Server.Start(t.Context()) }},
		{"Redis", redis.Server.Freeze, redis.Server.Thaw},
		{"MariaDB", mariadb.Server.Kill, func() error { return mariadb.Server.Start(t.Context()) }},
		{"MariaDB", mariadb.Server.Freeze, mariadb.Server.Thaw},
	} {
		require.NoError(t, fault.breaks())
		well, said = status()
		require.False(t, well, said)
		require.Regexp(t, fault.name+`\s+does not answer`, said)
		require.Equal(t, 1, bytes.Count([]byte(said), []byte("does not answer")), said)
		require.NoError(t, fault.mends())
		well, said = status()
		require.True(t, well, said)
	}
	require.NoError(t, fcm.Close())
	well, said = status()
	require.False(t, well)
	require.Regexp(t, `FCM fake\s+does not answer`, said)
}
