package main

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// The queries of the scan and of the look for overdue coupons read what they return,
// wherever the cursor stands, also within the many that expire at one instant.
func TestQueriesReadTheIndexAndNothingElse(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		const midnight = "2026-03-01 00:00:00"
		b.many(t, 100_000, func(i int) (string, string) {
			status := []string{"ISSUED", "ISSUED", "ISSUED", "ACTIVE", "CLAIMABLE", "USED", "EXPIRED"}[i%7]
			switch i % 3 {
			case 0:
				return status, "'" + midnight + "'"
			case 1:
				return status, fmt.Sprintf("%s - INTERVAL %d SECOND", now, i)
			}
			return status, fmt.Sprintf("%s + INTERVAL %d SECOND", now, i)
		})
		b.s.Exec(t, "ANALYZE TABLE user_coupons")
		pool, err := db.OpenSQL(db.Config{DSN: s.DSN, TimeZone: "+07:00", MaxOpen: 1, DialTimeout: time.Second, IOTimeout: 30 * time.Second}, db.WithInterpolation())
		require.NoError(t, err)
		defer func() { _ = pool.Close() }()
		conn, err := pool.Conn(t.Context())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()

		at := func(n int) coupon { // n coupons into the many
			var c coupon
			require.NoError(t, conn.QueryRowContext(t.Context(), `SELECT id, expires_at FROM user_coupons
				WHERE status = 'ISSUED' AND expires_at = ? ORDER BY id LIMIT ?, 1`, midnight, n).Scan(&c.ID, &c.ExpiresAt))
			return c
		}
		behind := at(0)
		behind.ID = "~"
		const limit = 500
		overdue := 600 * time.Second
		for name, args := range map[string][]any{
			"from the start": duePageArgs(statusIssued, 0, beforeAll(), limit),
			"one page in":    duePageArgs(statusIssued, 0, at(500), limit),
			"some pages in":  duePageArgs(statusIssued, 0, at(2000), limit),
			"many pages in":  duePageArgs(statusIssued, 0, at(12_000), limit),
			"behind them":    duePageArgs(statusIssued, 0, behind, limit),
			"overdue":        duePageArgs(statusIssued, overdue, beforeAll(), limit),
			"overdue, deep":  duePageArgs(statusIssued, overdue, at(9000), limit),
			// As fine as any column is; nanoseconds would cost MariaDB the range.
			"microseconds":      duePageArgs(statusIssued, 0, coupon{ExpiresAt: time.Now().Add(-time.Hour).Truncate(time.Microsecond), ID: "x"}, limit),
			"a smaller status":  duePageArgs(statusClaimable, 0, at(2000), limit),
			"a page of nothing": duePageArgs(statusActive, 20*365*24*time.Hour, beforeAll(), limit),
		} {
			plan := s.Explain(t, conn, sqlDuePage, args...)[0]
			require.Equal(t, "idx_status_expires", plan["key"], "%s: %v", name, plan)
			require.Equal(t, "range", plan["type"], "%s: %v", name, plan)
			require.NotContains(t, plan["Extra"], "filesort", name)
			require.NotContains(t, plan["Extra"], "temporary", name)
			rows, touched := testenv.Reads(t, conn, sqlDuePage, args...)
			require.Equal(t, name != "a page of nothing", rows > 0, name)
			assert.LessOrEqual(t, touched, rows+10, "%s: rows touched for %d found: %v", name, rows, plan)
		}
	})
}

// A page that is found by counting rows reads all that are before it.
func TestNoStatementCountsItsWayToAPage(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	skips := regexp.MustCompile(`(?i)\bOFFSET\b|\bLIMIT\s+[?0-9]+\s*,|\.Offset\(`)
	require.Regexp(t, skips, "SELECT 1 LIMIT ?, 1")
	seen := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NotRegexp(t, skips, string(text), name)
		seen++
	}
	require.Positive(t, seen)
}

func TestBatchesTouchTheirRowsOnly(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		b.many(t, 20_000, func(int) (string, string) { return "ISSUED", now })
		b.s.Exec(t, "ANALYZE TABLE user_coupons")
		page, err := b.store.duePage(t.Context(), statusIssued, 0, beforeAll(), 500)
		require.NoError(t, err)
		ids := make([]string, len(page))
		for i, c := range page {
			ids[i] = c.ID
		}
		// A row beyond the batch is in other hands: a batch that locked its way through
		// the status index would wait for it, or skip it and lock others.
		tx, err := s.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), "UPDATE user_coupons SET coupon_id = 'x' WHERE id NOT IN ('"+strings.Join(ids, "','")+"')")
		require.NoError(t, err)
		n, err := b.store.expireBatch(t.Context(), ids)
		require.NoError(t, err)
		require.Equal(t, 500, n)
	})
}
