package main

import (
	"context"
	"database/sql"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/service"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// now is the database's time in the app's zone, for SQL of the test's own handle.
const now = "UTC_TIMESTAMP(3) + INTERVAL 7 HOUR"

// bench is a schema, a platform and any number of pods between them.
type bench struct {
	s    *testenv.Schema
	fake *tiktokfake.Server
	cfg  Config
}

func testConfig(fake *tiktokfake.Server) Config {
	return Config{
		Base:   service.Base{Env: "id-test", Country: "id"},
		AppKey: fake.AppKey(), AppSecret: fake.AppSecret(), Endpoint: fake.URL(), AuthEndpoint: fake.URL(),
		APITimeout: 5 * time.Second, APIRate: 5000, APIRateMax: 5000, CampaignType: "MY_CAMPAIGNS", CampaignStatus: "ONGOING",
		LinkHosts: []string{tiktokfake.LinkHost}, LinkTargets: []string{"www.tiktok.com", tiktokfake.LinkHost},
		LinkTimeout: 5 * time.Second, LinkRate: 10_000, LinkParallel: 16, LinkInvalidAfter: 2, LinkTestAddress: fake.Addr(),
		Every: time.Hour, PollEvery: 50 * time.Millisecond, OverdueBy: time.Second, Lease: 10 * time.Second, Slice: 5 * time.Second,
		MaxFailures: 3, RetryBase: 20 * time.Millisecond, RetryMax: time.Second, GoneAfter: 2, PageSize: 50,
	}
}

func newBench(t *testing.T, o tiktokfake.Options, change ...func(*Config)) *bench {
	t.Helper()
	return newBenchOn(t, testenv.MariaDB(t), o, change...)
}

func newBenchOn(t *testing.T, s *testenv.Schema, o tiktokfake.Options, change ...func(*Config)) *bench {
	t.Helper()
	s.LoadApp(t)
	fake, err := tiktokfake.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	b := &bench{s: s, fake: fake, cfg: testConfig(fake)}
	for _, c := range change {
		c(&b.cfg)
	}
	b.cfg.DB = db.Config{DSN: s.DSN, TimeZone: "+07:00", MaxOpen: 24, DialTimeout: 2 * time.Second, IOTimeout: 10 * time.Second}
	_, err = migrations.Up(t.Context(), s.DB)
	require.NoError(t, err)
	b.authorise(t, fake.Issue(tiktokfake.UserPartner))
	return b
}

func (b *bench) authorise(t *testing.T, tokens tiktokfake.Tokens) {
	t.Helper()
	gdb, _ := b.open(t)
	st := store{db: gdb, country: "id", appKey: b.cfg.AppKey}
	require.NoError(t, st.firstToken(t.Context(), freshToken{
		Access: tokens.Access, AccessExpires: tokens.AccessExpires.Unix(), Refresh: tokens.Refresh, RefreshExpires: tokens.RefreshExpires.Unix(),
	}))
}

func (b *bench) open(t *testing.T) (*gorm.DB, *sql.DB) {
	t.Helper()
	gdb, err := db.Open(b.cfg.DB, sessions(b.cfg))
	require.NoError(t, err)
	pool, err := db.Pool(gdb)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return gdb, pool
}

// process is as much of a service.Process as the parts ask for.
type process struct{}

func (process) Registerer() prometheus.Registerer              { return nil }
func (process) Go(string, func(context.Context) error)         {}
func (process) Heartbeat(string, time.Duration) func()         { return func() {} }
func (process) Ready(string, func() (bool, string))            {}
func (process) OnStop(string, func(ctx context.Context) error) {}

// pod makes the parts of one more process, with pools of its own.
func (b *bench) pod(t *testing.T, change ...func(*Config)) *poller {
	t.Helper()
	cfg := b.cfg
	for _, c := range change {
		c(&cfg)
	}
	gdb, pool := b.open(t)
	_, leases := b.open(t)
	p, err := newParts(cfg, process{}, gdb, pool, lease.New(leases))
	require.NoError(t, err)
	t.Cleanup(p.close)
	p.client.again = backoff.Policy{Base: 20 * time.Millisecond, Max: 50 * time.Millisecond}
	return p.poller
}

// start opens a round of each campaign of the fake, without events.
func (b *bench) start(t *testing.T, p *poller, roundID string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		ok, err := p.store.startRound(t.Context(), id, roundID, false)
		require.NoError(t, err)
		require.True(t, ok)
	}
}

