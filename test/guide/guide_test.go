package guide

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

const soon = 30 * time.Second

// TestAFifthConsumer makes what the page makes, and sees the event have its effect.
func TestAFifthConsumer(t *testing.T) {
	root, err := stack.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "fifth-consumer.md"))
	require.NoError(t, err)
	steps, err := parse(string(page))
	require.NoError(t, err)
	copied := t.TempDir()
	copyProject(t, root, copied)
	// What `make deps` fetched for the project serves the copy as well.
	require.NoError(t, os.Mkdir(filepath.Join(copied, ".local"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(root, ".local", "cache"), filepath.Join(copied, ".local", "cache")))
	for _, s := range steps {
		began := time.Now()
		require.NoError(t, s.follow(copied), "line %d: %s %s", s.line, s.kind, s.path)
		if s.kind == run {
			t.Logf("line %d took %s", s.line, time.Since(began).Round(100*time.Millisecond))
		}
	}
	table, event, commands := shownOnPage(t, steps)

	bin := filepath.Join(copied, ".local", "bin")
	s, err := stack.Start(t.Context(), stack.Options{Dir: t.TempDir(), Binaries: stack.Binaries(bin, "relay", "badge-consumer")})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if t.Failed() {
			out, _, _ := s.Command(ctx, "relay", nil, "event", "badge:4711:grant")
			t.Log(out)
			for _, service := range s.Services() {
				t.Logf("%s: %s", service.Name, service.LogTail())
			}
		}
		require.NoError(t, s.Close(ctx))
	})
	execAll(t, s.DB, table)
	_, err = s.StartService(t.Context(), "relay", "relay-1", nil)
	require.NoError(t, err)
	consume, err := s.StartService(t.Context(), "badge-consumer", "badge", map[string]string{"SEAHUB_TASK_ROLE": "consume"})
	require.NoError(t, err)
	require.NoError(t, consume.AwaitReady(t.Context()))
	testenv.Eventually(t, soon, "the pod is known, and can be waited for", func() bool {
		out, _, err := s.Command(t.Context(), "relay", nil, "flags", "list")
		return err == nil && strings.Contains(out, "badge-grant")
	})

	// Flag off: skipped, and the poll's.
	execAll(t, s.DB, strings.ReplaceAll(event, "4711", "4710"))
	testenv.Eventually(t, soon, "the event is skipped", func() bool {
		n, err := consume.Metric(t.Context(), "seahub_consumer_messages_total", map[string]string{"result": "skip"})
		return err == nil && n == 1
	})
	require.Equal(t, "EARNED", statusOf(t, s.DB, "4710"))

	for _, line := range strings.Split(strings.TrimSpace(commands), "\n") {
		out, code, err := runAsShown(t.Context(), s, line)
		require.NoError(t, err)
		require.Zero(t, code, "%s:\n%s", line, out)
	}
	execAll(t, s.DB, event)
	testenv.Eventually(t, soon, "the badge is granted by its event", func() bool { return statusOf(t, s.DB, "4711") == "GRANTED" })
	out, code, err := s.Command(t.Context(), "relay", nil, "bus")
	require.NoError(t, err)
	require.Zero(t, code, out)
	require.Contains(t, out, "GID_id_badge_grant")

	// And the poll does what is left.
	require.Equal(t, "EARNED", statusOf(t, s.DB, "4710"))
	_, err = s.StartService(t.Context(), "badge-consumer", "badge-poll", map[string]string{"SEAHUB_TASK_ROLE": "poll", "SEAHUB_BADGE_POLL_EVERY": "200ms"})
	require.NoError(t, err)
	testenv.Eventually(t, soon, "the poll grants what was skipped", func() bool { return statusOf(t, s.DB, "4710") == "GRANTED" })
}

// shownOnPage are the blocks that the test uses as they stand there.
func shownOnPage(t *testing.T, steps []step) (table, event, commands string) {
	t.Helper()
	for _, s := range steps {
		switch {
		case s.kind == appended:
			table = s.text
		case s.kind == shown && strings.Contains(s.text, "COMMIT;"):
			event = s.text
		case s.kind == shown:
			commands = s.text
		}
	}
	require.NotEmpty(t, table)
	require.NotEmpty(t, event)
	require.Contains(t, commands, "flags set badge-grant on")
	return table, event, commands
}

// runAsShown runs a line of the page with the stack's environment.
func runAsShown(ctx context.Context, s *stack.Stack, line string) (string, int, error) {
	args, ok := strings.CutPrefix(line, ".local/bin/relay ")
	if !ok {
		return "", 0, fmt.Errorf("%q is no command of the relay", line)
	}
	var words []string
	for i, part := range strings.Split(args, `"`) {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return s.Command(ctx, "relay", nil, words...)
}

// execAll runs statements on one connection.
func execAll(t *testing.T, db *sql.DB, statements string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	for _, statement := range strings.Split(statements, ";\n") {
		if strings.TrimSpace(statement) != "" {
			_, err := conn.ExecContext(t.Context(), statement)
			require.NoError(t, err, statement)
		}
	}
}

func statusOf(t *testing.T, db *sql.DB, id string) string {
	t.Helper()
	var s string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT status FROM user_badges WHERE id = ?", id).Scan(&s))
	return s
}

// copyProject copies what git knows or would know, as it is now.
func copyProject(t *testing.T, root, to string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if os.IsNotExist(err) || err == nil && !info.Mode().IsRegular() {
			continue // deleted and not yet committed, or a link of the person's own
		}
		require.NoError(t, err)
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(to, name), text, info.Mode().Perm()))
	}
}

func TestAPageThatDoesNotFitIsRefused(t *testing.T) {
	for name, page := range map[string]string{
		"a file without its name":    "Something:\n\n```go\npackage x\n```\n",
		"a diff without its file":    "```diff\n@@\n-a\n+b\n```\n",
		"a command in a wrong dress": "New file `x.go`:\n\n```sh\nls\n```\n",
	} {
		_, err := parse(page)
		require.Error(t, err, name)
	}
	for _, text := range []string{"", "a\na\n"} {
		_, err := patch(text, "@@\n-a\n+b\n")
		require.Error(t, err)
	}
	got, err := patch("x\na\ny\n", "@@\n x\n-a\n+b\n+c\n")
	require.NoError(t, err)
	require.Equal(t, "x\nb\nc\ny\n", got)
}
