package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
)

var (
	allowed = regexp.MustCompile(`(?m)^  databaseConnections: "(\d+)"$`)
	// ownPools are the pools that a service opens beside the main one.
	ownPools = regexp.MustCompile(`(?m)^\s*(?:const )?(?:poolSize|leaseConns|sweepConns)\s*=\s*(\d+)$`)
)

// connectionProblems: all pods that there may be, with all their pools full, fit into
// what the environment's database leaves to them.
func connectionProblems(p *project, r *rendered) []string {
	c := complain{about: r.name}
	m := allowed.FindStringSubmatch(p.tree[k8s+"/overlays/"+r.name+"/environment.yaml"])
	if m == nil {
		c.when(true, "environment.yaml does not say how many connections the database leaves to us")
		return c.list
	}
	most, err := mostConnections(p, r)
	if err != nil {
		return []string{err.Error()}
	}
	limit, err := strconv.Atoi(m[1])
	c.when(err != nil || most > limit, "may open %d connections, the database leaves it %s", most, m[1])
	return c.list
}

// mostConnections is the sum over the Deployments of replicas, or what the scaler may make
// of them, times the pools of one process. No rollout adds a pod.
func mostConnections(p *project, r *rendered) (total int, err error) {
	for _, w := range r.workloads() {
		if w.deployment == nil {
			continue
		}
		pods := 0
		if w.deployment.Spec.Replicas != nil {
			pods = int(*w.deployment.Spec.Replicas)
		}
		for _, s := range r.Scalers {
			if s.Spec.ScaleTargetRef.Name == w.name {
				pods = int(s.Spec.MaxReplicaCount)
			}
		}
		env, _ := r.environment(w)
		each, err := strconv.Atoi(p.value(env, w.service(), "SEAHUB_DB_MAX_OPEN"))
		if err != nil {
			return 0, fmt.Errorf("%s: SEAHUB_DB_MAX_OPEN: %w", w, err)
		}
		own, err := poolsOf(p, w.service())
		if err != nil {
			return 0, err
		}
		total += pods * (each + own)
	}
	return total, nil
}

func poolsOf(p *project, service string) (n int, err error) {
	source := "services/" + service + "/wire.go"
	if service == "relay" {
		source = "pkg/outbox/config.go"
	}
	for _, m := range ownPools.FindAllStringSubmatch(p.tree[source], -1) {
		one, err := strconv.Atoi(m[1])
		if err != nil {
			return 0, err
		}
		n += one
	}
	if n == 0 && strings.Contains(p.tree[source], "db.WithPool(") {
		return 0, fmt.Errorf("%s opens a pool whose size is none of %s", source, ownPools)
	}
	return n, nil
}

// TestConnectionsAreDocumented: the page on operations has the figure of production.
func TestConnectionsAreDocumented(t *testing.T) {
	p := inspected(t)
	root, err := stack.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	require.NoError(t, err)
	r, err := render(p.tree, k8s+"/overlays/id-prod")
	require.NoError(t, err)
	most, err := mostConnections(p, r)
	require.NoError(t, err)
	require.Contains(t, string(page), fmt.Sprintf("at most %d connections", most))
}
