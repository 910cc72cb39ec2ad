package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// actAsRelay makes this test binary be the relay, with its arguments.
const actAsRelay = "SEAHUB_TEST_ACT_AS_RELAY"

func TestMain(m *testing.M) {
	if os.Getenv(actAsRelay) != "" {
		_ = os.Unsetenv(actAsRelay)
		main()
	}
	testenv.Main(m)
}

const soon = 20 * time.Second

type rig struct {
	*testenv.Schema
	redis *testenv.RedisServer
	env   []string
}

// newRig gives the test an environment for the relay: a schema, a broker with keys of
// its own, and the rest of the configuration.
func newRig(t *testing.T) *rig {
	s, r := testenv.MariaDB(t), testenv.Redis(t)
	name := strings.NewReplacer("_", "-").Replace(r.Namespace(t))
	return &rig{Schema: s, redis: r, env: []string{
		actAsRelay + "=1", "SEAHUB_ENV=" + name[:min(len(name), 30)], "SEAHUB_COUNTRY=id", "SEAHUB_DB_DSN=" + s.DSN,
		"SEAHUB_MQ_PROVIDER=redis-streams", "SEAHUB_REDIS_ADDRESSES=" + r.Addr, "SEAHUB_ADMIN_ADDR=127.0.0.1:0",
		"HOME=" + t.TempDir(), "USER=tester",
	}}
}

// command runs one command of the relay to its end.
func (r *rig) command(t *testing.T, args ...string) (stdout string, code int) {
	t.Helper()
	stdout, _, code = r.say(t, args...)
	return stdout, code
}

// say is command with what it writes on stderr.
func (r *rig) say(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = r.env
	var out, told strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &told
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Logf("relay %s: %s", strings.Join(args, " "), told.String())
		return out.String(), told.String(), exit.ExitCode()
	}
	require.NoError(t, err)
	return out.String(), told.String(), 0
}

// run starts the relay itself.
func (r *rig) run(t *testing.T, extra ...string) *testenv.Child {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	child, err := testenv.StartChild(testenv.ChildSpec{
		Path: self, Env: append(r.env, extra...), Dir: t.TempDir(), Log: filepath.Join(t.TempDir(), "log"),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the relay's log ends:\n%s", child.LogTail())
		}
		_ = child.Kill()
	})
	return child
}

func (r *rig) append(t *testing.T, ids ...string) {
	t.Helper()
	g, err := db.Open(db.Config{DSN: r.DSN, TimeZone: "+00:00", MaxOpen: 4, DialTimeout: time.Second, IOTimeout: 10 * time.Second})
	require.NoError(t, err)
	pool, err := db.Pool(g)
	require.NoError(t, err)
	defer func() { _ = pool.Close() }()
	require.NoError(t, db.InTx(t.Context(), g, func(tx *gorm.DB) error {
		for _, id := range ids {
			e, err := event.PushDispatched(id)
			if err != nil {
				return err
			}
			if _, err := outbox.Append(t.Context(), tx, e); err != nil {
				return err
			}
		}
		return nil
	}))
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), into), text)
}

