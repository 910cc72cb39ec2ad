package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// Every figure is what a person would count, also on an empty database, where nothing is
// zero by accident: what cannot be measured is unknown.
func TestTheTwelveFigures(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		b.sweepNow(t)
		for _, d := range definitions() {
			v, ok := b.figure(t, d.Name, "")
			require.True(t, ok, d.Name)
			require.Zero(t, v, d.Name)
		}
		for i, statement := range []string{
			"INSERT INTO push_messages (id, user_id, title, body, status, due_at) VALUES (?, 'u', 't', 'b', 'PENDING', NOW(3) - INTERVAL 61 SECOND)",
			"INSERT INTO push_messages (id, user_id, title, body, status, due_at) VALUES (?, 'u', 't', 'b', 'PENDING', NOW(3) - INTERVAL 10 SECOND)",
			"INSERT INTO push_messages (id, user_id, title, body, status, due_at, updated_at) VALUES (?, 'u', 't', 'b', 'FAILED', NOW(3), NOW(3) - INTERVAL 59 MINUTE)",
			"INSERT INTO push_messages (id, user_id, title, body, status, due_at, updated_at) VALUES (?, 'u', 't', 'b', 'FAILED', NOW(3), NOW(3) - INTERVAL 62 MINUTE)",
			"INSERT INTO wa_inbound_messages (id, created_at) VALUES (?, NOW(3) - INTERVAL 2 MINUTE)",
			"INSERT INTO wa_outbound_messages (id, created_at) VALUES (?, NOW(3) - INTERVAL 2 MINUTE)",
			"INSERT INTO wa_outbound_messages (id, status, updated_at) VALUES (?, 'FAILED', NOW(3))",
			"INSERT INTO payment_webhook_events (id, created_at) VALUES (?, NOW(3) - INTERVAL 2 MINUTE)",
			"INSERT INTO payment_webhook_events (id, status, updated_at) VALUES (?, 'FAILED', NOW(3))",
			"INSERT INTO commission_records (id, user_id, available_at, created_at) VALUES (?, 'u', NOW(3) - INTERVAL 16 MINUTE, NOW(3))",
			"INSERT INTO affiliate_orders (id, created_at) VALUES (?, NOW(3))",
			"INSERT INTO risk_events (id, created_at) VALUES (?, NOW(3))",
		} {
			b.exec(t, statement, fmt.Sprint("r", i))
		}
		b.sweepNow(t)
		for _, d := range definitions() {
			v, ok := b.figure(t, d.Name, "")
			require.True(t, ok, d.Name)
			if d.Name == "push_oldest_wait" {
				require.InDelta(t, 61, v, 20)
			} else {
				require.EqualValues(t, 1, v, d.Name)
			}
			require.Equal(t, sourceSQL, b.text(t, "SELECT source FROM mq_ops_figure WHERE name = ?", d.Name))
		}
	})
}

// No statement of a sweep reads a table from end to end, however large the tables are.
func TestStatementsUseAnIndex(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s)
		fill(t, b)
		now := time.Now()
		statements := map[string][]any{}
		for _, d := range definitions() {
			var args []any
			if d.Metric != "" {
				args = []any{now.Add(-time.Hour), now}
			}
			statements[d.SQL] = args
		}
		five := (5 * time.Minute).Microseconds()
		statements[sqlOutboxOverdue] = []any{five, five}
		statements[sqlOutboxOldest], statements[sqlOutboxFailed], statements[sqlPublishedHour] = nil, nil, nil
		statements[sqlDeadLetters] = nil
		statements[sqlMessagesWaiting] = []any{"id", routeFeishu}
		statements[sqlMessagesRefused] = []any{"id", routeFeishu}
		statements["SELECT COALESCE(SUM(n), 0) FROM mq_ops_bucket WHERE metric = ? AND country = ? AND minute >= ? AND minute < ?"] = []any{"push_failed", "id", now.Add(-time.Hour), now}
		for statement, args := range statements {
			for _, table := range s.Explain(t, b.pool, statement, args...) {
				if strings.HasPrefix(table["table"], "<") || table["table"] == "" {
					continue // a derived table, bounded by its LIMIT
				}
				require.NotEqual(t, "ALL", table["type"], "%s\n%v", statement, table)
				require.NotEmpty(t, table["key"], "%s\n%v", statement, table)
			}
		}
	})
}

