package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
)

// TestTidyCheck: the script that holds the modules together finds each way in which they
// may fall apart, in a workspace of two small modules.
func TestTidyCheck(t *testing.T) {
	root, err := stack.Root()
	require.NoError(t, err)
	script, err := os.ReadFile(filepath.Join(root, "tools", "tidy-check.sh"))
	require.NoError(t, err)
	const program = "package main\n\nimport _ \"example.com/common\"\n\nfunc main() {}\n"
	const gomod = "module example.com/NAME\n\ngo 1.26.0\n\nrequire example.com/common v1.0.0\n\nreplace example.com/common => ../common\n"
	whole := map[string]string{
		"tools/tidy-check.sh": string(script),
		"go.work":             "go 1.26.0\n\nuse (\n\t./a\n\t./b\n)\n",
		"common/go.mod":       "module example.com/common\n\ngo 1.26.0\n",
		"common/shared.go":    "package shared\n",
		"a/go.mod":            gomod, "a/main.go": program,
		"b/go.mod": gomod, "b/main.go": program,
	}
	for name, c := range map[string]struct{ file, text, want string }{
		"whole":              {"README", "", ""},
		"two versions":       {"b/go.mod", "module example.com/b\n\ngo 1.26.0\n\nrequire example.com/common v1.1.0\n\nreplace example.com/common => ../common\n", "example.com/common: v1.0.0 in a, v1.1.0 in b"},
		"two Go versions":    {"b/go.mod", "module example.com/b\n\ngo 1.25.0\n\nrequire example.com/common v1.0.0\n\nreplace example.com/common => ../common\n", "b/go.mod says go 1.25.0, go.work says go 1.26.0"},
		"not tidy":           {"b/main.go", "package main\n\nfunc main() {}\n", "b: run GOWORK=off go -C b mod tidy"},
		"not alone":          {"b/go.mod", "module example.com/b\n\ngo 1.26.0\n", "b does not build without go.work"},
		"not in the go.work": {"go.work", "go 1.26.0\n\nuse ./a\n", "go.work does not use ./b"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(file, text string) {
				require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o755))
			}
			for file, text := range whole {
				write(file, text)
			}
			write(c.file, c.text)
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "tools", "tidy-check.sh"), "a", "b")
			cmd.Env = append(os.Environ(), "GOPROXY=off")
			out, err := cmd.CombinedOutput()
			if c.want == "" {
				require.NoError(t, err, string(out))
				return
			}
			require.Error(t, err, string(out))
			require.Contains(t, string(out), c.want)
		})
	}
}
