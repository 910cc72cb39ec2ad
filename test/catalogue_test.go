// Package test holds what needs the whole project at once.
package test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/catalogue"
	"github.com/seahub/seahub-mq/dev/stack"
)

// TestCatalogueIsInStep: the list of known variables and the table in docs are what
// the services themselves say. `make catalogue` rewrites them.
func TestCatalogueIsInStep(t *testing.T) {
	root, err := stack.Root()
	require.NoError(t, err)
	binaries, err := stack.Build(t.Context(), root, t.TempDir(), false, stack.Services()...)
	require.NoError(t, err)
	files, err := catalogue.Files(t.Context(), binaries)
	require.NoError(t, err)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s is out of step: run `make catalogue`", name)
	}
}
