package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

// TestEachServiceWorksWithItsDocumentedAccount makes the accounts by the statements of
// docs/security.md, and runs the migration and all services with them, by events, by
// the polls and by the operator's commands. No server refuses a statement.
func TestEachServiceWorksWithItsDocumentedAccount(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]func(testing.TB, ...testenv.Options) *testenv.Schema{
		"MariaDB": testenv.PrivateMariaDB, "MySQL": testenv.PrivateMySQL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := server(t)
			w := newAccountsWorld(t, schema)
			before, after := accountStatements(t)
			schema.LoadApp(t)
			w.exec(appTable)
			for _, statement := range before {
				w.exec(statement)
			}
			out := w.as("migrate", "relay", "migrate")
			require.Contains(t, out, "ALTER TABLE outbox_event", "it sees what the app's table lacks")
			for _, statement := range after {
				w.exec(statement)
			}
			w.namesAllTables(strings.Join(after, "\n"))
			w.refused("push", "SELECT COUNT(*) FROM mq_tiktok_token")
			w.refused("relay", "UPDATE push_messages SET status = 'SENT'")
			w.refused("migrate", "SELECT COUNT(*) FROM push_messages")
			w.worksWithAccounts()
		})
	}
}

// accountsWorld is a system on a database of its own, whose services have accounts.
type accountsWorld struct{ *world }

func newAccountsWorld(t *testing.T, schema *testenv.Schema) accountsWorld {
	t.Helper()
	w := newWorld(t)
	maps.Copy(w.Env, campaignEnv())
	maps.Copy(w.Env, couponSubject().env)
	w.DSN = schema.DSN
	var err error
	w.DB, err = db.OpenSQL(db.Config{DSN: schema.DSN, TimeZone: "+00:00", MaxOpen: 4, DialTimeout: 5 * time.Second, IOTimeout: 30 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.DB.Close() })
	w.gorm, err = db.Gorm(w.DB)
	require.NoError(t, err)
	return accountsWorld{w}
}

var (
	sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")
	userName = regexp.MustCompile(`CREATE USER IF NOT EXISTS 'seahub_(\w+)'@'%' IDENTIFIED BY '([^']+)'`)
)

// accountStatements are those of the page: before and after the migration.
func accountStatements(t *testing.T) (before, after []string) {
	t.Helper()
	root, err := stack.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	require.NoError(t, err)
	_, accounts, found := strings.Cut(string(page), "\n## Accounts\n")
	require.True(t, found)
	blocks := sqlBlock.FindAllStringSubmatch(accounts, -1)
	require.Len(t, blocks, 2)
	statements := func(block string) (out []string) {
		for line := range strings.Lines(block) {
			if line = strings.TrimSuffix(strings.TrimSpace(line), ";"); line != "" && !strings.HasPrefix(line, "--") {
				out = append(out, line)
			}
		}
		return out
	}
	return statements(blocks[0][1]), statements(blocks[1][1])
}

// dsn is the database as an account of the page reaches it.
func (w accountsWorld) dsn(account string) string {
	before, _ := accountStatements(w.t)
	for _, m := range userName.FindAllStringSubmatch(strings.Join(before, "\n"), -1) {
		if m[1] == account {
			_, address, _ := strings.Cut(w.DSN, "@")
			return fmt.Sprintf("seahub_%s:%s@%s", account, m[2], address)
		}
	}
	w.t.Fatalf("the page makes no account %s", account)
	return ""
}

// as runs a command with an account's rights.
func (w accountsWorld) as(account, service string, args ...string) string {
	w.t.Helper()
	out, code, err := w.Command(w.t.Context(), service, map[string]string{"SEAHUB_DB_DSN": w.dsn(account)}, args...)
	require.NoError(w.t, err)
	require.Zero(w.t, code, "%s %v:\n%s", service, args, out)
	require.NotContains(w.t, out, "denied")
	return out
}

