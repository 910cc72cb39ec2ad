package deploy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
)

// instruction is one line of a Dockerfile, continuations joined.
type instruction struct {
	stage    int
	op, args string
}

func parseDockerfile(text string) []instruction {
	var out []instruction
	stage := -1
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		op, args, _ := strings.Cut(line, " ")
		if op = strings.ToUpper(op); op == "FROM" {
			stage++
		}
		out = append(out, instruction{stage, op, strings.Join(strings.Fields(args), " ")})
	}
	return out
}

// buildCommand is the Dockerfile's own, with its arguments in place.
func buildCommand(lines []instruction, args map[string]string) (command string, env []string, err error) {
	for _, l := range lines {
		switch {
		case l.stage == 0 && l.op == "ENV":
			env = append(env, strings.Fields(l.args)...)
		case l.op == "RUN" && regexp.MustCompile(`^go .*\bbuild\b`).MatchString(l.args):
			if command != "" {
				return "", nil, errors.New("the Dockerfile has two build commands")
			}
			command = expand(l.args, args)
		}
	}
	if command == "" {
		err = errors.New("the Dockerfile has no build command")
	}
	return command, env, err
}

func expand(text string, args map[string]string) string {
	return os.Expand(text, func(name string) string {
		if v, ok := args[name]; ok {
			return v
		}
		return "${" + name + "}"
	})
}

// dockerfileProblems looks at what the Dockerfile says, for every service.
func dockerfileProblems(f tree) []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, "Dockerfile: "+fmt.Sprintf(format, args...)) }
	lines := parseDockerfile(f["Dockerfile"])
	last := lines[len(lines)-1].stage
	copies := copied(lines)
	for _, service := range f.services() {
		folder := "services/" + service
		for _, need := range append([]string{folder}, replaced(folder, f[folder+"/go.mod"])...) {
			if !slices.Contains(copies, strings.ReplaceAll(need, service, "${SERVICE}")) {
				bad("%s needs %s, which is not copied", service, need)
			}
			if !slices.Contains(copies, strings.ReplaceAll(need, service, "${SERVICE}")+"/go.mod") {
				bad("%s needs %s/go.mod before the modules are downloaded", service, need)
			}
		}
	}
	command, env, err := buildCommand(lines, nil)
	if err != nil {
		bad("%v", err)
	}
	for _, want := range []string{"-trimpath", "service.version=${VERSION}", "service.commit=${COMMIT}"} {
		if !strings.Contains(command, want) {
			bad("the build command lacks %s", want)
		}
	}
	for _, want := range []string{"GOWORK=off", "CGO_ENABLED=0", "GOTOOLCHAIN=local"} {
		if !slices.Contains(env, want) {
			bad("the build lacks %s", want)
		}
	}
	has := func(op, args string) bool { return slices.Contains(lines, instruction{last, op, args}) }
	if !has("USER", "65532:65532") {
		bad("the image does not run as 65532")
	}
	if !has("ENTRYPOINT", `["/service"]`) {
		bad("the entry point is not the binary")
	}
	return append(out, baseProblems(f, lines)...)
}

// baseProblems: both bases have a tag that does not move by itself to another release, and
// the compiler is that of go.work or later.
func baseProblems(f tree, lines []instruction) []string {
	var out []string
	given := map[string]string{}
	for _, l := range lines {
		name, value, _ := strings.Cut(l.args, "=")
		if l.op == "ARG" && l.stage < 0 {
			given[name] = value
		}
		if l.op != "FROM" {
			continue
		}
		image := expand(strings.Fields(l.args)[0], given)
		_, tag, ok := strings.Cut(path.Base(image), ":")
		if !ok || tag == "latest" {
			out = append(out, fmt.Sprintf("Dockerfile: base %s is not pinned", image))
		}
	}
	want := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(f["go.work"])
	if len(want) == 0 || !strings.HasPrefix(given["GO_IMAGE"], "golang:"+want[1]+".") {
		out = append(out, fmt.Sprintf("Dockerfile: %s is not the Go of go.work", given["GO_IMAGE"]))
	}
	return out
}

// copied are the sources of the build stage's COPY lines.
func copied(lines []instruction) []string {
	var out []string
	for _, l := range lines {
		if words := strings.Fields(l.args); l.op == "COPY" && l.stage == 0 {
			out = append(out, words[:len(words)-1]...)
		}
	}
	return out
}

var replacement = regexp.MustCompile(`(?m)=> (\.\.?/\S+)$`)

// replaced are the folders of the checkout that a module takes other modules from.
func replaced(folder, gomod string) []string {
	var out []string
	for _, m := range replacement.FindAllStringSubmatch(gomod, -1) {
		out = append(out, path.Join(folder, m[1]))
	}
	return out
}

// imageBuild does in dir what the Dockerfile's build stage does, and returns the binary.
func imageBuild(ctx context.Context, root, dir string, f tree, args map[string]string) (string, error) {
	lines := parseDockerfile(f["Dockerfile"])
	for _, from := range copied(lines) {
		from = expand(from, args)
		if err := copyInto(dir, root, from, f[".dockerignore"]); err != nil {
			return "", fmt.Errorf("COPY %s: %w", from, err)
		}
	}
	command, env, err := buildCommand(lines, args)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "service")
	cmd := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(command, "/out/service", binary))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", command, err, text)
	}
	return binary, nil
}

// copyInto copies what .dockerignore leaves of a file or folder of the checkout.
func copyInto(dir, root, from, ignore string) error {
	return filepath.WalkDir(filepath.Join(root, from), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if ignored, err := dockerIgnores(ignore, filepath.ToSlash(rel)); ignored || err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	})
}

// dockerIgnores knows the few forms that our .dockerignore uses; the last match decides.
func dockerIgnores(ignore, name string) (bool, error) {
	out := false
	for line := range strings.SplitSeq(ignore, "\n") {
		line = strings.TrimSpace(line)
		kept, exception := strings.CutPrefix(line, "!")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case line == "*":
			out = true
		case exception && !strings.ContainsAny(kept, "*?["):
			if name == kept || strings.HasPrefix(name, kept+"/") {
				out = false
			}
		case strings.HasPrefix(line, "**/"):
			if ok, err := path.Match(strings.TrimPrefix(line, "**/"), path.Base(name)); err != nil || ok {
				out = true
			}
		default:
			return false, fmt.Errorf(".dockerignore: no test knows %q", line)
		}
	}
	return out, nil
}

func TestDockerfile(t *testing.T) {
	require.Empty(t, dockerfileProblems(checkout(t)))
}

// TestSameSourcesSameBinary: where a service is built leaves no trace in its binary, and
// what it was told to be is what it says that it is.
func TestSameSourcesSameBinary(t *testing.T) {
	root, err := stack.Root()
	require.NoError(t, err)
	f := checkout(t)
	args := map[string]string{"SERVICE": "relay", "VERSION": "1.2.3-test", "COMMIT": "0123abc"}
	sum := func(dir string) [32]byte {
		binary, err := imageBuild(t.Context(), root, dir, f, args)
		require.NoError(t, err)
		content, err := os.ReadFile(binary)
		require.NoError(t, err)
		require.NotContains(t, string(content), dir)
		out, err := exec.CommandContext(t.Context(), binary, "version").Output()
		require.NoError(t, err)
		require.Regexp(t, `^relay 1\.2\.3-test 0123abc go1\.`, string(out))
		return sha256.Sum256(content)
	}
	first := sum(t.TempDir())
	require.Equal(t, first, sum(filepath.Join(t.TempDir(), "a", "longer", "path")), "two builds of the same sources differ")
}
