package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestOnlyAClearYesIsOne(t *testing.T) {
	for answer, want := range map[string]error{
		"y\n": nil, "YES\n": nil, " yes": nil, "\n": errNotConfirmed, "": errNotConfirmed, "n\n": errNotConfirmed, "yep\n": errNotConfirmed,
	} {
		var out bytes.Buffer
		require.ErrorIs(t, ask(t.Context(), strings.NewReader(answer), &out, "sure?"), want, answer)
		require.Equal(t, "sure?", out.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, hold, err := os.Pipe()
	require.NoError(t, err)
	require.ErrorIs(t, ask(ctx, in, &bytes.Buffer{}, ""), context.Canceled, "an interrupt ends the question")
	require.NoError(t, hold.Close()) // and the goroutine that reads
}

// terminal opens a pseudo terminal: what is written to it a command reads.
func terminal(t *testing.T) (keys, screen *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = keys.Close() })
	var number, unlock int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &unlock, syscall.TIOCGPTN: &number} {
		_, _, code := syscall.Syscall(syscall.SYS_IOCTL, keys.Fd(), request, uintptr(unsafe.Pointer(value)))
		require.Zero(t, code)
	}
	screen, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = screen.Close() })
	return keys, screen
}

// A person at a terminal is told the number and asked; a script is not.
func TestAPersonIsAskedBeforeRowsAreChanged(t *testing.T) {
	r := newRig(t)
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	r.append(t, "1", "2", "3")
	r.Exec(t, "UPDATE outbox_event SET status = 'FAILED'")
	self, err := os.Executable()
	require.NoError(t, err)
	at := func(answer string, args ...string) (stderr string, err error) {
		keys, screen := terminal(t)
		_, err = keys.WriteString(answer)
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), self, append(args, "--all", "--reason", "test")...)
		var text bytes.Buffer
		cmd.Env, cmd.Stdin, cmd.Stderr = r.env, screen, &text
		err = cmd.Run()
		return text.String(), err
	}
	text, err := at("n\n", "requeue")
	require.Error(t, err)
	require.Contains(t, text, "3 FAILED events will be requeued. Go on? [y/N]")
	require.Contains(t, text, "nothing was changed")
	require.EqualValues(t, 3, r.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'FAILED'"))
	require.Zero(t, r.QueryInt(t, "SELECT COUNT(*) FROM mq_audit"))
	_, err = at("y\n", "requeue")
	require.NoError(t, err)
	require.EqualValues(t, 3, r.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'PENDING'"))
	r.Exec(t, "UPDATE outbox_event SET status = 'FAILED'")
	text, err = at("", "discard", "--yes")
	require.NoError(t, err)
	require.NotContains(t, text, "Go on?")
}

func TestEveryCommandTellsItsExitCodes(t *testing.T) {
	r := newRig(t)
	for _, command := range [][]string{
		{"status"}, {"failed"}, {"requeue"}, {"discard"}, {"purge"}, {"migrate"}, {"dead", "replay"}, {"flags", "set"},
	} {
		out, code := r.command(t, append(command, "--help")...)
		require.Zero(t, code, command)
		require.Contains(t, out, "Exit codes: 0 done; 1 failed", command)
	}
}

func TestStatusShowsTheRelaysAndWhatLags(t *testing.T) {
	r := newRig(t)
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	r.run(t)
	r.append(t, "1")
	testenv.Eventually(t, soon, "the relay has told of itself", func() bool {
		return r.QueryInt(t, "SELECT COUNT(*) FROM mq_task_health WHERE role = 'relay' AND last_confirm_at IS NOT NULL") > 0
	})
	r.Exec(t, "UPDATE outbox_event SET created_at = NOW(3) - INTERVAL 20 DAY, published_at = NOW(3)")
	out, code := r.command(t, "status", "--json")
	require.Zero(t, code)
	var st status
	decode(t, out, &st)
	require.Len(t, st.Relays, 1)
	require.GreaterOrEqual(t, st.Relays[0].LastConfirm, time.Duration(0))
	require.InDelta(t, 6*24, st.PurgeLag.Hours(), 1)
	require.NotNil(t, st.HistoryList)
	out, code = r.command(t, "status")
	require.Zero(t, code)
	require.Contains(t, out, "last confirm")
	require.Contains(t, out, "past its retention")
}
