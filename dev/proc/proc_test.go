package proc_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/proc"
)

func TestReadNamesOneProcess(t *testing.T) {
	self, err := proc.Read(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, os.Getppid(), self.Parent)
	require.NotZero(t, self.Started)
	again, err := proc.Read(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, self, again)
}

func TestChildrenLiveAndEnd(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	require.NoError(t, cmd.Start())
	children, err := proc.Children(os.Getpid())
	require.NoError(t, err)
	require.Contains(t, children, cmd.Process.Pid)
	child, err := proc.Read(cmd.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), child.Parent)
	require.Equal(t, "sleep", proc.Name(cmd.Process.Pid))

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // the kill is its error
	_, err = proc.Read(cmd.Process.Pid)
	require.ErrorIs(t, err, proc.ErrGone)
	children, err = proc.Children(os.Getpid())
	require.NoError(t, err)
	require.NotContains(t, children, cmd.Process.Pid)
}

func TestBoot(t *testing.T) {
	boot, err := proc.Boot()
	require.NoError(t, err)
	require.NotEmpty(t, boot)
}
