package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/service"
	"github.com/seahub/seahub-mq/pkg/task"
)

// Config is everything that can be set.
type Config struct {
	Base  service.Base
	DB    db.Config
	MQ    provider.Config
	Flags flags.Config
	Task  task.Config

	AppKey         string        `env:"SEAHUB_TIKTOK_APP_KEY" key:"seahub.tiktok.app-key" required:"true" help:"the app's key at the platform"`
	AppSecret      string        `env:"SEAHUB_TIKTOK_APP_SECRET" key:"seahub.tiktok.app-secret" required:"true" secret:"true" help:"the app's secret, with which requests are signed"`
	Market         string        `env:"SEAHUB_TIKTOK_MARKET" key:"seahub.tiktok.market" help:"target market whose cipher is used; empty: the country in capitals"`
	Endpoint       string        `env:"SEAHUB_TIKTOK_ENDPOINT" envDefault:"https://open-api.tiktokglobalshop.com" key:"seahub.tiktok.endpoint" help:"where the Open API is"`
	AuthEndpoint   string        `env:"SEAHUB_TIKTOK_AUTH_ENDPOINT" envDefault:"https://auth.tiktok-shops.com" key:"seahub.tiktok.auth-endpoint" help:"where tokens are refreshed"`
	APITimeout     time.Duration `env:"SEAHUB_TIKTOK_TIMEOUT" envDefault:"8s" key:"seahub.tiktok.timeout" min:"100ms" max:"15s" help:"patience with one call of the API"`
	APIRate        float64       `env:"SEAHUB_TIKTOK_RATE" envDefault:"5" key:"seahub.tiktok.rate" min:"1" max:"1000" help:"calls a second, of all replicas, that a new budget starts with"`
	APIRateMax     float64       `env:"SEAHUB_TIKTOK_RATE_MAX" envDefault:"50" key:"seahub.tiktok.rate-max" min:"1" max:"10000" help:"most calls a second of all replicas; the platform's refusals lower it for a while"`
	CampaignType   string        `env:"SEAHUB_TIKTOK_CAMPAIGN_TYPE" envDefault:"MY_CAMPAIGNS" key:"seahub.tiktok.campaign-type" oneof:"MY_CAMPAIGNS,GS_SELLING_CAMPAIGNS,SELLER_CAMPAIGNS,EXCLUSIVE_TIKTOK_SHOP" help:"which campaigns are listed"`
	CampaignStatus string        `env:"SEAHUB_TIKTOK_CAMPAIGN_STATUS" envDefault:"ONGOING" key:"seahub.tiktok.campaign-status" oneof:"ONGOING,READY,UPCOMING,CLOSED,UNSPECIFIED" help:"status of the campaigns that are listed"`

	LinkHosts        []string      `env:"SEAHUB_CAMPAIGN_LINK_HOSTS" envDefault:"affiliate.tiktok.com" key:"seahub.campaign.link-hosts" help:"the only hosts from which share links are fetched, exactly"`
	LinkTargets      []string      `env:"SEAHUB_CAMPAIGN_LINK_TARGETS" envDefault:"www.tiktok.com,vt.tiktok.com,shop.tiktok.com,shop-id.tokopedia.com,affiliate.tiktok.com" key:"seahub.campaign.link-targets" help:"hosts to which a valid share link redirects; redirects are judged, never followed"`
	LinkTimeout      time.Duration `env:"SEAHUB_CAMPAIGN_LINK_TIMEOUT" envDefault:"5s" key:"seahub.campaign.link-timeout" min:"100ms" max:"5s" help:"patience with one share link"`
	LinkRate         float64       `env:"SEAHUB_CAMPAIGN_LINK_RATE" envDefault:"20" key:"seahub.campaign.link-rate" min:"1" max:"10000" help:"most share links a second of all replicas"`
	LinkParallel     int           `env:"SEAHUB_CAMPAIGN_LINK_PARALLEL" envDefault:"16" key:"seahub.campaign.link-parallel" min:"1" max:"50" help:"share links of one campaign that are checked at a time, by events"`
	LinkFresh        time.Duration `env:"SEAHUB_CAMPAIGN_LINK_FRESH" envDefault:"0s" key:"seahub.campaign.link-fresh" max:"168h" help:"a link found valid within this time is not checked again; 0: every round checks"`
	LinkInvalidAfter int           `env:"SEAHUB_CAMPAIGN_LINK_INVALID_AFTER" envDefault:"2" key:"seahub.campaign.link-invalid-after" min:"1" max:"100" help:"rounds in a row that must find a link invalid before it counts as invalid"`
	LinkTestAddress  string        `env:"SEAHUB_CAMPAIGN_LINK_TEST_ADDRESS" key:"seahub.campaign.link-test-address" help:"for tests only: loopback host:port at which all share links are fetched, without TLS"`

	Every       time.Duration `env:"SEAHUB_CAMPAIGN_EVERY" envDefault:"30m" key:"seahub.campaign.every" min:"100ms" max:"24h" help:"pause between two listings of the campaigns, each of which starts a round"`
	PollEvery   time.Duration `env:"SEAHUB_CAMPAIGN_POLL_EVERY" envDefault:"10s" key:"seahub.campaign.poll-every" min:"50ms" max:"1m" help:"how often the poll looks whether a listing or a round is due"`
	OverdueBy   time.Duration `env:"SEAHUB_CAMPAIGN_OVERDUE_BY" envDefault:"1h" key:"seahub.campaign.overdue-by" min:"500ms" max:"48h" help:"how long a round of the event path may be overdue before the poll steps in: two rounds"`
	Lease       time.Duration `env:"SEAHUB_CAMPAIGN_LEASE" envDefault:"60s" key:"seahub.campaign.lease" min:"1s" max:"5m" help:"how long a campaign belongs to who took it, from its last write on; another takes it after that"`
	Slice       time.Duration `env:"SEAHUB_CAMPAIGN_SLICE" envDefault:"12s" key:"seahub.campaign.slice" min:"100ms" max:"5m" help:"how long one event works on a campaign before the rest goes to another event"`
	MaxFailures int           `env:"SEAHUB_CAMPAIGN_MAX_FAILURES" envDefault:"8" key:"seahub.campaign.max-failures" min:"1" max:"100" help:"failures in a row, without progress, that end a round; the next listing starts another"`
	RetryBase   time.Duration `env:"SEAHUB_CAMPAIGN_RETRY_BASE" envDefault:"15s" key:"seahub.campaign.retry-base" min:"10ms" max:"10m" help:"wait after a failure; it doubles from there"`
	RetryMax    time.Duration `env:"SEAHUB_CAMPAIGN_RETRY_MAX" envDefault:"5m" key:"seahub.campaign.retry-max" min:"10ms" max:"1h" help:"longest wait after a failure"`
	GoneAfter   int           `env:"SEAHUB_CAMPAIGN_GONE_AFTER" envDefault:"2" key:"seahub.campaign.gone-after" min:"1" max:"100" help:"whole rounds in a row that must miss a product before it counts as gone"`
	PageSize    int           `env:"SEAHUB_CAMPAIGN_PAGE_SIZE" envDefault:"50" key:"seahub.campaign.page-size" min:"1" max:"100" help:"products per page"`
}

