package testenv_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

// shortTempDir: t.TempDir is too long a name for the sockets that testenv makes
// in it.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "e")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestFoldersOfDeadRunsAreSweptAndNoOthers(t *testing.T) {
	base := shortTempDir(t)
	t.Setenv("TMPDIR", base)

	dead, owned := filepath.Join(base, "smq-dead"), filepath.Join(base, "smq-owned")
	young, others := filepath.Join(base, "smq-young"), filepath.Join(base, "somebody-elses")
	for _, folder := range []string{dead, owned, young, others} {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, "data"), 0o700))
	}
	owner, err := os.Create(filepath.Join(owned, "owner.lock"))
	require.NoError(t, err)
	defer owner.Close()
	require.NoError(t, syscall.Flock(int(owner.Fd()), syscall.LOCK_EX))
	old := time.Now().Add(-time.Hour)
	for _, folder := range []string{dead, owned, others} {
		require.NoError(t, os.Chtimes(folder, old, old))
	}

	server, err := testenv.StartRedis(t.Context(), testenv.Options{})
	require.NoError(t, err)
	require.NoError(t, server.Close())

	require.NoDirExists(t, dead)
	require.DirExists(t, owned)
	require.DirExists(t, young)
	require.DirExists(t, others)
}
