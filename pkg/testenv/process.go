package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stopGrace is how long a server may take to end after SIGTERM when the
	// caller's context sets no nearer bound.
	stopGrace = 15 * time.Second
	// logTail is how much of a server's log an error quotes.
	logTail = 2000
)

// process is one child that we started and have not lost.
type process struct {
	cmd     *exec.Cmd
	logPath string
	done    chan struct{} // closed once the child was reaped
	waitErr error         // valid after done
}

// spawner starts every child of this program from one goroutine that is locked
// to its thread and never ends: the kernel sends a death signal when the
// *thread* that forked ends, not the process, so a child started from a passing
// goroutine would be killed at some later moment, when Go retires that thread.
// A process has one such thread, hence the package variable.
var spawner struct {
	once sync.Once
	jobs chan spawnJob
}

type spawnJob struct {
	cmd    *exec.Cmd
	result chan error
}

func spawn(cmd *exec.Cmd) error {
	spawner.once.Do(func() {
		spawner.jobs = make(chan spawnJob)
		go spawnLoop(spawner.jobs)
	})
	job := spawnJob{cmd: cmd, result: make(chan error, 1)}
	spawner.jobs <- job
	return <-job.result
}

func spawnLoop(jobs <-chan spawnJob) {
	runtime.LockOSThread()
	for job := range jobs {
		job.result <- job.cmd.Start()
	}
}

// startProcess runs path with argv (argv[0] included: some servers are chosen by
// it) in dir, with the environment of this process. Its output is appended to
// logPath.
func startProcess(path string, argv []string, dir, logPath string) (*process, error) {
	return startCmd(&exec.Cmd{Path: path, Args: argv, Dir: dir}, logPath)
}

func startCmd(cmd *exec.Cmd, logPath string) (*process, error) {
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open server log: %w", err)
	}
	defer logFile.Close() // the child has its own copy
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := spawn(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &process{cmd: cmd, logPath: logPath, done: make(chan struct{})}
	go func() {
		p.waitErr = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal reaches only the child that we started: a reaped pid may belong to
// someone else by now, and os.Process refuses to signal it.
func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %v to pid %d: %w", sig, p.pid(), err)
	}
	return nil
}

// stop asks the child to end and waits; when ctx or the grace ends first, it is
// killed and that is the error.
func (p *process) stop(ctx context.Context) error { return p.stopWithin(ctx, stopGrace) }

func (p *process) stopWithin(ctx context.Context, grace time.Duration) error {
	if p.exited() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	// A frozen child takes SIGTERM only after it is thawed.
	err := errors.Join(p.signal(syscall.SIGCONT), p.signal(syscall.SIGTERM))
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(err, p.kill())
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(
			fmt.Errorf("pid %d did not end after SIGTERM and was killed: %w; its log ends:\n%s",
				p.pid(), ctx.Err(), tail(p.logPath)), p.kill())
	}
}

// kill ends the child at once and waits until it is reaped.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// tail returns the end of a log file, for error messages.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > logTail {
		_, _ = f.Seek(-logTail, io.SeekEnd)
	}
	text, err := io.ReadAll(io.LimitReader(f, logTail))
	if err != nil {
		return "(unreadable log: " + err.Error() + ")"
	}
	if len(text) == 0 {
		return "(the log is empty)"
	}
	return strings.TrimSpace(string(text))
}
