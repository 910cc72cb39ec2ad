package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seahub/seahub-mq/pkg/service"
)

// verdict is what one look at a share link tells. The zero value is unknown: what was
// not seen decides nothing.
type verdict int

// The verdicts.
const (
	linkUnknown verdict = iota
	linkValid
	linkInvalid
)

// String names a verdict for metrics.
func (v verdict) String() string { return [...]string{"unknown", "valid", "invalid"}[v] }

const (
	// maxLinkBody bounds what is read of a link's page.
	maxLinkBody = 64 << 10
	// maxLinkHeader bounds the header of its answer.
	maxLinkHeader = 16 << 10
)

// errPrivate: a name led to an address that is not on the internet.
var errPrivate = errors.New("address is not public")

// looked is a verdict with its reason, which is one of a few fixed texts.
type looked struct {
	verdict verdict
	reason  string
	// slow asks for a pause: the host says that it is too much.
	slow  bool
	pause time.Duration
}

// linkChecker looks at share links: one GET each, of hosts on a list, over https, to
// public addresses only, without following redirects. Safe for concurrent use.
type linkChecker struct {
	hosts   []string
	targets []string
	timeout time.Duration
	http    *http.Client
}

// newLinkTransport reaches public addresses only.
func newLinkTransport(cfg Config) *http.Transport {
	dialer := &net.Dialer{Timeout: cfg.LinkTimeout, Control: newPublicOnly().control}
	transport := &http.Transport{
		// No proxy: it would do the dialling, and see addresses that we must not reach.
		Proxy: nil, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		MaxIdleConns: 64, MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second,
		TLSHandshakeTimeout: cfg.LinkTimeout, MaxResponseHeaderBytes: maxLinkHeader,
	}
	if cfg.LinkTestAddress != "" {
		transport.DialTLSContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: cfg.LinkTimeout}).DialContext(ctx, network, cfg.LinkTestAddress)
		}
	}
	return transport
}

func newLinkChecker(cfg Config) *linkChecker {
	return &linkChecker{
		hosts: cfg.LinkHosts, targets: cfg.LinkTargets, timeout: cfg.LinkTimeout,
		http: &http.Client{
			Transport:     service.Traced(newLinkTransport(cfg)),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (l *linkChecker) close() { l.http.CloseIdleConnections() }

// publicOnly refuses connections to addresses that are not on the internet.
type publicOnly struct{ not []netip.Prefix }

// newPublicOnly knows the ranges beyond those that package netip has names for: shared
// address space, this network, benchmarks, documentation, translation into any of the
// others, and what is reserved.
func newPublicOnly() publicOnly {
	var g publicOnly
	for _, p := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
		"240.0.0.0/4", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/32", "2001:db8::/32", "2002::/16", "fec0::/10",
	} {
		g.not = append(g.not, netip.MustParsePrefix(p))
	}
	return g
}

// control is asked with the address of each connection, after names were resolved: no
// name can lead inside, whatever it resolves to this time.
func (g publicOnly) control(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", errPrivate, err)
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || !g.allows(addr) {
		return errPrivate
	}
	return nil
}

func (g publicOnly) allows(addr netip.Addr) bool {
	addr = addr.Unmap()
	return addr.IsGlobalUnicast() && !addr.IsPrivate() &&
		!slices.ContainsFunc(g.not, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// mayFetch checks a link before anything is sent; "" if it may be fetched.
func (l *linkChecker) mayFetch(link string) (*url.URL, string) {
	u, err := url.Parse(link)
	switch {
	case err != nil:
		return nil, "not a link"
	case u.Scheme != "https":
		return nil, "not https"
	case u.User != nil:
		return nil, "has a user part"
	case u.Port() != "" && u.Port() != "443":
		return nil, "unusual port"
	case !slices.Contains(l.hosts, strings.ToLower(u.Hostname())):
		return nil, "host is not on the list"
	}
	return u, ""
}

// look fetches a link once and judges the answer. A link that must not be fetched is
// unknown: it says something of the platform's answer, and nothing of the product.
func (l *linkChecker) look(ctx context.Context, link string) looked {
	u, why := l.mayFetch(link)
	if u == nil {
		return looked{reason: why}
	}
	// The request has its own limit, so that an order to stop lets it finish.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return looked{reason: "not a link"}
	}
	req.Header.Set("Accept", "text/html,application/json;q=0.9,*/*;q=0.8")
	req.Header.Set("User-Agent", "Mozilla/5.0 (compatible; link check)")
	resp, err := l.http.Do(req)
	switch {
	case errors.Is(err, errPrivate):
		return looked{reason: "address is not public"}
	case err != nil && ctx.Err() != nil:
		return looked{reason: "timed out"}
	case err != nil:
		return looked{reason: "no answer"}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxLinkBody))
	if err != nil {
		return looked{reason: "answer broke off"}
	}
	return l.judge(resp, body)
}

// judge is the rule by which an answer counts. No contract of the platform's is known,
// so only what says clearly that the link is gone counts against it.
func (l *linkChecker) judge(resp *http.Response, body []byte) looked {
	switch status := resp.StatusCode; {
	case status == http.StatusNotFound, status == http.StatusGone:
		return looked{linkInvalid, "gone", false, 0}
	case status == http.StatusTooManyRequests:
		return looked{linkUnknown, "throttled", true, retryAfter(resp.Header, time.Now())}
	case status >= 300 && status < 400:
		return l.judgeRedirect(resp)
	case status != http.StatusOK:
		return looked{reason: "refused"}
	case bytes.Contains(bytes.ToLower(body), []byte("captcha")):
		return looked{reason: "captcha"}
	}
	var e envelope
	if json.Unmarshal(body, &e) == nil && e.Code != nil && *e.Code != 0 {
		return looked{reason: "error code in the page"}
	}
	return looked{linkValid, "page", false, 0}
}

// judgeRedirect looks at where a link leads, and does not go there.
func (l *linkChecker) judgeRedirect(resp *http.Response) looked {
	to, err := resp.Location()
	switch {
	case err != nil:
		return looked{reason: "redirect without a place"}
	case to.Scheme != "https" || to.User != nil || !slices.Contains(l.targets, strings.ToLower(to.Hostname())):
		return looked{reason: "redirect to a stranger"}
	case to.Hostname() == resp.Request.URL.Hostname() && to.Path == resp.Request.URL.Path:
		return looked{reason: "redirect to itself"}
	}
	return looked{linkValid, "redirect", false, 0}
}
