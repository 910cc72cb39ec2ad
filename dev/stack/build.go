package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Services are the deployables of the project, as folders of services/.
func Services() []string {
	return []string{"relay", "push-consumer", "coupon-consumer", "campaign-consumer", "ops-consumer"}
}

// Root finds the checkout that holds the working directory: the folder with go.work.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.work above the working directory: run this inside a checkout of the project")
		}
		dir = parent
	}
}

// Binaries are the paths that Build gives to services in dir.
func Binaries(dir string, names ...string) map[string]string {
	binaries := make(map[string]string, len(names))
	for _, name := range names {
		binaries[name] = filepath.Join(dir, name)
	}
	return binaries
}

// Build compiles services into dir and returns the paths of the binaries by name. A
// race build reports data races of the service in its log and ends it with code 66.
func Build(ctx context.Context, root, dir string, race bool, names ...string) (map[string]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder for binaries: %w", err)
	}
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	if race {
		args = append(args, "-race")
	}
	for _, name := range names {
		args = append(args, "./services/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return Binaries(dir, names...), nil
}
