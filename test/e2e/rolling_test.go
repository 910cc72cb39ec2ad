package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
)

const (
	// olderSchema is the one before the latest migration. A new version must work on
	// the schema of the one before, and the old version on the new schema.
	olderSchema = "22"
	versionNext = "next"
	// grace stands for terminationGracePeriodSeconds: above the drain time of newWorld.
	grace = 8 * time.Second
)

// nextBuild builds the services as the next release would be: other flags of the
// linker, and so another binary.
func nextBuild(t *testing.T, services ...string) map[string]string {
	t.Helper()
	root, err := stack.Root()
	require.NoError(t, err)
	dir := t.TempDir() + string(filepath.Separator)
	args := []string{"build", "-race", "-ldflags", "-X github.com/seahub/seahub-mq/pkg/service.version=" + versionNext, "-o", dir}
	for _, s := range services {
		args = append(args, "./services/"+s)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	all := maps.Clone(binaries)
	for _, s := range services {
		all[s+" "+versionNext] = dir + s
	}
	return all
}

// deployment plays one: pods of a service in one role, replaced one after the other
// with maxSurge 0, as deploy/k8s says.
type deployment struct {
	w             *world
	service, role string
	pods          []*stack.Service
	made          int
}

func (w *world) deploy(service, role string, replicas int) *deployment {
	d := &deployment{w: w, service: service, role: role}
	for range replicas {
		d.pods = append(d.pods, d.pod(""))
	}
	return d
}

// pod starts one, of the next version if asked to, and waits until it is ready.
func (d *deployment) pod(version string) *stack.Service {
	d.w.t.Helper()
	d.made++
	env := map[string]string{}
	if d.role != "" {
		env["SEAHUB_TASK_ROLE"] = d.role
	}
	s := d.w.service(strings.TrimSpace(d.service+" "+version), fmt.Sprintf("%s%s-%d", d.service, d.role, d.made), env)
	require.NoError(d.w.t, s.AwaitReady(d.w.t.Context()))
	_, body, err := s.Get(d.w.t.Context(), "/version")
	require.NoError(d.w.t, err)
	var build struct{ Version string }
	require.NoError(d.w.t, json.Unmarshal([]byte(body), &build), body)
	require.Equal(d.w.t, version == versionNext, build.Version == versionNext, body)
	return s
}

// replace ends one pod as a kubelet does, and starts its successor when it is gone.
func (d *deployment) replace(n int, version string) {
	d.w.t.Helper()
	ctx, cancel := context.WithTimeout(d.w.t.Context(), grace)
	defer cancel()
	require.NoError(d.w.t, d.pods[n].Stop(ctx), "a pod drains within its grace period")
	require.Zero(d.w.t, d.pods[n].ExitCode(), d.pods[n].LogTail())
	d.pods[n] = d.pod(version)
}

func (d *deployment) roll(version string) {
	d.w.t.Helper()
	for n := range d.pods {
		d.replace(n, version)
	}
}

// replaceHung is replace for a pod that hangs: SIGTERM does nothing, the grace period
// passes, SIGKILL ends it.
func (d *deployment) replaceHung(n int, version string) {
	d.w.t.Helper()
	pod := d.pods[n]
	require.NoError(d.w.t, pod.Freeze())
	require.NoError(d.w.t, syscall.Kill(pod.Pid(), syscall.SIGTERM))
	select {
	case <-pod.Done():
		d.w.t.Fatal("a frozen process ended by itself")
	case <-time.After(2 * time.Second): // as long as it takes to be hung, whatever the grace period
	}
	require.NoError(d.w.t, pod.Kill())
	d.pods[n] = d.pod(version)
}

// withSchema makes our tables anew, up to a migration, around an outbox_event that the
// app made itself, with the app's rows in it.
func (w *world) withSchema(to string, appsRows ...string) {
	w.t.Helper()
	rows, err := w.DB.QueryContext(w.t.Context(), `SELECT table_name FROM information_schema.tables
		WHERE table_schema = DATABASE() AND (table_name LIKE 'mq\_%' OR table_name = 'outbox_event')`)
	require.NoError(w.t, err)
	var tables []string
	for rows.Next() {
		var name string
		require.NoError(w.t, rows.Scan(&name))
		tables = append(tables, name)
	}
	require.NoError(w.t, rows.Err())
	require.NoError(w.t, rows.Close())
	w.exec("DROP TABLE " + strings.Join(tables, ", "))
	w.exec(appTable)
	for _, statement := range appsRows {
		w.exec(statement)
	}
	if to != "" {
		w.command("relay", "migrate", "--to", to)
	}
}

// sentToBroker counts the messages that anybody ever put into the topic.
func (w *world) sentToBroker() int {
	w.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: w.Redis.Addr()})
	defer func() { _ = c.Close() }()
	info, err := c.XInfoStream(w.t.Context(), streamKey).Result()
	require.NoError(w.t, err)
	return int(info.EntriesAdded)
}