func delivery(t *testing.T, id, roundID string, attempt int) eventbus.Delivery {
	t.Helper()
	e, err := event.CampaignSyncStarted("id", id, roundID)
	require.NoError(t, err)
	return eventbus.Delivery{
		Message: eventbus.Message{Topic: eventbus.Topic("id"), Tag: string(e.Type), Key: e.EventID, Body: e.Payload}, Attempt: attempt,
	}
}

func handle(t *testing.T, p *poller, id, roundID string) eventbus.Outcome {
	t.Helper()
	return p.Handle(t.Context(), id, delivery(t, id, roundID, 1))
}

// finish hands a round's events to the pod until it is over, as a relay would.
func finish(t *testing.T, p *poller, id, roundID string) {
	t.Helper()
	testenv.Eventually(t, 60*time.Second, "the round of "+id+" ends", func() bool {
		handle(t, p, id, roundID)
		why, err := p.store.whyRefused(t.Context(), id, roundID)
		require.NoError(t, err)
		return why.Finished != ""
	})
}

func everything() task.Scope {
	return task.Scope{Owns: func(string, time.Time) bool { return true }}
}

func (b *bench) text(t *testing.T, query string, args ...any) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var v sql.NullString
	require.NoError(t, b.s.DB.QueryRowContext(ctx, query, args...).Scan(&v), query)
	return v.String
}

// round shows how the round of a campaign stands.
func (b *bench) round(t *testing.T, id string) string {
	t.Helper()
	return b.text(t, `SELECT CONCAT_WS(' ', state, IF(complete, 'complete', ''), IF(truncated, 'truncated', ''), products, CONCAT('gone=', gone))
		FROM mq_campaign_round WHERE campaign_id = ?`, id)
}

// rows are the products' rows without times, in the order of their keys.
func (b *bench) rows(t *testing.T) []string {
	t.Helper()
	rows, err := b.s.DB.QueryContext(t.Context(), `SELECT CONCAT_WS('|', id, country, campaign_id, product_id, title, main_image_url, shop_name,
		category_id, category_name, lowest_price, highest_price, currency, total_commission_bp, creator_commission_bp,
		partner_commission_bp, open_commission_bp, inventory, sales, review_status, available, active,
		share_link IS NOT NULL, link_status, link_checked_at IS NOT NULL, pinned, COALESCE(operator_note, ''))
		FROM tiktok_partner_campaign_products ORDER BY campaign_id, product_id`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	var out []string
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		out = append(out, line)
	}
	require.NoError(t, rows.Err())
	return out
}

func (b *bench) count(t *testing.T, where string, args ...any) int64 {
	t.Helper()
	return b.s.QueryInt(t, "SELECT COUNT(*) FROM tiktok_partner_campaign_products WHERE "+where, args...)
}

// noSecrets demands that a text holds nothing that opens anything.
func noSecrets(t *testing.T, b *bench, text string) {
	t.Helper()
	for _, secret := range []string{b.cfg.AppSecret, "TTP_", "TTR_", "TTC_"} {
		require.NotContains(t, text, secret)
	}
}

// header builds an HTTP header from names and values.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func many(n int, each ...int) []*tiktokfake.Campaign {
	var out []*tiktokfake.Campaign
	for i := range n {
		out = append(out, tiktokfake.NewCampaign(i, each[i%len(each)]))
	}
	return out
}

func ids(campaigns []*tiktokfake.Campaign) []string {
	var out []string
	for _, c := range campaigns {
		out = append(out, c.ID)
	}
	return out
}
