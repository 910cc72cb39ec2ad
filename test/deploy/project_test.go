package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

// key is what `config keys --json` prints of each key.
type key struct {
	Env      string `json:"env"`
	Default  string `json:"default"`
	Required bool   `json:"required"`
	Secret   bool   `json:"secret"`
}

// project is the checkout and what its services say of themselves.
type project struct {
	tree
	keys     map[string]map[string]key // by service and variable
	binaries map[string]string
	fcmKey   string
}

var (
	buildOnce sync.Once
	shared    *project
	errBuild  error
	buildDir  string
)

// TestMain removes what the tests built together.
func TestMain(m *testing.M) {
	code := m.Run()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// inspected builds every service as the Dockerfile does, once.
func inspected(t *testing.T) *project {
	t.Helper()
	f := checkout(t)
	buildOnce.Do(func() { shared, errBuild = inspect(context.WithoutCancel(t.Context()), f) })
	require.NoError(t, errBuild)
	return shared
}

func inspect(ctx context.Context, f tree) (*project, error) {
	var err error
	if buildDir, err = os.MkdirTemp("", "seahub-deploy-"); err != nil {
		return nil, err
	}
	root, err := stack.Root()
	if err != nil {
		return nil, err
	}
	p := &project{tree: f, keys: map[string]map[string]key{}, binaries: map[string]string{}}
	for _, service := range f.services() {
		args := map[string]string{"SERVICE": service, "VERSION": "test", "COMMIT": ""}
		if p.binaries[service], err = imageBuild(ctx, root, filepath.Join(buildDir, service), f, args); err != nil {
			return nil, err
		}
		out, err := exec.CommandContext(ctx, p.binaries[service], "config", "keys", "--json").Output()
		if err != nil {
			return nil, fmt.Errorf("keys of %s: %w", service, err)
		}
		var list []key
		if err := json.Unmarshal(out, &list); err != nil {
			return nil, fmt.Errorf("keys of %s: %w", service, err)
		}
		p.keys[service] = map[string]key{}
		for _, k := range list {
			p.keys[service][k.Env] = k
		}
	}
	p.fcmKey = filepath.Join(buildDir, "fcm.json")
	fake, err := fcmfake.Start(fcmfake.Options{KeyFile: p.fcmKey})
	if err != nil {
		return nil, err
	}
	return p, fake.Close()
}

// run starts a service's command with env and nothing else, and returns what it printed
// and what it complained about.
func (p *project) run(ctx context.Context, service string, env map[string]string, args ...string) (out, complaints string, err error) {
	cmd := exec.CommandContext(ctx, p.binaries[service], args...)
	cmd.Env = []string{}
	for k, v := range env {
		if k == "SEAHUB_FCM_KEY_FILE" {
			v = p.fcmKey // the path is the pod's
		}
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	sort.Strings(cmd.Env)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), strings.TrimSpace(stderr.String()), err
}

// accepts asks the service itself: an error, and a warning too, is a fault of env.
func (p *project) accepts(ctx context.Context, service string, env map[string]string) error {
	_, complaints, err := p.run(ctx, service, env, "config")
	if err != nil || complaints != "" {
		return errors.Join(err, errors.New(complaints))
	}
	return nil
}

// foreign are variables that the Go runtime reads.
var foreign = map[string]bool{"GOMEMLIMIT": true, "GOGC": true, "GOMAXPROCS": true}

// environmentProblems: every name is a key of some service, and what this one requires is there.
func environmentProblems(env map[string]string, keys map[string]map[string]key, service string) []string {
	var out []string
	known := func(name string) bool {
		for _, list := range keys {
			if _, ok := list[name]; ok {
				return true
			}
		}
		return foreign[name]
	}
	for name := range env {
		if !known(name) {
			out = append(out, fmt.Sprintf("no service reads %s", name))
		}
	}
	for name, k := range keys[service] {
		if k.Required && env[name] == "" {
			out = append(out, fmt.Sprintf("%s is required and not given", name))
		}
	}
	sort.Strings(out)
	return out
}