const streamKey = "beex:" + stack.Env + ":events"

// effects demands an effect for each push and counts those beyond the first.
func (w *world) effectsOf(ids []string, elsewhere func(id string) int) (twice int) {
	w.t.Helper()
	for _, id := range ids {
		n := len(w.FCM.Accepted(id)) + elsewhere(id)
		require.GreaterOrEqual(w.t, n, 1, "push %s was lost", id)
		twice += n - 1
	}
	return twice
}

// TestRollingUpdateUnderLoad: two versions side by side, on the schema of the older and
// of the newer one, flags flipped between, a pod that hangs, a step back. Nothing is
// lost; what is repeated is counted.
func TestRollingUpdateUnderLoad(t *testing.T) {
	next := nextBuild(t, "relay", "push-consumer")
	w := newWorld(t, func(o *stack.Options) { o.Binaries = next })
	w.withSchema(olderSchema)
	w.flagSince()
	relays := w.deploy("relay", "", 2)
	consumers := w.deploy("push-consumer", "consume", 2)
	polls := w.deploy("push-consumer", "poll", 1)
	stop := w.load(4, 15*time.Millisecond, 100)
	set := func(args ...string) string {
		return w.command("relay", append([]string{"flags", "set", "push-dispatch"}, append(args, "--reason", "update")...)...)
	}

	relays.replace(0, versionNext) // the new version on the old schema
	out := w.command("relay "+versionNext, "migrate")
	require.Contains(t, out, "done:")
	w.command("relay "+versionNext, "migrate", "--check")
	// All pods of the old version are on the new schema by now, and all see the change.
	out = set("on", "--percent", "10", "--wait", "30s")
	require.Contains(t, out, "seen by all 3 pods")
	consumers.replace(0, versionNext)
	set("off")
	relays.replace(1, versionNext)
	set("on", "--percent", "50")
	polls.roll(versionNext)
	consumers.replaceHung(1, versionNext)
	set("on", "--percent", "100")
	consumers.replace(0, "") // one step back: the old version among new ones
	consumers.replace(0, versionNext)
	relays.replaceHung(0, versionNext)

	stop()
	ids := w.all()
	w.published(3 * soon)
	w.awaitSent(3*soon, ids...)
	require.Zero(t, w.count("SELECT COUNT(*) FROM outbox_event WHERE status = 'FAILED'"))
	require.Zero(t, w.count("SELECT COUNT(*) FROM mq_dead_letter"))
	twice := w.effectsOf(ids, func(string) int { return 0 })
	// The pods that hung left answers unknown; nothing else may send twice.
	unknown := w.count("SELECT COUNT(*) FROM mq_push_attempts WHERE state = 'UNKNOWN'")
	require.LessOrEqual(t, twice, unknown)
	events := w.count("SELECT COUNT(*) FROM outbox_event")
	repeated := w.sentToBroker() - events
	require.GreaterOrEqual(t, repeated, 0, "a committed event never reached the broker")
	t.Logf("%d pushes through %d pods; %d of %d events published twice, %d pushes sent twice (%d answers were unknown)",
		len(ids), relays.made+consumers.made+polls.made, repeated, events, twice, unknown)
}
