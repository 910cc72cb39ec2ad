package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

func TestWhichLinksAreFetched(t *testing.T) {
	l := newLinkChecker(Config{LinkHosts: []string{"affiliate.tiktok.com", "vt.tiktok.com"}})
	for link, want := range map[string]string{
		"https://affiliate.tiktok.com/api/v1/share/AbC":     "",
		"https://AFFILIATE.tiktok.com/x":                    "",
		"https://affiliate.tiktok.com:443/x":                "",
		"https://vt.tiktok.com/ZS1/":                        "",
		"http://affiliate.tiktok.com/x":                     "not https",
		"https://affiliate.tiktok.com:8443/x":               "unusual port",
		"https://affiliate.tiktok.com.evil.test/x":          "host is not on the list",
		"https://affiliate.tiktok.com./x":                   "host is not on the list",
		"https://evil.test/affiliate.tiktok.com":            "host is not on the list",
		"https://affiliate.tiktok.com@evil.test/x":          "has a user part",
		"https://evil.test@affiliate.tiktok.com/x":          "has a user part",
		"https://xn--affiliate-tktok-0kg.com/x":             "host is not on the list",
		"https://www.tiktok.com/x":                          "host is not on the list",
		"https://127.0.0.1/x":                               "host is not on the list",
		"https://[::1]/x":                                   "host is not on the list",
		"file:///etc/passwd":                                "not https",
		"javascript:alert(1)":                               "not https",
		"//affiliate.tiktok.com/x":                          "not https",
		"":                                                  "not https",
		"https://affiliate.tiktok.com/\x00":                 "not a link",
		"https://affiliate.tiktok.com\\@evil.test/":         "not a link",
		"https://affiliate.tiktok.com#@evil.test/":          "",
		"https://affiliate.tiktok.com?x=https://evil.test/": "",
	} {
		_, why := l.mayFetch(link)
		require.Equal(t, want, why, link)
	}
}

func TestWhichAddressesArePublic(t *testing.T) {
	g := newPublicOnly()
	for _, inside := range []string{
		"127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "0.0.0.0", "0.1.2.3",
		"100.64.0.1", "100.127.255.254", "192.0.0.8", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "203.0.113.5",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "fe80::1", "fc00::1", "fd12::1", "ff02::1",
		"::7f00:1", "::a00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:db8::1", "fec0::1",
	} {
		require.False(t, g.allows(netip.MustParseAddr(inside)), inside)
	}
	for _, outside := range []string{"8.8.8.8", "172.32.0.1", "100.63.255.255", "23.45.67.89", "2606:4700::1111", "::ffff:8.8.8.8"} {
		require.True(t, g.allows(netip.MustParseAddr(outside)), outside)
	}
}

// A name on the list that resolves to an inner address opens no connection: the check
// is made where the connection is, so that a name that changes its mind changes nothing.
func TestANameThatLeadsInsideOpensNoConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	var reached atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_ = c.Close()
		}
	}()
	cfg := Config{LinkHosts: []string{"localhost"}, LinkTimeout: 2 * time.Second}
	checker := newLinkChecker(cfg)
	defer checker.close()
	got := checker.look(t.Context(), "https://localhost/x")
	require.Equal(t, looked{verdict: linkUnknown, reason: "address is not public"}, got)
	// The same dialler, at a port where somebody would answer.
	_, err = newLinkTransport(cfg).DialContext(t.Context(), "tcp", l.Addr().String())
	require.ErrorIs(t, err, errPrivate)
	require.Zero(t, reached.Load())
}

