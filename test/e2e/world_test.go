package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// The times of the scaled-down system: everything that production counts in tens of
// seconds is a second or a few here, in the same proportions.
const (
	pollEvery = 500 * time.Millisecond
	overdueBy = 5 * time.Second
	pushLease = 6 * time.Second
	// fcmTimeout is what even a busy machine keeps: a request that is given up may have
	// been accepted, and is made again.
	fcmTimeout = pushLease / 2
	// handOver is how long after a change of a flag both paths may work (pkg/flags).
	handOver = 10 * time.Second
	// soon bounds what is done at once; generous, since machines that run tests are busy.
	soon = 20 * time.Second
)

// world is one running system and the work that the test committed to it, for one of
// the services.
type world struct {
	*stack.Stack
	t    *testing.T
	sub  subject
	gorm *gorm.DB
	dir  string
	ids  atomic.Int64

	mu        sync.Mutex
	committed []string
	offered   map[string]bool // campaigns that the platform lists
}

// newWorld is one for push-consumer.
func newWorld(t *testing.T, change ...func(*stack.Options)) *world {
	t.Helper()
	return newWorldOf(t, pushSubject(), change...)
}

func newWorldOf(t *testing.T, sub subject, change ...func(*stack.Options)) *world {
	t.Helper()
	o := stack.Options{Dir: t.TempDir(), Binaries: binaries}
	for _, f := range change {
		f(&o)
	}
	s, err := stack.Start(t.Context(), o)
	require.NoError(t, err)
	w := &world{Stack: s, t: t, sub: sub, dir: o.Dir}
	w.gorm, err = db.Gorm(s.DB)
	require.NoError(t, err)
	maps.Copy(s.Env, map[string]string{
		"SEAHUB_PUSH_POLL_EVERY":       pollEvery.String(),
		"SEAHUB_PUSH_OVERDUE_BY":       overdueBy.String(),
		"SEAHUB_PUSH_LEASE":            pushLease.String(),
		"SEAHUB_PUSH_RETRY_BASE":       "200ms",
		"SEAHUB_PUSH_RETRY_MAX":        "2s",
		"SEAHUB_FCM_TIMEOUT":           fcmTimeout.String(),
		"SEAHUB_FLAGS_REFRESH":         "200ms",
		"SEAHUB_REDIS_LEASE":           "2s",
		"SEAHUB_REDIS_BLOCK":           "1s",
		"SEAHUB_REDIS_TIMEOUT":         "1s",
		"SEAHUB_RELAY_LEASE_TTL":       "5s",
		"SEAHUB_RELAY_PASS_TIMEOUT":    "2s",
		"SEAHUB_RELAY_PUBLISH_TIMEOUT": "900ms",
		"SEAHUB_RELAY_OUTAGE_MAX":      "1s",
		"SEAHUB_BUS_HANDLER_TIMEOUT":   "10s",
		"SEAHUB_BUS_DRAIN_TIMEOUT":     "3s",
		"SEAHUB_BUS_MAX_RETRY":         "2s",
		"SEAHUB_DRAIN_TIMEOUT":         "5s",
	})
	maps.Copy(s.Env, sub.env)
	t.Cleanup(func() { w.close() })
	if sub.prepare != nil {
		sub.prepare(w)
	}
	return w
}

// close ends the system and looks for what a run must never leave behind.
func (w *world) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		w.t.Errorf("stop the system: %v", err)
	}
	logs, err := os.ReadDir(w.dir + "/logs")
	if err != nil {
		w.t.Errorf("read the logs: %v", err)
	}
	for _, f := range logs {
		text, err := os.ReadFile(w.dir + "/logs/" + f.Name())
		if err != nil {
			w.t.Errorf("read a log: %v", err)
		}
		if w.RocketMQ != nil {
			text = withoutClientRaces(text)
		}
		for _, bad := range []string{"DATA RACE", "panic:", "goroutine 1 [", "tok-", secretText} {
			if strings.Contains(string(text), bad) {
				w.t.Errorf("%s contains %q:\n%s", f.Name(), bad, around(string(text), bad))
			}
		}
		if w.t.Failed() {
			w.t.Logf("%s ends:\n%s", f.Name(), last(string(text), 3000))
		}
	}
}

