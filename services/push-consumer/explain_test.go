package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// The poll reads the rows that it returns and no others, wherever it stands, also within
// the many that are due at one instant.
func TestAPageOfThePollReadsTheIndexAndNothingElse(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		newBenchOn(t, s)
		const instant = "2026-03-01 00:00:00"
		manyPushes(t, s, 60_000, instant)
		s.Exec(t, "ANALYZE TABLE push_messages")
		pool, err := db.OpenSQL(db.Config{DSN: s.DSN, TimeZone: "+07:00", MaxOpen: 1, DialTimeout: time.Second, IOTimeout: 30 * time.Second}, db.WithInterpolation())
		require.NoError(t, err)
		defer func() { _ = pool.Close() }()
		conn, err := pool.Conn(t.Context())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()

		at := func(n int) dueRow { // n rows into the many
			var r dueRow
			require.NoError(t, conn.QueryRowContext(t.Context(), `SELECT id, due_at FROM push_messages
				WHERE status = 'PENDING' AND due_at = ? ORDER BY id LIMIT ?, 1`, instant, n).Scan(&r.ID, &r.Since))
			return r
		}
		behind := at(0)
		behind.ID = "~"
		const limit = 200
		for name, args := range map[string][]any{
			"from the start": duePageArgs(0, beforeAll(), limit),
			"one page in":    duePageArgs(0, at(limit), limit),
			"many pages in":  duePageArgs(0, at(15_000), limit),
			"behind them":    duePageArgs(0, behind, limit),
			"overdue, deep":  duePageArgs(time.Minute, at(15_000), limit),
		} {
			plan := s.Explain(t, conn, sqlDuePending, args...)[0]
			require.Equal(t, "idx_status_due", plan["key"], "%s: %v", name, plan)
			require.Equal(t, "range", plan["type"], "%s: %v", name, plan)
			require.NotContains(t, plan["Extra"], "filesort", name)
			rows, touched := testenv.Reads(t, conn, sqlDuePending, args...)
			require.Equal(t, limit, rows, name)
			assert.LessOrEqual(t, touched, rows+10, "%s: rows touched for %d found: %v", name, rows, plan)
		}
	})
}

// The pages follow each other in the order of (due_at, id) without a gap or a repeat.
func TestThePollWalksThroughOneInstant(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBenchOn(t, s)
		manyPushes(t, s, 500, "2026-03-01 00:00:00")
		var walked []string
		require.NoError(t, b.eachPage(t.Context(), duePending, 0, func(rows []dueRow) (bool, error) {
			for _, r := range rows {
				walked = append(walked, r.ID)
			}
			return len(walked) < 200, nil
		}))
		var want []string
		rows, err := s.DB.QueryContext(t.Context(), "SELECT id FROM push_messages WHERE status = 'PENDING' AND due_at <= "+now+" ORDER BY due_at, id LIMIT ?", len(walked))
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var id string
			require.NoError(t, rows.Scan(&id))
			want = append(want, id)
		}
		require.NoError(t, rows.Err())
		require.GreaterOrEqual(t, len(walked), 200)
		require.Equal(t, want, walked)
	})
}

// manyPushes writes n rows: a half is due at one instant, the rest before, after and in
// the future; some are done.
func manyPushes(t *testing.T, s *testenv.Schema, n int, instant string) {
	t.Helper()
	const atOnce = 2000
	for from := 0; from < n; from += atOnce {
		var values []string
		for i := from; i < min(n, from+atOnce); i++ {
			status := []string{"PENDING", "PENDING", "PENDING", "PENDING", "SENT", "FAILED"}[i%6]
			due := "'" + instant + "'"
			switch {
			case i%4 == 1:
				due = fmt.Sprintf("%s - INTERVAL %d SECOND", now, 60+i)
			case i%8 == 2:
				due = fmt.Sprintf("%s + INTERVAL %d SECOND", now, 60+i)
			}
			values = append(values, fmt.Sprintf("('p%02d%07d', 'u', 't', 'b', '%s', %s)", i*37%100, i, status, due))
		}
		s.Exec(t, "INSERT INTO push_messages (id, user_id, title, body, status, due_at) VALUES "+strings.Join(values, ","))
	}
}
