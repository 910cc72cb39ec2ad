package task_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/task"
)

// A relay's word about itself and about a group: unknown stays unknown, a time that was
// told once is not forgotten, and neither counts as an instance of a task.
func TestReports(t *testing.T) {
	b := newBench(t)
	self := task.NewReporter(b.pool, "outbox-relay", "id", "r1", task.RoleRelay)
	require.NoError(t, self.Write(t.Context(), task.Report{LastPass: time.Now(), LastConfirm: time.Now().Add(-time.Minute)}))
	require.NoError(t, self.Write(t.Context(), task.Report{Note: "standing by"}))
	require.EqualValues(t, 1, b.s.QueryInt(t, `SELECT COUNT(*) FROM mq_task_health WHERE role = 'relay' AND note = 'standing by' AND backlog IS NULL
		AND TIMESTAMPDIFF(SECOND, last_confirm_at, last_pass_at) BETWEEN 55 AND 65`))
	group := task.NewReporter(b.pool, "push-dispatch", "id", "watch:g", task.RoleWatch)
	for _, tt := range []struct {
		report task.Report
		where  string
	}{
		{task.Report{Group: "g", Backlog: 7, OldestAge: 1500 * time.Millisecond}, "backlog = 7 AND oldest_age_ms = 1500"},
		{task.Report{Group: "g", Backlog: -1, OldestAge: -1}, "backlog IS NULL AND oldest_age_ms IS NULL"},
		{task.Report{Group: "g"}, "backlog = 0 AND oldest_age_ms = 0"},
	} {
		require.NoError(t, group.Write(t.Context(), tt.report))
		require.EqualValues(t, 1, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_task_health WHERE consumer_group = 'g' AND "+tt.where), tt.where)
	}
}