// fill gives each table the shape of production: nearly all rows old and final.
func fill(t *testing.T, b *bench) {
	t.Helper()
	b.exec(t, "CREATE TABLE seq (n INT PRIMARY KEY)")
	b.exec(t, "INSERT INTO seq VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)")
	numbers := "(SELECT a.n + 10*b.n + 100*c.n + 1000*d.n AS n FROM seq a, seq b, seq c, seq d) AS numbers"
	old := "NOW(3) - INTERVAL (n + 100) MINUTE"
	for _, statement := range []string{
		"INSERT INTO push_messages (id, user_id, title, body, status, due_at, updated_at) SELECT CONCAT('p', n), 'u', 't', 'b', ELT(1 + n % 10, 'FAILED', 'PENDING', 'SENT', 'SENT', 'SENT', 'SENT', 'SENT', 'SENT', 'SENT', 'SENT'), " + old + ", " + old + " FROM " + numbers,
		"INSERT INTO wa_inbound_messages (id, status, created_at) SELECT n, IF(n % 50 = 0, 'RECEIVED', 'PROCESSED'), " + old + " FROM " + numbers,
		"INSERT INTO wa_outbound_messages (id, status, created_at, updated_at) SELECT n, ELT(1 + n % 20, 'FAILED', 'PENDING', 'SENT'), " + old + ", " + old + " FROM " + numbers + " WHERE n % 20 < 3",
		"INSERT INTO payment_webhook_events (id, status, created_at, updated_at) SELECT n, ELT(1 + n % 20, 'FAILED', 'RECEIVED', 'PROCESSED'), " + old + ", " + old + " FROM " + numbers + " WHERE n % 20 < 3",
		"INSERT INTO commission_records (id, user_id, status, available_at, created_at) SELECT n, 'u', IF(n % 50 = 0, 'FROZEN', 'RELEASED'), " + old + ", " + old + " FROM " + numbers,
		"INSERT INTO affiliate_orders (id, created_at) SELECT n, " + old + " FROM " + numbers,
		"INSERT INTO risk_events (id, created_at) SELECT n, " + old + " FROM " + numbers,
		`INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, status, created_at)
			SELECT n, n, 'X', 'x', n, '{}', IF(n % 100 = 0, 'FAILED', 'PUBLISHED'), ` + old + " FROM " + numbers,
		"INSERT INTO mq_alert_message (country, route, severity_rank, kind, rule, message_json, status, created_at) SELECT 'id', 'feishu', 1, 'firing', 'X', '{}', 'SENT', " + old + " FROM " + numbers,
		"INSERT INTO mq_ops_bucket (metric, country, minute, n) SELECT 'push_failed', 'id', " + old + ", 1 FROM " + numbers,
		`INSERT INTO mq_dead_letter (dedup_key, consumer_group, topic, tag, event_id, body, headers_json, attempts, reason, last_error, status, created_at, updated_at)
			SELECT n, 'g', 't', 'x', n, '', '{}', 1, '', '', 'REPLAYED', NOW(3), NOW(3) FROM ` + numbers,
	} {
		b.exec(t, statement)
	}
	b.exec(t, "ANALYZE TABLE push_messages, wa_inbound_messages, wa_outbound_messages, payment_webhook_events, commission_records, affiliate_orders, risk_events, outbox_event, mq_alert_message, mq_ops_bucket, mq_dead_letter")
}

// A statement that fails makes its figure unknown, which is told, and no other one's.
func TestUnknownIsNeverZero(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	b.relayAlive(t, 0)
	b.exec(t, "DROP TABLE risk_events")
	b.sweepNow(t)
	_, ok := b.figure(t, "risk_new", "")
	require.False(t, ok)
	require.NotEmpty(t, b.text(t, "SELECT unknown_since FROM mq_ops_figure WHERE name = 'risk_new'"))
	v, ok := b.figure(t, "order_new", "")
	require.True(t, ok)
	require.Zero(t, v)
	require.Equal(t, []string{"firing FigureUnknown QUEUED"}, b.messages(t))
	b.exec(t, "CREATE TABLE risk_events (id INT PRIMARY KEY, created_at DATETIME(3), KEY (created_at))")
	b.sweepNow(t)
	_, ok = b.figure(t, "risk_new", "")
	require.True(t, ok)
	require.Equal(t, []string{"firing FigureUnknown QUEUED", "resolved FigureUnknown QUEUED"}, b.messages(t))
}