// namesAllTables demands that somebody is given rights on each table that was made.
func (w accountsWorld) namesAllTables(grants string) {
	w.t.Helper()
	rows, err := w.DB.QueryContext(w.t.Context(), `SELECT table_name FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name LIKE 'mq\_%' AND table_name <> 'mq_schema_lock'`)
	require.NoError(w.t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		require.NoError(w.t, rows.Scan(&name))
		require.Contains(w.t, grants, " ON "+name+" TO ", "docs/security.md gives nobody a right on it")
	}
	require.NoError(w.t, rows.Err())
}

// refused demands that an account may not do this.
func (w accountsWorld) refused(account, statement string) {
	w.t.Helper()
	pool, err := db.OpenSQL(db.Config{DSN: w.dsn(account), TimeZone: "+00:00", MaxOpen: 1, DialTimeout: 5 * time.Second, IOTimeout: 30 * time.Second})
	require.NoError(w.t, err)
	defer func() { _ = pool.Close() }()
	_, err = pool.ExecContext(w.t.Context(), statement)
	require.ErrorContains(w.t, err, "command denied")
}

// worksWithAccounts runs everything, first by events, then by the polls.
func (w accountsWorld) worksWithAccounts() {
	t := w.t
	w.authorise()
	for _, flag := range []string{"push-dispatch", "coupon-expire", "campaign-sync", "ops-snapshot"} {
		w.as("relay", "relay", "flags", "set", flag, "on", "--reason=test")
	}
	for _, table := range []string{"mq_feature_flag", "mq_feature_flag_history"} { // as if they were binding for long
		w.exec("UPDATE " + table + " SET effective_at = NOW(3) - INTERVAL 1 HOUR, updated_at = NOW(3) - INTERVAL 1 HOUR")
	}
	fake := newFeishu(t)
	start := func(account, service, instance, role string) *stack.Service {
		return w.service(service, instance, map[string]string{
			"SEAHUB_DB_DSN": w.dsn(account), "SEAHUB_TASK_ROLE": role,
			"SEAHUB_FEISHU_HOOK": fake.Hook(), "SEAHUB_FEISHU_SECRET": fake.Secret(), "SEAHUB_OPS_SWEEP_EVERY": "500ms",
			"SEAHUB_OPS_RECOUNT_EVERY": "1s", "SEAHUB_OPS_RECOUNT_SETTLE": "0s", "SEAHUB_ALERT_FOR": "0s", "SEAHUB_ALERT_CLEAR_FOR": "1s",
		})
	}
	services := []*stack.Service{start("relay", "relay", "relay-1", "")}
	for _, s := range [][2]string{{"push", "push-consumer"}, {"coupon", "coupon-consumer"}, {"campaign", "campaign-consumer"}, {"ops", "ops-consumer"}} {
		services = append(services, start(s[0], s[1], s[0]+"-consume", "consume"), start(s[0], s[1], s[0]+"-poll", "poll"))
	}
	for _, s := range services {
		require.NoError(t, s.AwaitReady(t.Context()))
	}
	w.tasks("e", 1)
	w.operate()
	w.as("relay", "relay", "flags", "set", "campaign-sync", "off", "--reason=test")
	w.as("relay", "relay", "flags", "set", "coupon-expire", "off", "--reason=test")
	w.as("relay", "relay", "flags", "set", "push-dispatch", "off", "--reason=test", "--wait=30s")
	time.Sleep(handOver) // what is waited for is the passing of this very time
	w.tasks("p", 2)

	for _, s := range services {
		log, err := os.ReadFile(s.Log)
		require.NoError(t, err)
		require.NotContains(t, string(log), "denied", s.Name)
	}
}

// authorise stores the authorisation at TikTok, with the account that does so.
func (w accountsWorld) authorise() {
	pool, err := db.OpenSQL(db.Config{DSN: w.dsn("campaign"), TimeZone: "+00:00", MaxOpen: 1, DialTimeout: 5 * time.Second, IOTimeout: 30 * time.Second})
	require.NoError(w.t, err)
	defer func() { _ = pool.Close() }()
	token := w.TikTok.Issue(tiktokfake.UserPartner)
	_, err = pool.ExecContext(w.t.Context(), `INSERT INTO mq_tiktok_token
		(app_key, country, version, state, access_token, access_expires_at, refresh_token, refresh_expires_at, obtained_at, updated_at)
		VALUES (?, 'id', 1, 'OK', ?, FROM_UNIXTIME(?), ?, FROM_UNIXTIME(?), NOW(3), NOW(3))`,
		w.TikTok.AppKey(), token.Access, token.AccessExpires.Unix(), token.Refresh, token.RefreshExpires.Unix())
	require.NoError(w.t, err)
}

