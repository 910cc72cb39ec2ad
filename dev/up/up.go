package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/seahub/seahub-mq/dev/lockdir"
	"github.com/seahub/seahub-mq/dev/stack"
)

// superviseCommand is what this program is called with to become the supervisor.
const superviseCommand = "supervise"

// Up starts a supervisor, waits until everything is ready and prints the addresses.
func Up(ctx context.Context, o Options, out io.Writer) error {
	if err := refuseSecond(o); err != nil {
		return err
	}
	// Building first keeps its errors here, and its time out of the bound below.
	_, _ = fmt.Fprintln(out, "building the services")
	if _, err := stack.Build(ctx, o.Root, filepath.Join(o.Dir, "bin"), false, stack.Services()...); err != nil {
		return err
	}
	supervisor, err := launch(o)
	if err != nil {
		return err
	}
	state, err := await(ctx, o, supervisor, out)
	if err != nil {
		return errors.Join(err, supervisor.stop())
	}
	return printAddresses(out, o, state)
}

// refuseSecond says clearly who is in the way.
func refuseSecond(o Options) error {
	lock, err := lockdir.Acquire(o.Dir)
	if errors.Is(err, lockdir.ErrHeld) {
		state, err := readState(o.Dir)
		if err != nil {
			return fmt.Errorf("one is up already in %s (and its state cannot be read: %w)", o.Dir, err)
		}
		return fmt.Errorf("one is up already: supervisor pid %d, %s; `make down` stops it", state.Pid, state.Phase)
	}
	if err != nil {
		return err
	}
	// What an earlier one left says nothing of the next.
	if err := os.Remove(statePath(o.Dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("remove the old state: %w", err), lock.Release())
	}
	return lock.Release()
}

// launched is the supervisor as the command that started it sees it.
type launched struct {
	process *os.Process
	ended   chan struct{}
	log     string
}

// launch starts this program again, detached: in a session of its own, with a log
// instead of a terminal, from a copy that stays when `go run` removes the original.
func launch(o Options) (*launched, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	program := filepath.Join(o.Dir, "bin", "stack")
	if err := copyProgram(program, self); err != nil {
		return nil, err
	}
	l := &launched{log: filepath.Join(o.Dir, "supervisor.log"), ended: make(chan struct{})}
	log, err := os.Create(l.log)
	if err != nil {
		return nil, fmt.Errorf("make the supervisor's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the supervisor has its own
	cmd := exec.Command(program, superviseCommand, "--dir", o.Dir, "--root", o.Root, "--ports-from", strconv.Itoa(o.PortsFrom))
	cmd.Dir, cmd.Stdout, cmd.Stderr = o.Root, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	l.process = cmd.Process
	go func() {
		_ = cmd.Wait() // how it ended stands in its state and log
		close(l.ended)
	}()
	return l, nil
}

func copyProgram(to, from string) error {
	body, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	// A running program's file cannot be written, but replaced.
	if err := os.WriteFile(to+".new", body, 0o755); err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		return fmt.Errorf("copy this program: %w", err)
	}
	return nil
}

// stop ends a supervisor that did not become ready, with all that it started.
func (l *launched) stop() error {
	if err := l.process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the supervisor, pid %d: %w", l.process.Pid, err)
	}
	select {
	case <-l.ended:
		return nil
	case <-time.After(stopTime):
		return fmt.Errorf("the supervisor, pid %d, has not stopped within %s; see %s", l.process.Pid, stopTime, l.log)
	}
}

// await follows the supervisor's state until it is ready.
func await(ctx context.Context, o Options, l *launched, out io.Writer) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	shown := ""
	for {
		state, err := readState(o.Dir)
		if err == nil && state.Pid == l.process.Pid {
			if state.Step != "" && state.Step != shown {
				shown = state.Step
				_, _ = fmt.Fprintln(out, shown)
			}
			if state.Phase == Ready {
				return state, nil
			}
		}
		select {
		case <-l.ended:
			return State{}, l.failure(o)
		case <-ctx.Done():
			return State{}, fmt.Errorf("stopped waiting for everything to be ready: %w; see %s", context.Cause(ctx), l.log)
		case <-time.After(pollEvery):
		}
	}
}

func (l *launched) failure(o Options) error {
	if state, err := readState(o.Dir); err == nil && state.Error != "" {
		return fmt.Errorf("%s\nports can be moved by --ports-from (0: free ones); see %s", state.Error, l.log)
	}
	return fmt.Errorf("the supervisor ended early; see %s", l.log)
}