// The server ends a statement that takes too long; the sweep goes on without its figure.
func TestASlowStatementIsEnded(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBench(t, s, func(c *Config) { c.Sweep.StatementTimeout = 300 * time.Millisecond })
		fill(t, b)
		r, err := b.store.reader(t.Context(), b.cfg.Sweep.StatementTimeout)
		require.NoError(t, err)
		defer func() { require.NoError(t, r.close()) }()
		began := time.Now()
		_, err = b.one(t.Context(), r, "SELECT COUNT(*) FROM push_messages a, push_messages b, push_messages c WHERE a.title < b.body AND b.id < c.id")
		require.Error(t, err)
		require.True(t, db.IsUnavailable(err), "%v", err)
		require.Less(t, time.Since(began), 5*time.Second)
		_, err = r.now(t.Context())
		require.NoError(t, err, "the connection is of use for the next figure")
	})
}

// Two processes make one sweep in an interval, and one whose lease went to another while
// it stood still writes nothing.
func TestOneSweepAtATime(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t), func(c *Config) { c.Sweep.Every = time.Hour })
	other := newSweeper(t, b.cfg, db.Config{DSN: b.s.DSN, TimeZone: zone, MaxOpen: 8, DialTimeout: time.Second, IOTimeout: 10 * time.Second})
	_, err := b.Poll(t.Context(), task.Scope{})
	require.NoError(t, err)
	first := b.text(t, "SELECT MAX(measured_at) FROM mq_ops_figure")
	require.NotEmpty(t, first)
	_, err = other.Poll(t.Context(), task.Scope{})
	require.NoError(t, err)
	require.Equal(t, first, b.text(t, "SELECT MAX(measured_at) FROM mq_ops_figure"))

	// What the other one showed before it was this one's turn does not stay for ever.
	require.Positive(t, seriesOf(b.metrics.figures))
	other.metrics.swept(0, outcome{figures: []figure{known("x", "", unitRows, 1)}}, map[string]alert{"f": {Rule: "R", State: stateFiring}})
	_, err = other.Poll(t.Context(), task.Scope{})
	require.NoError(t, err)
	require.Equal(t, 1, seriesOf(other.metrics.firing), "it was just now")
	other.metrics.sweptAt.Add(-int64(other.shownFor() + time.Second))
	_, err = other.Poll(t.Context(), task.Scope{})
	require.NoError(t, err)
	require.Zero(t, seriesOf(other.metrics.figures))
	require.Zero(t, seriesOf(other.metrics.firing))
	require.Positive(t, seriesOf(b.metrics.figures))

	f := known("x", "", unitRows, 1)
	err = b.store.commit(t.Context(), "ops-sweep:id", 999, outcome{figures: []figure{f}})
	require.ErrorIs(t, err, errLeaseLost)
	require.Equal(t, first, b.text(t, "SELECT MAX(measured_at) FROM mq_ops_figure"))
}

// Nothing grows for ever, and what is still needed stays.
func TestOldRowsGo(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	b.relayAlive(t, 0)
	b.exec(t, "INSERT INTO mq_ops_counted VALUES ('new', NOW(3)), ('old', NOW(3) - INTERVAL 97 HOUR)")
	b.exec(t, "INSERT INTO mq_ops_bucket (metric, country, minute, n) VALUES ('m', 'id', NOW(), 1), ('m', 'id', NOW() - INTERVAL 9 DAY, 1)")
	for _, status := range []string{messageQueued, messageSent} {
		b.exec(t, `INSERT INTO mq_alert_message (country, route, severity_rank, kind, rule, message_json, status, created_at)
			VALUES ('id', 'feishu', 1, 'firing', 'X', '{}', ?, NOW(3) - INTERVAL 40 DAY)`, status)
	}
	b.sweepNow(t)
	require.Equal(t, "new", b.text(t, "SELECT GROUP_CONCAT(event_id) FROM mq_ops_counted"))
	require.Equal(t, 1, b.number(t, "SELECT COUNT(*) FROM mq_ops_bucket"))
	require.Equal(t, messageQueued, b.text(t, "SELECT GROUP_CONCAT(status) FROM mq_alert_message WHERE rule = 'X'"))
}

// seriesOf counts what a scrape would get.
func seriesOf(c prometheus.Collector) int {
	ch := make(chan prometheus.Metric, 1000)
	c.Collect(ch)
	return len(ch)
}
