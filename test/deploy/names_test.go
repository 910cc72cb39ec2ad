package deploy

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/seahub/seahub-mq/dev/stack"
)

// services are those of go.work, in its order.
func (f tree) services() []string {
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^\s*(?:use )?\./services/(\S+)$`).FindAllStringSubmatch(f["go.work"], -1) {
		out = append(out, m[1])
	}
	return out
}

// nameProblems compares who is called a service where.
func nameProblems(f tree, all []*rendered) []string {
	want := f.services()
	slices.Sort(want)
	var out []string
	compare := func(where string, got []string) {
		got = slices.Clone(got)
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			out = append(out, fmt.Sprintf("%s names the services %v, go.work %v", where, got, want))
		}
	}
	compare("dev/stack", stack.Services())
	var folders []string
	for name := range f {
		if ok, _ := path.Match("services/*/go.mod", name); ok {
			folders = append(folders, path.Base(path.Dir(name)))
		}
	}
	compare("services/", folders)
	compare("deploy/k8s/base", f.baseFiles())
	compare("compose.yaml", f.composeBuilds())
	if !strings.Contains(f["Makefile"], "$(wildcard services/*/go.mod)") {
		out = append(out, "the Makefile does not take its services from services/*/go.mod")
	}
	for _, r := range all {
		var accounts, images []string
		for _, d := range r.Deployments {
			accounts = append(accounts, d.Spec.Template.Spec.ServiceAccountName)
			image, _, _ := strings.Cut(path.Base(d.Spec.Template.Spec.Containers[0].Image), ":")
			images = append(images, image)
			if name := d.Labels["app.kubernetes.io/name"]; name != image || name != accounts[len(accounts)-1] {
				out = append(out, fmt.Sprintf("%s: Deployment %s is labelled %q, runs %q as %q", r.name, d.Name, name, image, accounts[len(accounts)-1]))
			}
		}
		compare(r.name+": accounts", accounts)
		compare(r.name+": images", images)
	}
	return out
}

// baseFiles are the resources of the base: one file for each service.
func (f tree) baseFiles() []string {
	var base struct{ Resources []string }
	_ = yaml.Unmarshal([]byte(f[k8s+"/base/kustomization.yaml"]), &base)
	var out []string
	for _, file := range base.Resources {
		out = append(out, strings.TrimSuffix(file, ".yaml"))
	}
	return out
}

// composeBuilds are the services for which compose.yaml builds images.
func (f tree) composeBuilds() []string {
	c, err := parseCompose(f)
	if err != nil {
		return nil
	}
	var out []string
	for _, s := range c.Services {
		if service := s.Build.Args["SERVICE"]; service != "" {
			out = append(out, service)
		}
	}
	return out
}

func TestServicesAreNamedAlike(t *testing.T) {
	f := checkout(t)
	all, err := renderAll(f)
	require.NoError(t, err)
	require.Empty(t, nameProblems(f, all))
}