// tasks gives each consumer something to do and waits until it is done.
func (w accountsWorld) tasks(prefix string, round int) {
	t := w.t
	push := w.push(w.user(2), 0)
	late := w.push(w.user(1), time.Second)
	w.exec(insertCoupon, prefix+"-coupon", prefix)
	w.TikTok.Add(tiktokfake.NewCampaign(round, campaignProducts))
	w.exec("UPDATE mq_campaign_listing SET due_at = NOW(3)")
	w.awaitSent(2*soon, push, late)
	testenv.Eventually(t, 2*soon, "the coupon expires", func() bool {
		return w.count("SELECT COUNT(*) FROM user_coupons WHERE id = ? AND status = 'EXPIRED'", prefix+"-coupon") == 1
	})
	w.awaitRounds(2*soon, round)
}

// operate is a day of an operator: an event that fails, one that dies, figures.
func (w accountsWorld) operate() {
	t := w.t
	w.exec(`INSERT INTO outbox_event (id, event_id, event_type, aggregate_type, aggregate_id, payload_json, created_at) VALUES
		('obeacc1', 'poison:1', 'NOT A TAG', 'x', 'x', '{}', NOW(3)),
		('obeacc2', 'push:dies', 'PUSH_DISPATCH', 'push_task', 'dies', '{}', NOW(3))`)
	require.NoError(t, db.InTx(t.Context(), w.gorm, func(tx *gorm.DB) error {
		e, err := event.OrderCreated(stack.Country, "o1", time.Now())
		if err == nil {
			_, err = outbox.Append(t.Context(), tx, e)
		}
		return err
	}))
	testenv.Eventually(t, soon, "the order is counted", func() bool {
		return w.count("SELECT SUM(n) FROM mq_ops_bucket WHERE metric = 'order_new'") == 1
	})
	failed := func() int { return w.count("SELECT COUNT(*) FROM outbox_event WHERE status = 'FAILED'") }
	testenv.Eventually(t, soon, "it fails", func() bool { return failed() == 1 })
	require.Contains(t, w.as("relay", "relay", "failed"), "poison:1")
	w.as("relay", "relay", "requeue", "--event-id=poison:1", "--reason=test")
	testenv.Eventually(t, soon, "it fails again", func() bool { return failed() == 1 })
	w.as("relay", "relay", "discard", "--event-id=poison:1", "--reason=test")
	require.Contains(t, w.as("relay", "relay", "event", "poison:1"), "DISCARDED")

	dead := func() int {
		return w.count("SELECT COUNT(*) FROM mq_dead_letter WHERE event_id = 'push:dies' AND status = 'OPEN'")
	}
	testenv.Eventually(t, soon, "it dies", func() bool { return dead() == 1 })
	w.as("relay", "relay", "dead", "replay", "--all", "--reason=test")
	testenv.Eventually(t, soon, "it dies again", func() bool { return dead() == 1 })
	w.as("relay", "relay", "dead", "discard", "--all", "--reason=test")
	require.Contains(t, w.as("relay", "relay", "event", "push:dies"), "DISCARDED")

	w.as("relay", "relay", "migrate", "--check")
	require.Contains(t, w.as("relay", "relay", "status"), "outbox-relay:0")
	w.as("relay", "relay", "purge")
	require.Contains(t, w.as("relay", "relay", "bus"), pushGroup)
	require.Contains(t, w.as("relay", "relay", "flags", "list"), "push-dispatch")
	testenv.Eventually(t, soon, "figures are measured", func() bool {
		return w.count("SELECT COUNT(*) FROM mq_ops_figure") > 12
	})
	require.NotContains(t, w.as("ops", "ops-consumer", "figures"), "denied")
	w.as("ops", "ops-consumer", "alerts")
}
