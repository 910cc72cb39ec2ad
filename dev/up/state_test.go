package up_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/lockdir"
	"github.com/seahub/seahub-mq/dev/proc"
	"github.com/seahub/seahub-mq/dev/up"
)

func TestNothingIsUp(t *testing.T) {
	o := up.Options{Dir: filepath.Join(t.TempDir(), "up")}
	var out bytes.Buffer
	require.NoError(t, up.Down(t.Context(), o, &out))
	require.NoError(t, up.Down(t.Context(), o, &out))
	require.Equal(t, "nothing is up\nnothing is up\n", out.String())
	running, err := up.Status(t.Context(), o, &out)
	require.NoError(t, err)
	require.False(t, running)
	require.NoDirExists(t, o.Dir)
}

// A state whose process is gone leads to nobody being signalled, even if its pid
// belongs to somebody else by now.
func TestDownSparesWhoeverHasThePidNow(t *testing.T) {
	stranger := exec.CommandContext(t.Context(), "sleep", "60")
	require.NoError(t, stranger.Start())
	t.Cleanup(func() { _ = stranger.Process.Kill(); _ = stranger.Wait() })
	who, err := proc.Read(stranger.Process.Pid)
	require.NoError(t, err)
	boot, err := proc.Boot()
	require.NoError(t, err)

	for name, state := range map[string]up.State{
		"another start time": {Pid: stranger.Process.Pid, Started: who.Started - 1, Boot: boot},
		"another boot":       {Pid: stranger.Process.Pid, Started: who.Started, Boot: "earlier"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, up.Signal(state, syscall.SIGKILL), os.ErrProcessDone)
		})
	}
	o := up.Options{Dir: t.TempDir()} // nobody holds its lock
	write(t, o.Dir, up.State{Pid: stranger.Process.Pid, Started: who.Started, Boot: boot, Phase: up.Ready})
	var out bytes.Buffer
	require.NoError(t, up.Down(t.Context(), o, &out))
	require.Contains(t, out.String(), "nothing is up")
	require.NoFileExists(t, filepath.Join(o.Dir, "state.json"))
	_, err = proc.Read(stranger.Process.Pid)
	require.NoError(t, err, "the stranger was ended")
}

func TestASecondOneIsRefused(t *testing.T) {
	o := up.Options{Dir: t.TempDir()}
	lock, err := lockdir.Acquire(o.Dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, lock.Release()) }()
	write(t, o.Dir, up.State{Pid: 4711, Phase: up.Ready})
	err = up.Supervise(t.Context(), o, &strings.Builder{})
	require.ErrorIs(t, err, lockdir.ErrHeld)
	body, err := os.ReadFile(filepath.Join(o.Dir, "state.json"))
	require.NoError(t, err)
	require.Contains(t, string(body), "4711", "the state of the one that is up was changed")
}

func write(t *testing.T, dir string, state up.State) {
	t.Helper()
	body, err := json.Marshal(state)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "state.json"), body, 0o600))
}