// Every way in which a share link may behave has a verdict; only a link that is gone
// counts against the product, and nothing is followed.
func TestVerdicts(t *testing.T) {
	tests := map[tiktokfake.LinkKind]looked{
		tiktokfake.LinkGood:       {verdict: linkValid, reason: "redirect"},
		tiktokfake.LinkPage:       {verdict: linkValid, reason: "page"},
		tiktokfake.LinkGone:       {verdict: linkInvalid, reason: "gone"},
		tiktokfake.LinkForbidden:  {reason: "refused"},
		tiktokfake.LinkError:      {reason: "refused"},
		tiktokfake.LinkHang:       {reason: "timed out"},
		tiktokfake.LinkLie:        {reason: "error code in the page"},
		tiktokfake.LinkCaptcha:    {reason: "captcha"},
		tiktokfake.LinkHuge:       {verdict: linkValid, reason: "page"},
		tiktokfake.LinkInside:     {reason: "redirect to a stranger"},
		tiktokfake.LinkStranger:   {reason: "redirect to a stranger"},
		tiktokfake.LinkLoop:       {reason: "redirect to itself"},
		tiktokfake.LinkNoLocation: {reason: "redirect without a place"},
	}
	unfit := []tiktokfake.LinkKind{
		tiktokfake.LinkLookalike, tiktokfake.LinkPlain, tiktokfake.LinkUserinfo, tiktokfake.LinkPort, tiktokfake.LinkFile,
	}
	b := newBench(t, tiktokfake.Options{}, func(c *Config) { c.LinkTimeout = time.Second })
	c := tiktokfake.NewCampaign(1, len(tests)+len(unfit))
	b.fake.Add(c)
	p := b.pod(t)
	i := 0
	byID := map[string]tiktokfake.LinkKind{}
	for kind := range tests {
		c.Products[i].Link = kind
		byID[c.Products[i].ID] = kind
		i++
	}
	for _, kind := range unfit {
		c.Products[i].Link = kind
		i++
	}
	for n, round := range []string{"r1", "r2", "r3"} {
		b.start(t, p, round, c.ID)
		began := time.Now()
		finish(t, p, c.ID, round)
		require.Less(t, time.Since(began), 10*time.Second)
		for id, kind := range byID {
			want := statusUnknown
			switch {
			case tests[kind].verdict == linkValid:
				want = statusValid
			case tests[kind].verdict == linkInvalid && n > 0:
				want = statusInvalid // the second time in a row
			}
			require.Equal(t, want, b.text(t, "SELECT link_status FROM tiktok_partner_campaign_products WHERE product_id = ?", id), "%q in %s", kind, round)
			got := p.looks.look(t.Context(), b.text(t, "SELECT share_link FROM tiktok_partner_campaign_products WHERE product_id = ?", id))
			require.Equal(t, tests[kind], got, "%q", kind)
		}
	}
	require.EqualValues(t, len(unfit), b.count(t, "share_link IS NULL"), "links that may not be fetched are not kept")
	shares := 0
	for _, r := range b.fake.Requests() {
		if r.Call == tiktokfake.CallShare {
			shares++
			require.NotEmpty(t, r.Product, "nobody asks for a link that was not handed out")
		}
	}
	require.Equal(t, 2*3*len(tests), shares, "one GET each, and no redirect followed")

	// A link that works again is valid at once; what is unknown takes nothing back.
	for _, q := range c.Products[:len(tests)] {
		b.fake.Change(c.ID, func(*tiktokfake.Campaign) {
			if q.Link = tiktokfake.LinkForbidden; byID[q.ID] == tiktokfake.LinkGone {
				q.Link = tiktokfake.LinkGood
			}
		})
	}
	b.start(t, p, "r4", c.ID)
	finish(t, p, c.ID, "r4")
	for id, kind := range byID {
		want := statusUnknown
		if v := tests[kind].verdict; v == linkValid || v == linkInvalid {
			want = statusValid
		}
		require.Equal(t, want, b.text(t, "SELECT link_status FROM tiktok_partner_campaign_products WHERE product_id = ?", id), kind)
	}
}

func TestALinkHostThatAsksForAPauseIsObeyed(t *testing.T) {
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer host.Close()
	l := newLinkChecker(Config{LinkHosts: []string{"affiliate.tiktok.com"}, LinkTimeout: time.Second, LinkTestAddress: strings.TrimPrefix(host.URL, "http://")})
	defer l.close()
	require.Equal(t, looked{linkUnknown, "throttled", true, 7 * time.Second}, l.look(t.Context(), "https://affiliate.tiktok.com/x"))
}
