package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/seahub/seahub-mq/dev/lockdir"
)

// Down stops what Up started in this folder, and nothing else. Nothing being up is
// fine.
func Down(ctx context.Context, o Options, out io.Writer) error {
	state, held, err := look(o)
	if errors.Is(err, errNone) && !held {
		_, _ = fmt.Fprintln(out, "nothing is up")
		return nil
	}
	if err != nil {
		return err
	}
	if !held {
		_, _ = fmt.Fprintf(out, "nothing is up; the last one, pid %d, ended by itself (see %s)\n", state.Pid, filepath.Join(o.Dir, "supervisor.log"))
		return forget(o)
	}
	if err := state.signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the supervisor: %w", err)
	}
	if err := awaitEnd(ctx, o, state); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "stopped: supervisor (pid %d), MariaDB, Redis, the FCM fake", state.Pid)
	for _, s := range state.Services {
		_, _ = fmt.Fprintf(out, ", %s", s.Name)
	}
	_, _ = fmt.Fprintf(out, "; logs are in %s\n", filepath.Join(o.Dir, "logs"))
	return nil
}

// awaitEnd waits for the folder's lock, which the supervisor holds while it lives.
func awaitEnd(ctx context.Context, o Options, state State) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime+10*time.Second)
	defer cancel()
	for {
		lock, err := lockdir.Acquire(o.Dir)
		if err == nil {
			return lock.Release()
		}
		if !errors.Is(err, lockdir.ErrHeld) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the supervisor, pid %d, has not ended: %w; see %s, and end it with kill -9 %d if nothing else helps: its children end with it",
				state.Pid, ctx.Err(), filepath.Join(o.Dir, "supervisor.log"), state.Pid)
		case <-time.After(pollEvery):
		}
	}
}

// forget removes the state of one that is gone.
func forget(o Options) error {
	if err := os.Remove(statePath(o.Dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the old state: %w", err)
	}
	return nil
}

// look reads the state, and whether its writer lives.
func look(o Options) (State, bool, error) {
	if _, err := os.Stat(o.Dir); errors.Is(err, os.ErrNotExist) {
		return State{}, false, errNone
	}
	held := false
	lock, err := lockdir.Acquire(o.Dir)
	switch {
	case errors.Is(err, lockdir.ErrHeld):
		held = true
	case err != nil:
		return State{}, false, err
	default:
		if err := lock.Release(); err != nil {
			return State{}, false, err
		}
	}
	state, err := readState(o.Dir)
	if held && errors.Is(err, errNone) {
		err = fmt.Errorf("%s is in use but has no state yet: try again in a moment", o.Dir)
	}
	return state, held, err
}

// Status prints what is up, and how each part of it is. It reports false unless all of it
// is up and well.
func Status(ctx context.Context, o Options, out io.Writer) (bool, error) {
	state, held, err := look(o)
	if errors.Is(err, errNone) {
		_, _ = fmt.Fprintln(out, "nothing is up")
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !held {
		_, _ = fmt.Fprintf(out, "nothing is up; the last one, pid %d, ended: %s\n", state.Pid, orElse(state.Error, "without a word"))
		return false, nil
	}
	_, _ = fmt.Fprintf(out, "supervisor pid %d: %s %s\n", state.Pid, state.Phase, state.Step)
	if state.Phase != Ready {
		return true, nil
	}
	well := true
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, p := range probeServers(ctx, state) {
		well = well && p.trouble == ""
		_, _ = fmt.Fprintf(t, "%s\t\t%s\n", p.name, orElse(p.trouble, "answers"))
	}
	for _, s := range state.Services {
		trouble := probeService(ctx, s)
		well = well && trouble == ""
		_, _ = fmt.Fprintf(t, "%s\tpid %d\t%s\n", s.Name, s.Pid, orElse(trouble, "ready"))
	}
	if err := t.Flush(); err != nil {
		return well, err
	}
	return well, printAddresses(out, o, state)
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
