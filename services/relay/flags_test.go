package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/flags"
)

func TestFlagsAreSetWithAReasonAndShown(t *testing.T) {
	r := newRig(t)
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	out, code := r.command(t, "flags", "list")
	require.Zero(t, code)
	require.Contains(t, out, "the environment of each process decides")

	for _, wrong := range [][]string{
		{"flags", "set", "push-dispatch", "on"},
		{"flags", "set", "push-dispatch", "maybe", "--reason", "x"},
		{"flags", "set", "push-despatch", "on", "--reason", "x"},
		{"flags", "set", "push-dispatch", "on", "--reason", "x", "--percent", "101"},
		{"flags", "set", "push-dispatch", "off", "--reason", "x", "--percent", "10"},
		{"flags", "history"},
		{"flags", "list", "extra"},
	} {
		_, code := r.command(t, wrong...)
		require.Equal(t, 2, code, wrong)
	}

	_, code = r.command(t, "flags", "set", "push-dispatch", "on", "--percent", "12.34", "--reason", "first step", "--who", "ana")
	require.Zero(t, code)
	_, code = r.command(t, "flags", "set", "push-dispatch", "on", "--reason", "x", "--version", "0")
	require.Equal(t, 1, code, "somebody was first")
	_, code = r.command(t, "flags", "set", "push-dispatch", "off", "--reason", "back", "--version", "1")
	require.Zero(t, code)
	_, code = r.command(t, "flags", "set", "push-dispatch", "on", "--reason", "there", "--country", "my")
	require.Zero(t, code)

	out, code = r.command(t, "flags", "history", "push-dispatch", "--json")
	require.Zero(t, code)
	var told struct {
		History []flags.Row
		Pods    []flags.Pod
	}
	require.NoError(t, json.Unmarshal([]byte(out), &told))
	history := told.History
	require.Len(t, history, 2)
	require.Equal(t, []any{false, 0, "back"}, []any{history[0].Enabled, history[0].BasisPoints, history[0].Reason})
	require.Equal(t, []any{true, 1234, "first step", "ana"}, []any{history[1].Enabled, history[1].BasisPoints, history[1].Reason, history[1].UpdatedBy})
	require.NotEmpty(t, history[0].UpdatedBy, "the user of this system")

	r.pod(t, "pod-7", 1, 0)
	out, code = r.command(t, "flags", "list", "--json")
	require.Zero(t, code)
	var list struct {
		Flags []flags.Row
		Pods  []flags.Pod
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list.Flags, 2)
	require.Equal(t, "pod-7", list.Pods[0].Instance)
	require.EqualValues(t, 1, list.Pods[0].Version, "a process that has not seen the change yet")
	for _, command := range [][]string{{"flags", "list"}, {"flags", "history", "push-dispatch"}} {
		out, code = r.command(t, command...)
		require.Zero(t, code)
		require.Regexp(t, `pod-7 +poll +push-dispatch +id +1 LAGS behind 2 +5m0s ago +database row +0s ago`, out)
	}
	out, code = r.command(t, "flags", "history", "coupon-expire")
	require.Zero(t, code)
	require.NotContains(t, out, "pod-7", "another flag's")
}

// pod is a process that goes by a version of push-dispatch for five minutes.
func (r *rig) pod(t *testing.T, name string, version int, silentSeconds int) {
	t.Helper()
	r.Exec(t, `INSERT INTO mq_flag_seen (flag, country, instance, role, version, goes_by, since, seen_at)
		VALUES ('push-dispatch', 'id', ?, 'poll', ?, 'database row', NOW(3) - INTERVAL 5 MINUTE, NOW(3) - INTERVAL ? SECOND)`, name, version, silentSeconds)
}

// A change is seen by every pod in time, or the command says which one lags.
func TestSetWaitsForThePods(t *testing.T) {
	r := newRig(t)
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	set := func(state string) (string, int) {
		return r.both(t, "flags", "set", "push-dispatch", state, "--reason", "x", "--wait", "1s")
	}
	out, code := set("on")
	require.Zero(t, code, "nobody to wait for")
	require.Contains(t, out, "no pod of this flag")

	r.pod(t, "pod-new", 9, 0)
	r.pod(t, "pod-gone", 1, 3600)
	out, code = set("off")
	require.Zero(t, code, out)
	require.Contains(t, out, "seen by all 1 pods")

	r.pod(t, "pod-old", 1, 20)
	out, code = set("on")
	require.Equal(t, 1, code)
	require.Contains(t, out, "pod-old (poll) is at version 1, its last sign of life was 2")
	require.NotContains(t, out, "pod-new (")
	require.NotContains(t, out, "pod-gone")
	require.EqualValues(t, 3, r.QueryInt(t, "SELECT version FROM mq_feature_flag WHERE flag = 'push-dispatch'"), "written all the same")

	r.Exec(t, "UPDATE mq_flag_seen SET version = 9, goes_by = 'environment (explicit false)' WHERE instance = 'pod-old'")
	out, code = set("off")
	require.Zero(t, code)
	require.Contains(t, out, "seen, but not followed: pod-old (poll) goes by its environment (explicit false)")
	_, code = r.both(t, "flags", "set", "push-dispatch", "on", "--reason", "x", "--wait", "-1s")
	require.Equal(t, 2, code)
}

// both is command with what it wrote to stderr as well.
func (r *rig) both(t *testing.T, args ...string) (string, int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = r.env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
