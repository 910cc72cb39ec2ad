package lockdir_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/lockdir"
)

func TestOneHolderAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	first, err := lockdir.Acquire(dir)
	require.NoError(t, err)
	_, err = lockdir.Acquire(dir)
	require.ErrorIs(t, err, lockdir.ErrHeld)
	require.NoError(t, first.Release())
	second, err := lockdir.Acquire(dir)
	require.NoError(t, err)
	require.NoError(t, second.Release())
}
