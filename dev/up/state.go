package up

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/seahub/seahub-mq/dev/proc"
)

// Phase of a supervisor.
type Phase string

// The phases.
const (
	Starting Phase = "starting"
	Ready    Phase = "ready"
	Failed   Phase = "failed"
)

// State is what the supervisor writes of itself.
type State struct {
	Pid     int    `json:"pid"`
	Started uint64 `json:"started"`
	Boot    string `json:"boot"`

	Phase Phase  `json:"phase"`
	Step  string `json:"step,omitempty"`
	Error string `json:"error,omitempty"`

	DSN      string            `json:"dsn,omitempty"`
	Redis    string            `json:"redis,omitempty"`
	FCM      string            `json:"fcm,omitempty"`
	Binaries string            `json:"binaries,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Services []ServiceState    `json:"services,omitempty"`
}

// ServiceState is one service process.
type ServiceState struct {
	Name  string `json:"name"`
	Admin string `json:"admin"`
	Pid   int    `json:"pid"`
}

func statePath(dir string) string { return filepath.Join(dir, "state.json") }

// newState is the caller's own identity.
func newState() (State, error) {
	self, err := proc.Read(os.Getpid())
	if err != nil {
		return State{}, err
	}
	boot, err := proc.Boot()
	return State{Pid: os.Getpid(), Started: self.Started, Boot: boot, Phase: Starting}, err
}

// write replaces the state file as a whole.
func (s State) write(dir string) error {
	body, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the state: %w", err)
	}
	path := statePath(dir)
	if err := os.WriteFile(path+".new", body, 0o600); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

// errNone says that the folder has no state.
var errNone = errors.New("nothing is up")

func readState(dir string) (State, error) {
	var s State
	body, err := os.ReadFile(statePath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return s, errNone
	}
	if err != nil {
		return s, fmt.Errorf("read the state: %w", err)
	}
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fmt.Errorf("%s is damaged: %w", statePath(dir), err)
	}
	return s, nil
}

// alive says whether the very process that wrote the state still runs, and not
// another one that got its pid later.
func (s State) alive() bool {
	boot, err := proc.Boot()
	if err != nil || boot != s.Boot {
		return false
	}
	stat, err := proc.Read(s.Pid)
	return err == nil && stat.Started == s.Started
}

// signal reaches the process that wrote the state or nobody: the handle is taken
// first, then it is looked at who holds the pid, and the handle stays with that one.
func (s State) signal(sig syscall.Signal) error {
	p, err := os.FindProcess(s.Pid)
	if err != nil {
		return fmt.Errorf("pid %d: %w", s.Pid, err)
	}
	defer func() { _ = p.Release() }()
	if !s.alive() {
		return fmt.Errorf("pid %d: %w", s.Pid, os.ErrProcessDone)
	}
	if err := p.Signal(sig); err != nil {
		return fmt.Errorf("send %s to pid %d: %w", sig, s.Pid, err)
	}
	return nil
}
