package deploy

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
)

// rule looks at one rendered overlay and says what is wrong with it.
type rule func(*project, *rendered) []string

// rules are what is true of every overlay.
var rules = map[string]rule{
	"restricted": restrictedProblems, "pods": podProblems, "life": lifeProblems, "jobs": jobProblems,
	"settings": settingProblems, "secrets": secretProblems, "roles": roleProblems, "facts": factProblems,
	"network": networkProblems, "scale": scaleProblems, "monitor": monitorProblems,
	"connections": connectionProblems,
}

// asking are those that start the services' own commands.
var asking = map[string]func(context.Context, *project, *rendered) []string{
	"refused": refusedProblems, "metrics": metricProblems,
}

func TestOverlays(t *testing.T) {
	p := inspected(t)
	all, err := renderAll(p.tree)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), 3)
	for _, r := range all {
		checkAll(t, p, r)
	}
}

func checkAll(t *testing.T, p *project, r *rendered) {
	t.Helper()
	for name, check := range rules {
		require.Empty(t, check(p, r), "%s: %s", r.name, name)
	}
	for name, check := range asking {
		require.Empty(t, check(t.Context(), p, r), "%s: %s", r.name, name)
	}
}

// TestComponentsThatNoOverlayUses: what waits for its day fits a production overlay.
func TestComponentsThatNoOverlayUses(t *testing.T) {
	p := inspected(t)
	for _, component := range p.folders(k8s + "/components") {
		used := false
		for _, overlay := range p.folders(k8s + "/overlays") {
			used = used || strings.Contains(p.tree[overlay+"/kustomization.yaml"], "../../components/"+path.Base(component)+"\n")
		}
		if used {
			continue
		}
		t.Run(path.Base(component), func(t *testing.T) {
			// Behind the others: it may add to what the broker's component made.
			f, err := p.with(k8s+"/overlays/id-prod/kustomization.yaml", "configMapGenerator:", "  - ../../components/"+path.Base(component)+"\nconfigMapGenerator:")
			require.NoError(t, err)
			r, err := render(f, k8s+"/overlays/id-prod")
			require.NoError(t, err)
			checkAll(t, p, r)
		})
	}
}

// TestTopicsList: what a person has to make on Alibaba Cloud is what the relay needs there.
func TestTopicsList(t *testing.T) {
	p := inspected(t)
	root, err := stack.Root()
	require.NoError(t, err)
	all, err := renderAll(p.tree)
	require.NoError(t, err)
	n := 0
	for _, r := range all {
		for _, w := range r.workloads() {
			env, _ := r.environment(w)
			if w.component() != componentRelay || env.values["SEAHUB_MQ_PROVIDER"] != "rocketmq" {
				continue
			}
			n++
			want, complaints, err := p.run(t.Context(), "relay", env.values, "topics", "--format", "console")
			require.NoError(t, err, complaints)
			name := filepath.Join(root, k8s, "overlays", r.name, "topics.txt")
			got, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, want, string(got), "%s is out of step with `relay topics --format console`", name)
		}
	}
	require.Positive(t, n)
}