// Bounds of one run, as the old sync had them.
const (
	maxListPages    = 5
	listPageSize    = 100
	maxProductPages = 100
	maxProducts     = 5000
)

// Validate checks what single values cannot show.
func (c Config) Validate() error {
	var errs []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	longest := c.Slice + max(c.APITimeout, c.LinkTimeout) + finishTimeout
	add(c.MQ.Provider != "" && c.MQ.Bus.HandlerTimeout < longest,
		"SEAHUB_BUS_HANDLER_TIMEOUT (seahub.bus.handler-timeout) is %s, it must be at least %s: SEAHUB_CAMPAIGN_SLICE (seahub.campaign.slice) %s, one request and %s for the last write", c.MQ.Bus.HandlerTimeout, longest, c.Slice, finishTimeout)
	add(c.Lease < longest,
		"SEAHUB_CAMPAIGN_LEASE (seahub.campaign.lease) is %s, it must be at least %s, as long as one event may work: another would take the campaign over meanwhile", c.Lease, longest)
	add(c.RetryMax < c.RetryBase,
		"SEAHUB_CAMPAIGN_RETRY_MAX (seahub.campaign.retry-max) is %s, below SEAHUB_CAMPAIGN_RETRY_BASE (seahub.campaign.retry-base) %s", c.RetryMax, c.RetryBase)
	add(c.APIRateMax < c.APIRate,
		"SEAHUB_TIKTOK_RATE_MAX (seahub.tiktok.rate-max) is %g, below SEAHUB_TIKTOK_RATE (seahub.tiktok.rate) %g", c.APIRateMax, c.APIRate)
	for _, e := range []struct{ variable, key, value string }{
		{"SEAHUB_TIKTOK_ENDPOINT", "seahub.tiktok.endpoint", c.Endpoint},
		{"SEAHUB_TIKTOK_AUTH_ENDPOINT", "seahub.tiktok.auth-endpoint", c.AuthEndpoint},
	} {
		u, err := url.Parse(e.value)
		add(err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "", "%s (%s): %q is not an http or https address", e.variable, e.key, e.value)
	}
	add(c.LinkTestAddress != "" && !isLoopback(c.LinkTestAddress),
		"SEAHUB_CAMPAIGN_LINK_TEST_ADDRESS (seahub.campaign.link-test-address): %q is not a loopback address with a port; it is for tests only", c.LinkTestAddress)
	return errors.Join(errs...)
}

func isLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}
