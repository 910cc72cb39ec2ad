package deploy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRender(t *testing.T) {
	all, err := renderAll(checkout(t))
	require.NoError(t, err)
	for _, r := range all {
		t.Log(r.name, len(r.Deployments), len(r.Jobs), len(r.Policies), len(r.Scalers))
	}
}
