package testenv

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// childGrace bounds Stop when the caller's context sets no nearer bound.
const childGrace = time.Minute

// Child is a program under test that runs as a child of this process: a service,
// or the test's own binary started again to be killed at some step. It ends with
// this process whatever happens to it. Safe for concurrent use.
type Child struct {
	name string
	proc *process
}

// ChildSpec says what to run. Env is the whole environment of the child.
type ChildSpec struct {
	Path string
	Args []string
	Env  []string
	Dir  string
	// Log is the file that takes the child's output; it is appended to.
	Log string
}

// StartChild starts a program.
func StartChild(spec ChildSpec) (*Child, error) {
	env := spec.Env
	if env == nil {
		env = []string{} // nil would mean "the environment of this process"
	}
	proc, err := startCmd(&exec.Cmd{
		Path: spec.Path, Args: append([]string{spec.Path}, spec.Args...), Env: env, Dir: spec.Dir,
	}, spec.Log)
	if err != nil {
		return nil, fmt.Errorf("testenv: %w", err)
	}
	return &Child{name: spec.Path, proc: proc}, nil
}

// Pid of the child, also after its end.
func (c *Child) Pid() int { return c.proc.pid() }

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.proc.done }

// ExitCode waits for the end and returns the exit code; -1 if a signal ended it.
func (c *Child) ExitCode() int {
	<-c.proc.done
	return c.proc.cmd.ProcessState.ExitCode()
}

// Stop sends SIGTERM and waits until the child ends; when ctx ends first it is
// killed, and that is an error.
// A service drains before it ends: the bound is its longest drain, not a server's.
func (c *Child) Stop(ctx context.Context) error { return c.proc.stopWithin(ctx, childGrace) }

// Kill ends the child at once (SIGKILL) and waits until it is gone.
func (c *Child) Kill() error { return c.proc.kill() }

// Freeze stops the child's clockwork (SIGSTOP) until Thaw.
func (c *Child) Freeze() error { return c.proc.signal(syscall.SIGSTOP) }

// Thaw lets a frozen child go on (SIGCONT).
func (c *Child) Thaw() error { return c.proc.signal(syscall.SIGCONT) }

// LogTail is the end of the child's output, for error messages.
func (c *Child) LogTail() string { return tail(c.proc.logPath) }
