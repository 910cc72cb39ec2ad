// Package deploy checks, without a cluster and without a Docker engine, what is deployed:
// the Dockerfile, compose.yaml and the manifests of deploy/k8s, against each other and
// against what the services themselves say of their configuration and metrics.
package deploy

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/seahub/seahub-mq/dev/stack"
)

// tree holds files of the checkout by their path, so that a mistake can be planted in a
// copy and nothing is written.
type tree map[string]string

// deployed are the files and folders that the checks read.
var deployed = []string{"Dockerfile", ".dockerignore", "compose.yaml", "go.work", "Makefile", "deploy/k8s", "dev/stack", "dev/up",
	"pkg/outbox/config.go"}

func checkout(t *testing.T) tree {
	t.Helper()
	root, err := stack.Root()
	require.NoError(t, err)
	out := tree{}
	for _, from := range deployed {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, from), func(name string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, name)
			out[filepath.ToSlash(rel)] = string(text)
			return err
		}))
	}
	for _, file := range []string{"go.mod", "wire.go"} {
		found, err := filepath.Glob(filepath.Join(root, "services", "*", file))
		require.NoError(t, err)
		for _, name := range found {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			out[path.Join("services", filepath.Base(filepath.Dir(name)), file)] = string(text)
		}
	}
	return out
}

// with is a copy in which old has become new, in one place.
func (f tree) with(name, old, replacement string) (tree, error) {
	if n := strings.Count(f[name], old); n == 0 {
		return nil, fmt.Errorf("%s does not hold %q", name, old)
	}
	out := make(tree, len(f))
	for k, v := range f {
		out[k] = v
	}
	out[name] = strings.Replace(f[name], old, replacement, 1)
	return out, nil
}

// folders are the direct subfolders of dir that hold a kustomization.
func (f tree) folders(dir string) []string {
	var out []string
	for name := range f {
		if path.Base(name) == "kustomization.yaml" && path.Dir(path.Dir(name)) == dir {
			out = append(out, path.Dir(name))
		}
	}
	slices.Sort(out)
	return out
}

// disk is the tree as kustomize reads it.
func (f tree) disk() (filesys.FileSystem, error) {
	fs := filesys.MakeFsInMemory()
	for name, text := range f {
		if !strings.HasPrefix(name, "deploy/k8s/") {
			continue
		}
		if err := fs.WriteFile("/"+name, []byte(text)); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	return fs, nil
}