// withoutClientRaces drops the reports of races within the RocketMQ client: it has one on
// the flag that ends it, which any stop may meet.
func withoutClientRaces(text []byte) []byte {
	const line = "==================\n"
	parts := strings.Split(string(text), line)
	kept := parts[:0]
	for _, p := range parts {
		first, _, _ := strings.Cut(p, "Goroutine ")
		if strings.Contains(p, "DATA RACE") && strings.Count(first, "rocketmq-client-go/v2/internal.(*rmqClient)") >= 2 {
			continue
		}
		kept = append(kept, p)
	}
	return []byte(strings.Join(kept, line))
}

// secretText is in every push's body: it must not appear in any log.
const secretText = "for-your-eyes-only"

func around(text, what string) string {
	i := strings.Index(text, what)
	return text[max(0, i-200):min(len(text), i+1500)]
}

func last(text string, n int) string { return text[max(0, len(text)-n):] }

func (w *world) service(service, instance string, env map[string]string) *stack.Service {
	w.t.Helper()
	s, err := w.StartService(w.t.Context(), service, instance, env)
	require.NoError(w.t, err)
	return s
}

func (w *world) relay(instance string) *stack.Service { return w.service("relay", instance, nil) }

// consumer starts the service in one role. more are pairs of variable and value.
func (w *world) consumer(instance, role string, more ...string) *stack.Service {
	env := map[string]string{"SEAHUB_TASK_ROLE": role}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return w.service(w.sub.service, instance, env)
}

// flag sets the rollout of the service's flag and waits, if asked to, until it is binding.
func (w *world) flag(percent int, wait bool) {
	w.t.Helper()
	args := []string{"flags", "set", w.sub.flag, "on", "--percent", strconv.Itoa(percent), "--reason", "test"}
	if percent == 0 {
		args = []string{"flags", "set", w.sub.flag, "off", "--reason", "test"}
	}
	w.command("relay", args...)
	if wait {
		time.Sleep(handOver + 500*time.Millisecond) // what is waited for is the passing of this very time
	}
}

// flagSince gives all rows to events before any service starts, as a change that has
// been binding for a while.
func (w *world) flagSince() {
	w.t.Helper()
	for _, table := range []string{"mq_feature_flag", "mq_feature_flag_history"} {
		w.exec("INSERT INTO "+table+` (flag, country, enabled, rollout_bp, salt, version, effective_at, updated_by, reason, updated_at)
			VALUES (?, 'id', 1, 10000, 'salt', 1, NOW(3) - INTERVAL 1 HOUR, 'test', 'test', NOW(3) - INTERVAL 1 HOUR)`, w.sub.flag)
	}
}

// command runs an operator's command that must succeed.
func (w *world) command(service string, args ...string) string {
	w.t.Helper()
	out, code, err := w.Command(w.t.Context(), service, nil, args...)
	require.NoError(w.t, err)
	require.Zero(w.t, code, "%s %v:\n%s", service, args, out)
	return out
}

// user makes a user with devices and returns its id. Tokens are tok-<user>-<n>.
func (w *world) user(devices int) string {
	w.t.Helper()
	id := fmt.Sprintf("u%d", w.ids.Add(1))
	for n := range devices {
		w.exec("INSERT INTO user_devices (id, user_id, platform, push_token) VALUES (?, ?, 'android', ?)",
			fmt.Sprintf("%s-d%d", id, n), id, token(id, n))
	}
	return id
}

func token(user string, n int) string { return fmt.Sprintf("tok-%s-%d", user, n) }

func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	_, err := w.DB.ExecContext(w.t.Context(), statement, args...)
	require.NoError(w.t, err)
}

func (w *world) count(query string, args ...any) int {
	w.t.Helper()
	var n sql.NullInt64
	require.NoError(w.t, w.DB.QueryRowContext(w.t.Context(), query, args...).Scan(&n))
	return int(n.Int64)
}

// push commits a push for a user as business code does: row and event in one
// transaction. after delays its due time.
func (w *world) push(user string, after time.Duration) string {
	w.t.Helper()
	id := fmt.Sprintf("p%d", w.ids.Add(1))
	err := db.InTx(w.t.Context(), w.gorm, func(tx *gorm.DB) error { return w.writePush(tx, id, user, after) })
	require.NoError(w.t, err)
	w.remember(id)
	return id
}

