package stack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

const (
	startTimeout = 30 * time.Second
	probeEvery   = 20 * time.Millisecond
)

// Service is one running service process.
type Service struct {
	*testenv.Child
	// Name is the instance's name, such as relay-1; Kind the service's.
	Name, Kind string
	// Admin is the address of its admin listener, host:port.
	Admin string
	Log   string

	http *http.Client
}

// StartService starts an instance of a service and waits until its admin listener is
// up, which says nothing of readiness (see AwaitReady). env is added to the stack's
// own variables and wins over them.
func (s *Stack) StartService(ctx context.Context, service, instance string, env map[string]string, args ...string) (*Service, error) {
	binary, ok := s.binaries[service]
	if !ok {
		return nil, fmt.Errorf("service %s was not built for this stack", service)
	}
	log := filepath.Join(s.logs, instance+".log")
	from := size(log)
	child, err := testenv.StartChild(testenv.ChildSpec{Path: binary, Args: args, Env: s.environment(s.accountOf(service), env), Dir: s.dir, Log: log})
	if err != nil {
		return nil, err
	}
	svc := &Service{Child: child, Name: instance, Kind: service, Log: log, http: &http.Client{
		Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true},
	}}
	s.track(svc)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if svc.Admin = adminOf(log, from); svc.Admin != "" {
			return svc, nil
		}
		select {
		case <-child.Done():
			return nil, fmt.Errorf("%s ended at its start with code %d; its log ends:\n%s", instance, child.ExitCode(), child.LogTail())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s opened no admin listener: %w; its log ends:\n%s", instance, ctx.Err(), child.LogTail()), child.Kill())
		case <-time.After(probeEvery):
		}
	}
}

// Command runs a service's subcommand with the stack's environment and returns what
// it printed and its exit code.
func (s *Stack) Command(ctx context.Context, service string, env map[string]string, args ...string) (out string, code int, err error) {
	binary, ok := s.binaries[service]
	if !ok {
		return "", 0, fmt.Errorf("service %s was not built for this stack", service)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = s.environment(s.accountOf(service), env), s.dir, 5*time.Second
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(text), exit.ExitCode(), nil
	}
	return string(text), 0, err
}

// environment is what a service gets: nothing of the caller's own environment but
// PATH, so that a run does not depend on who runs it.
func (s *Stack) environment(more ...map[string]string) []string {
	merged := map[string]string{"PATH": os.Getenv("PATH"), "SEAHUB_ADMIN_ADDR": "127.0.0.1:0", "GORACE": "exitcode=66"}
	for _, m := range append([]map[string]string{s.Env}, more...) {
		for k, v := range m {
			merged[k] = v
		}
	}
	env := make([]string, 0, len(merged))
	for k, v := range merged {
		env = append(env, k+"="+v)
	}
	sort.Strings(env)
	return env
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// adminOf reads the admin address off the log lines written since from.
func adminOf(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return ""
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Message, Admin string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Message == "started" {
			return line.Admin
		}
	}
	return ""
}

// Get asks the admin listener for path and returns status and body.
func (s *Service) Get(ctx context.Context, path string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Admin+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("%s %s: %w", s.Name, path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// AwaitReady waits until /readyz answers 200.
func (s *Service) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		status, body, err := s.Get(ctx, "/readyz")
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-s.Done():
			return fmt.Errorf("%s ended; its log ends:\n%s", s.Name, s.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (last answer: %d %s)", s.Name, ctx.Err(), status, strings.TrimSpace(body))
		case <-time.After(probeEvery):
		}
	}
}
