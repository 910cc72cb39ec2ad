package testenv_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

func startShell(t *testing.T, script string) *testenv.Child {
	t.Helper()
	child, err := testenv.StartChild(testenv.ChildSpec{
		Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"GIVEN=yes"},
		Log: filepath.Join(t.TempDir(), "log"),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, child.Kill()) })
	return child
}

func TestAChildGetsItsEnvironmentAndNoOther(t *testing.T) {
	child := startShell(t, `echo "given $GIVEN, home <$HOME>"; exit 3`)
	require.Equal(t, 3, child.ExitCode())
	require.Equal(t, "given yes, home <>", child.LogTail())
}

func TestAFrozenChildStopsPolitely(t *testing.T) {
	child := startShell(t, `trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	testenv.Eventually(t, bound, "the child is ready", func() bool { return child.LogTail() == "ready" })
	require.NoError(t, child.Freeze())
	require.NoError(t, child.Stop(t.Context()))
	require.Zero(t, child.ExitCode())
	require.False(t, running(child.Pid()))
}

func TestAKilledChildHasNoExitCode(t *testing.T) {
	child := startShell(t, `sleep 60`)
	require.NoError(t, child.Kill())
	<-child.Done()
	require.Equal(t, -1, child.ExitCode())
}
