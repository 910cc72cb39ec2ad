package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

// rocketmqRig is a relay on RocketMQ, without a database: topics need none.
func rocketmqRig(t *testing.T, c *testenv.RocketMQCluster) *rig {
	return &rig{env: []string{
		actAsRelay + "=1", "SEAHUB_ENV=id-test", "SEAHUB_COUNTRY=id", "SEAHUB_DB_DSN=nobody:x@tcp(127.0.0.1:1)/none",
		"SEAHUB_MQ_PROVIDER=rocketmq", "SEAHUB_ROCKETMQ_NAME_SERVERS=" + c.Addr(), "SEAHUB_ROCKETMQ_QUEUES=4",
		"SEAHUB_ROCKETMQ_ACCESS_KEY=" + c.Admin.AccessKey, "SEAHUB_ROCKETMQ_SECRET_KEY=" + c.Admin.SecretKey, "HOME=" + t.TempDir(),
	}}
}

func TestTopicsAreShownAndMadeOnce(t *testing.T) {
	c := testenv.PrivateRocketMQ(t) // its topics have fixed names
	r := rocketmqRig(t, c)
	client := c.Client(t)
	_, err := client.Route(t.Context(), "beex-id-events")
	require.Error(t, err, "showing makes nothing")
	for _, want := range [][]string{
		{"topics", "beex-id-events", "4 queues", "GID_id_push_dispatch", "GID_id_coupon_expire", "GID_id_campaign_sync", "GID_id_ops_snapshot", "subscribe"},
		{"topics --format mqadmin", "updateTopic -n '" + c.Addr() + "'", "-t beex-id-events -r 4 -w 4 -p 6", "updateSubGroup", "'%RETRY%GID_id_ops_snapshot' -r 1"},
		{"topics --format console", "Create Topic", "normal message", "Create Group ID", "publish (PUB)", "subscribe (SUB)"},
		{"topics --json", `"topic": "beex-id-events"`, `"applied": false`},
	} {
		out, code := r.command(t, strings.Fields(want[0])...)
		require.Zero(t, code)
		for _, text := range want[1:] {
			require.Contains(t, out, text, want[0])
		}
	}
	for range 2 {
		out, code := r.command(t, "topics", "--apply", "--json")
		require.Zero(t, code)
		require.Contains(t, out, `"applied": true`)
		queues, err := client.Route(t.Context(), "beex-id-events")
		require.NoError(t, err)
		require.Len(t, queues, 4)
		r.env = append(r.env, "SEAHUB_ROCKETMQ_QUEUES=16") // what exists is left as it is
	}
	for _, args := range [][]string{{"topics", "--format", "x"}, {"topics", "--apply", "--format", "console"}, {"topics", "here"}} {
		_, code := r.command(t, args...)
		require.Equal(t, 2, code, args)
	}
	r.env = append(r.env, "SEAHUB_ROCKETMQ_ACCESS_KEY="+c.Stranger.AccessKey, "SEAHUB_ROCKETMQ_SECRET_KEY="+c.Stranger.SecretKey)
	_, code := r.command(t, "topics", "--apply")
	require.Equal(t, 1, code)
}

// The commands for mqadmin are ones that it takes.
func TestMqadminTakesTheCommands(t *testing.T) {
	testenv.SoakOnly(t, "each command of mqadmin takes some seconds")
	c := testenv.PrivateRocketMQ(t)
	r := rocketmqRig(t, c)
	out, code := r.command(t, "topics", "--format", "mqadmin", "--cluster", "testenv")
	require.Zero(t, code)
	for line := range strings.Lines(out) {
		words, err := exec.CommandContext(t.Context(), "bash", "-c", "printf '%s\\n' "+strings.TrimSpace(line)).Output()
		require.NoError(t, err)
		c.AdminTool(t, strings.Split(strings.TrimSpace(string(words)), "\n")[1:]...)
	}
	view, code := r.command(t, "bus", "--json")
	require.Zero(t, code)
	require.Contains(t, view, "GID_id_ops_snapshot")
}