// pushThrough is push while servers go away: what a caller does whose COMMIT may or may
// not have happened. It repeats the transaction under the same id until that is there.
func (w *world) pushThrough(ctx context.Context, user string) {
	id := fmt.Sprintf("p%d", w.ids.Add(1))
	for {
		err := db.InTx(ctx, w.gorm, func(tx *gorm.DB) error { return w.writePush(tx, id, user, 0) })
		if err == nil || db.IsDuplicate(err) {
			w.remember(id)
			return
		}
		if !db.IsUnavailable(err) {
			w.t.Errorf("commit push %s: %v", id, err)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (w *world) writePush(tx *gorm.DB, id, user string, after time.Duration) error {
	err := tx.Exec(`INSERT INTO push_messages (id, user_id, title, body, due_at, created_at, updated_at)
		VALUES (?, ?, 'hello', ?, NOW(3) + INTERVAL ? MICROSECOND, NOW(3), NOW(3))`, id, user, secretText, after.Microseconds()).Error
	if err != nil {
		return err
	}
	e, err := event.PushDispatched(id)
	if err != nil {
		return err
	}
	if after > 0 {
		_, err = outbox.AppendAfter(w.t.Context(), tx, after, e)
	} else {
		_, err = outbox.Append(w.t.Context(), tx, e)
	}
	return err
}

func (w *world) pushes(n int) []string {
	w.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = w.push(w.user(1), 0)
	}
	return ids
}

func (w *world) status(id string) string {
	w.t.Helper()
	var s string
	require.NoError(w.t, w.DB.QueryRowContext(w.t.Context(), "SELECT status FROM push_messages WHERE id = ?", id).Scan(&s))
	return s
}

// awaitSent waits until every push of ids is SENT.
func (w *world) awaitSent(bound time.Duration, ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		testenv.Eventually(w.t, bound, "push "+id+" is SENT", func() bool { return w.status(id) == "SENT" })
	}
}

// onceEach demands one accepted request per push in the provider's record.
func (w *world) onceEach(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		require.Len(w.t, w.FCM.Accepted(id), 1, "push %s", id)
	}
}

func (w *world) remember(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.committed = append(w.committed, id)
}

// all is the work committed so far.
func (w *world) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.committed...)
}

// fallbackRuns is how often the fallback was ever activated.
func (w *world) fallbackRuns() int {
	return w.count("SELECT COALESCE(SUM(fallback_runs), 0) FROM mq_task_health WHERE task = ?", w.sub.flag)
}

// metric reads one metric of a service.
func (w *world) metric(s *stack.Service, name string, labels map[string]string) float64 {
	w.t.Helper()
	v, err := s.Metric(w.t.Context(), name, labels)
	require.NoError(w.t, err)
	return v
}

// published waits until no event is PENDING.
func (w *world) published(bound time.Duration) {
	w.t.Helper()
	testenv.Eventually(w.t, bound, "all events are published", func() bool {
		return w.count("SELECT COUNT(*) FROM outbox_event WHERE status = 'PENDING'") == 0
	})
}

// readyReason asks /readyz and demands 200.
func (w *world) readyReason(s *stack.Service) string {
	w.t.Helper()
	status, body, err := s.Get(w.t.Context(), "/readyz")
	require.NoError(w.t, err)
	require.Equal(w.t, 200, status, body)
	return body
}

// load commits work from several writers until stop is called, which returns when
// they have ended. They wait while more than atMost pieces of work are not done.
func (w *world) load(writers int, pause time.Duration, atMost int) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	var full atomic.Bool
	if atMost < math.MaxInt {
		wg.Go(func() {
			for ctx.Err() == nil {
				begun, done := len(w.all()), 0
				if err := w.DB.QueryRowContext(ctx, w.sub.doneSQL).Scan(&done); err != nil && ctx.Err() == nil {
					w.t.Errorf("count what is done: %v", err)
				}
				full.Store(begun-done > atMost)
				time.Sleep(pause)
			}
		})
	}
	for range writers {
		wg.Go(func() {
			write := w.sub.writer(w)
			for ctx.Err() == nil {
				if !full.Load() {
					write(w.t.Context())
				}
				time.Sleep(pause)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}
