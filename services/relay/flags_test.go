package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/task"
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
	var history []flags.Row
	require.NoError(t, json.Unmarshal([]byte(out), &history))
	require.Len(t, history, 2)
	require.Equal(t, []any{false, 0, "back"}, []any{history[0].Enabled, history[0].BasisPoints, history[0].Reason})
	require.Equal(t, []any{true, 1234, "first step", "ana"}, []any{history[1].Enabled, history[1].BasisPoints, history[1].Reason, history[1].UpdatedBy})
	require.NotEmpty(t, history[0].UpdatedBy, "the user of this system")

	r.Exec(t, "INSERT INTO mq_task_health (task, instance, country, role, flag_version, updated_at) VALUES ('push-dispatch', 'pod-7', 'id', 'poll', 1, NOW(3))")
	out, code = r.command(t, "flags", "list", "--json")
	require.Zero(t, code)
	var list struct {
		Flags     []flags.Row
		Instances []task.Instance
	}
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list.Flags, 2)
	require.Equal(t, "pod-7", list.Instances[0].Instance)
	require.EqualValues(t, 1, list.Instances[0].FlagVersion, "a process that has not seen the change yet")
	out, code = r.command(t, "flags", "list")
	require.Zero(t, code)
	require.Contains(t, out, "GOES BY VERSION")
}