func TestTheRelayAndItsCommands(t *testing.T) {
	r := newRig(t)
	out, code := r.command(t, "migrate", "--check")
	require.Equal(t, 1, code, out)
	relay := r.run(t) // before the migration: it waits
	out, code = r.command(t, "migrate")
	require.Zero(t, code)
	require.Contains(t, out, "00001_outbox_event.sql")
	out, code = r.command(t, "migrate", "--check")
	require.Zero(t, code, out)

	r.append(t, "1", "2", "3")
	testenv.Eventually(t, soon, "all events are published", func() bool {
		return r.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'PUBLISHED'") == 3
	})
	stream := "beex:" + strings.TrimPrefix(r.env[1], "SEAHUB_ENV=") + ":events"
	entries, err := r.redis.Client(t).XRange(t.Context(), stream, "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 3)
	for _, id := range []string{"1", "2", "3"} {
		require.Contains(t, fmt.Sprint(entries), `{"pushId":"`+id+`"}`)
	}
	require.NotContains(t, fmt.Sprint(entries), event.HeaderTraceparent, "what is not known is not sent")

	out, code = r.command(t, "status", "--json")
	require.Zero(t, code)
	var st outbox.Status
	decode(t, out, &st)
	require.True(t, st.Leases[0].Held)
	require.EqualValues(t, 3, st.PublishedLastMinute.N)
	out, _ = r.command(t, "status")
	require.Contains(t, out, "outbox-relay:0")

	for _, how := range [][]string{{"--dry-run"}, {"--reason", "x"}} {
		out, told, code := r.say(t, append([]string{"requeue", "--event-id", "push:3"}, how...)...)
		require.Zero(t, code)
		require.Contains(t, out, "0 events")
		require.Contains(t, told, "--status PUBLISHED", "%q finds nothing, and says where there is something", how)
	}
	r.Exec(t, "UPDATE outbox_event SET status = 'FAILED', last_error = 'refused: too large' WHERE event_id <> 'push:3'")
	out, code = r.command(t, "failed")
	require.Zero(t, code)
	require.Contains(t, out, "2 events")
	require.Contains(t, out, "refused: too large")

	out, code = r.command(t, "requeue", "--event-id", "push:1", "--dry-run")
	require.Zero(t, code)
	require.Contains(t, out, "1 events")
	_, code = r.command(t, "requeue", "--event-id", "push:1")
	require.Equal(t, 2, code, "a reason is required")
	_, code = r.command(t, "requeue", "--reason", "x")
	require.Equal(t, 2, code, "a filter is required")
	_, code = r.command(t, "requeue", "--dry-run")
	require.Equal(t, 2, code, "a dry run refuses what the real one would")
	_, code = r.command(t, "requeue", "--all", "--reason", "x", "--from", "yesterday")
	require.Equal(t, 2, code)
	out, code = r.command(t, "requeue", "--event-id", "push:1", "--reason", "broker was cleared", "--json")
	require.Zero(t, code)
	require.JSONEq(t, `{"requeued": 1}`, out)
	out, code = r.command(t, "discard", "--all", "--reason", "no longer wanted", "--who", "me")
	require.Zero(t, code)
	require.Contains(t, out, "1 events discarded")
	testenv.Eventually(t, soon, "the requeued one is out again", func() bool {
		n, err := r.redis.Client(t).XLen(t.Context(), stream).Result()
		return err == nil && n == 4
	})
	_, code = r.command(t, "purge", "--older-than", "1h")
	require.Equal(t, 2, code, "young events may have to be requeued")
	out, code = r.command(t, "purge")
	require.Zero(t, code)
	require.Contains(t, out, "0 events purged")

	require.NoError(t, relay.Stop(t.Context()))
	require.Zero(t, relay.ExitCode())
}

func TestDeadLetterCommands(t *testing.T) {
	r := newRig(t)
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	require.NoError(t, outbox.NewDeadLetterStore(r.DB).StoreDeadLetter(t.Context(), event.DeadLetter{
		Group: "GID_id_push_dispatch", Topic: "beex-id-events", Tag: "PUSH_DISPATCH", EventID: "push:9",
		Body: []byte(`{"pushId":"9"}`), Headers: map[string]string{event.HeaderCountry: "id"}, Reason: "attempts used up",
	}))
	out, code := r.command(t, "dead", "list", "--json")
	require.Zero(t, code)
	var rows []outbox.DeadLetterRow
	decode(t, out, &rows)
	require.Len(t, rows, 1)
	id := fmt.Sprint(rows[0].ID)
	out, _ = r.command(t, "dead", "show", id)
	require.Contains(t, out, "push:9")
	require.NotContains(t, out, "pushId", "the body only when asked for")
	out, _ = r.command(t, "dead", "show", id, "--body")
	require.Contains(t, out, `{"pushId":"9"}`)
	_, code = r.command(t, "dead", "replay", id)
	require.Equal(t, 2, code)
	out, code = r.command(t, "dead", "replay", id, "--reason", "fixed")
	require.Zero(t, code)
	require.Contains(t, out, "replayed")
	stream := "beex:" + strings.TrimPrefix(r.env[1], "SEAHUB_ENV=") + ":events"
	n, err := r.redis.Client(t).XLen(t.Context(), stream).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	_, code = r.command(t, "dead", "discard", id, "--reason", "again")
	require.Equal(t, 1, code, "it is not open any more")
	for _, wrong := range [][]string{{"show", "nonsense"}, {"list", "--status", "open"}, {"list", "--limit", "0"}} {
		_, code = r.command(t, append([]string{"dead"}, wrong...)...)
		require.Equal(t, 2, code, wrong)
	}
}

// Rows come from other programs too; what they hold must not break a table or reach
// the terminal as a command.
func TestTablesShowControlCharactersAsText(t *testing.T) {
	r := newRig(t)
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	r.Exec(t, `INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, status, created_at)
		VALUES ('x1', 'push:1\n\t2\033[2J', 'PUSH_DISPATCH', 'push_task', '1', '{}', 'FAILED', NOW())`)
	require.NoError(t, outbox.NewDeadLetterStore(r.DB).StoreDeadLetter(t.Context(), event.DeadLetter{
		Group: "g", Tag: "a\tb", EventID: "push:\x1b[2J", Body: []byte("{}"), Headers: map[string]string{"h": "v\nw"},
	}))
	for _, command := range [][]string{{"failed"}, {"dead", "list"}, {"dead", "show", "1"}} {
		out, code := r.command(t, command...)
		require.Zero(t, code, command)
		require.NotContains(t, out, "\x1b", command)
		require.Contains(t, out, "push:", command)
		if command[0] == "failed" {
			require.Equal(t, 3, strings.Count(out, "\n"), out)
		}
	}
}

func TestManyDeadLetters(t *testing.T) {
	r := newRig(t)
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	store := outbox.NewDeadLetterStore(r.DB)
	die := func(group, tag, id string) {
		require.NoError(t, store.StoreDeadLetter(t.Context(), event.DeadLetter{
			Group: group, Topic: "beex-id-events", Tag: tag, EventID: id, Body: []byte(`{}`), Reason: "attempts used up",
		}))
	}
	for i := range 5 {
		die("GID_id_push_dispatch", "PUSH_DISPATCH", fmt.Sprint("push:", i))
		die("GID_id_coupon_expire", "COUPON_EXPIRE", fmt.Sprint("coupon:", i))
	}
	stream := "beex:" + strings.TrimPrefix(r.env[1], "SEAHUB_ENV=") + ":events"
	published := func() int {
		n, err := r.redis.Client(t).XLen(t.Context(), stream).Result()
		require.NoError(t, err)
		return int(n)
	}
	counts := func(text string) (v struct {
		Count, Replayed, Discarded int
		First                      []outbox.DeadLetterRow
	}) {
		decode(t, text, &v)
		return v
	}
	for _, wrong := range [][]string{
		{"replay", "--reason", "x"},
		{"replay", "1", "--all", "--reason", "x"},
		{"discard", "--all"},
		{"replay", "--dry-run"},
	} {
		_, code = r.command(t, append([]string{"dead"}, wrong...)...)
		require.Equal(t, 2, code, "%v", wrong)
	}
	out, code := r.command(t, "dead", "replay", "--group", "GID_id_push_dispatch", "--limit", "3", "--dry-run", "--json")
	require.Zero(t, code)
	require.Equal(t, 3, counts(out).Count)
	require.Len(t, counts(out).First, 3)
	out, code = r.command(t, "dead", "discard", "--all", "--dry-run")
	require.Zero(t, code)
	require.Contains(t, out, "10 dead letters")
	require.Zero(t, published(), "a dry run sends nothing")
	require.Equal(t, int64(10), r.QueryInt(t, "SELECT COUNT(*) FROM mq_dead_letter WHERE status = 'OPEN'"))
	require.Zero(t, r.QueryInt(t, "SELECT COUNT(*) FROM mq_audit WHERE target = 'mq_dead_letter'"))

	out, code = r.command(t, "dead", "replay", "--group", "GID_id_push_dispatch", "--limit", "3", "--reason", "fixed", "--rate", "100", "--json")
	require.Zero(t, code)
	require.Equal(t, 3, counts(out).Replayed)
	require.Equal(t, 3, published())
	out, code = r.command(t, "dead", "discard", "--tag", "COUPON_EXPIRE", "--reason", "no longer wanted", "--who", "me", "--json")
	require.Zero(t, code)
	require.Equal(t, 5, counts(out).Discarded)
	require.Equal(t, 3, published())
	require.Equal(t, int64(8), r.QueryInt(t, "SELECT COUNT(*) FROM mq_audit WHERE target = 'mq_dead_letter'"))
	require.Equal(t, int64(5), r.QueryInt(t, "SELECT COUNT(*) FROM mq_dead_letter WHERE status = 'DISCARDED' AND resolved_by = 'me' AND resolved_why = 'no longer wanted'"))
	out, code = r.command(t, "dead", "replay", "--all", "--reason", "the rest")
	require.Zero(t, code)
	require.Contains(t, out, "2 dead letters replayed")
	out, code = r.command(t, "dead", "replay", "--all", "--reason", "none is left")
	require.Zero(t, code)
	require.Contains(t, out, "0 dead letters replayed")
}

func TestWithoutAProviderTheRelayStaysUpAndClaimsNothing(t *testing.T) {
	r := newRig(t)
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	r.append(t, "1")
	relay := r.run(t, "SEAHUB_MQ_PROVIDER=")
	testenv.Eventually(t, soon, "it says so", func() bool { return strings.Contains(relay.LogTail(), "SEAHUB_MQ_PROVIDER") })
	time.Sleep(500 * time.Millisecond)
	require.EqualValues(t, 1, r.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'PENDING'"))
	require.NoError(t, relay.Stop(t.Context()))
	require.Zero(t, relay.ExitCode())
}
