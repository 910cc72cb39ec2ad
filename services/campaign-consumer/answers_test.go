package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

// The vector that the platform publishes with its description of the signature.
func TestPublishedSignature(t *testing.T) {
	query := url.Values{"app_key": {"29a39d"}, "timestamp": {"1623812664"}, "sign": {"ignored"}, "access_token": {"ignored"}}
	require.Equal(t, "b596b73e0cc6de07ac26f036364178ab16b0a907af13d43f0a0cd2345f582dc8",
		sign("e59af819cc", "/authorization/202309/shops", query, nil))
	require.NotEqual(t, sign("s", "/p", query, nil), sign("s", "/p", query, []byte("{}")), "two bytes of an empty object are a body")
}

// body is an error in the platform's form.
func body(code int, message string) string {
	return fmt.Sprintf(`{"code":%d,"message":%q,"request_id":"R1","data":null}`, code, message)
}

// answerRow is an answer with its meaning, and with what the service does about it.
type answerRow struct {
	name   string
	status int
	body   string
	retry  string
	kind   kind
	// state is what becomes of a round whose product page is answered like that every
	// time; calls is how many product pages are asked for by one event, alarm whether
	// a person is called.
	state string
	calls int
	alarm bool
}

// every answer class: the platform's own table, and what is in no table.
func answerRows() []answerRow {
	return []answerRow{
		{"throttled, HTTP 429", 429, body(36009002, "Request too frequent"), "1", throttled, statePending, 3, false},
		{"throttled, HTTP 200", 200, body(36009002, "Request too frequent"), "", throttled, statePending, 3, false},
		{"throttled for long", 429, body(36009002, "Request too frequent"), "30", throttled, statePending, 1, false},
		{"429 without a body", 429, "<html>", "30", throttled, statePending, 1, false},
		{"hourly quota of the sandbox", 200, body(36009037, "quota"), "", quota, stateFailed, 1, true},
		{"daily quota", 200, body(45101004, "quota"), "", quota, stateFailed, 1, true},
		{"internal error", 200, body(36009003, "internal"), "", transient, statePending, 3, false},
		{"timeout", 200, body(36009007, "timeout"), "", transient, statePending, 3, false},
		{"HTTP 500", 500, "oops", "", transient, statePending, 3, false},
		{"HTTP 503, overload", 503, "<html>", "", transient, statePending, 3, false},
		{"HTTP 500 with code 0", 500, `{"code":0,"data":{"products":[]}}`, "", transient, statePending, 3, false},
		{"access token expired, for good", 401, body(105002, "expired"), "", expired, stateFailed, 2, true},
		{"scope missing", 403, body(105005, "scope"), "", config, stateFailed, 1, true},
		{"token of another user type", 401, body(101000, "user type"), "", config, stateFailed, 1, true},
		{"signature invalid", 401, body(106001, "Invalid sign"), "", config, stateFailed, 1, true},
		{"cipher missing", 400, body(106013, "cipher"), "", config, stateFailed, 1, true},
		{"clock is off", 400, body(36009004, `Invalid “timestamp”`), "", config, stateFailed, 1, true},
		{"app key", 400, body(36009004, "Invalid 'app_key'"), "", config, stateFailed, 1, true},
		{"token header", 400, body(36009004, `Invalid "x-tts-access-token" header`), "", config, stateFailed, 1, true},
		{"version", 400, body(36009004, "Invalid version"), "", config, stateFailed, 1, true},
		{"cipher refused", 400, body(36009004, `Invalid "category_asset_cipher"`), "", config, stateFailed, 1, true},
		{"something else of the request", 400, body(36009004, "?"), "", config, stateFailed, 1, true},
		{"path gone", 404, body(36009009, "Invalid path"), "", config, stateFailed, 1, true},
		{"method gone", 405, body(36009010, "Invalid method"), "", config, stateFailed, 1, true},
		{"version gone", 404, body(36009014, "Invalid version"), "", config, stateFailed, 1, true},
		{"address not allowed", 403, body(36009033, "ip"), "", account, stateFailed, 1, true},
		{"shop disabled", 403, body(36009043, "shop"), "", account, stateFailed, 1, true},
		{"seller disabled", 403, body(36009044, "seller"), "", account, stateFailed, 1, true},
		{"region mismatch", 200, body(16032001, "region"), "", item, stateFailed, 1, false},
		{"campaign not found", 200, body(16032005, "campaign"), "", item, stateFailed, 1, false},
		{"no permission", 200, body(16032007, "permission"), "", item, stateFailed, 1, false},
		{"partner status", 200, body(16032008, "partner"), "", item, stateFailed, 1, false},
		{"campaign offline", 200, body(16032009, "offline"), "", item, stateFailed, 1, false},
		{"product not in campaign", 200, body(16032010, "product"), "", item, stateFailed, 1, false},
		{"page token refused on the first page", 400, body(36009004, `Invalid "page_token"`), "", badPage, stateFailed, 1, true},
		{"code of tomorrow", 200, body(99999999, "?"), "", transient, statePending, 3, false},
		{"no code", 200, `{"data":{"products":[]}}`, "", transient, statePending, 3, false},
		{"page of a captive proxy", 200, "<html>log in</html>", "", transient, statePending, 3, false},
		{"empty", 200, "", "", transient, statePending, 3, false},
		{"cut in the middle", 200, `{"code":0,"message":"Success","data":{"products":[{"id":"1","na`, "", transient, statePending, 3, false},
	}
}

func TestEveryAnswerHasItsMeaning(t *testing.T) {
	for _, tt := range answerRows() {
		t.Run(tt.name, func(t *testing.T) {
			h := header()
			if tt.retry != "" {
				h.Set("Retry-After", tt.retry)
			}
			data, err := classify("products", tt.status, h, []byte(tt.body), time.Now())
			require.Nil(t, data)
			require.NotNil(t, err)
			require.Equal(t, tt.kind, err.kind, err.Error())
			require.NotContains(t, err.Error(), "frequent", "messages of the platform are not quoted")
		})
	}
	_, err := classify("x", 429, header("Retry-After", time.Now().Add(time.Minute).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")), nil, time.Now())
	require.InDelta(t, 60, err.retryAfter.Seconds(), 2)
	for v, want := range map[string]time.Duration{"": 0, "-5": 0, "x": 0, "99999999": time.Hour} {
		require.Equal(t, want, retryAfter(header("Retry-After", v), time.Now()), v)
	}
}

// What the service does with each answer, seen from outside: how often it asks, what
// becomes of the round, whether a person is called. Nothing is ever marked as gone.
func TestWhatFollowsFromEachAnswer(t *testing.T) {
	b := newBench(t, tiktokfake.Options{ErrorsOn200: false}, func(c *Config) { c.RetryBase, c.RetryMax = time.Hour, time.Hour })
	c := tiktokfake.NewCampaign(1, 5)
	b.fake.Add(c)
	p := b.pod(t)
	b.start(t, p, "r0", c.ID)
	finish(t, p, c.ID, "r0")
	for i, tt := range answerRows() {
		t.Run(tt.name, func(t *testing.T) {
			b.fake.Forget()
			b.s.Exec(t, "DELETE FROM mq_budget")
			b.s.Exec(t, "DELETE FROM outbox_event")
			b.s.Exec(t, "DELETE FROM mq_delayed_event")
			b.s.Exec(t, "UPDATE mq_campaign_round SET state = 'DONE'")
			roundID := fmt.Sprint("a", i)
			b.start(t, p, roundID, c.ID)
			raw := tt.body
			if raw == "" {
				raw = " "
			}
			b.fake.Program(tiktokfake.Rule{Call: tiktokfake.CallProducts, Status: tt.status, Body: raw, RetryAfter: tt.retry})
			p.alarms.said = nil
			handle(t, p, c.ID, roundID)
			require.Equal(t, tt.state, b.text(t, "SELECT state FROM mq_campaign_round"))
			require.Equal(t, tt.calls, b.fake.Counts()[tiktokfake.CallProducts])
			require.Equal(t, tt.alarm, len(p.alarms.said) == 1)
			require.EqualValues(t, 5, b.count(t, "active = 1"))
			failures := int64(0)
			if tt.kind == transient {
				failures = 1
			}
			require.Equal(t, failures, b.s.QueryInt(t, "SELECT failures FROM mq_campaign_round"), "a pause that was asked for costs nothing")
			waits := b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_delayed_event WHERE aggregate_id = ?", "id:"+c.ID)
			require.Equal(t, tt.state == statePending, waits == 1)
			reason := b.text(t, "SELECT last_error FROM mq_campaign_round")
			require.Equal(t, tt.state == stateFailed || tt.kind == transient, reason != "", reason)
			noSecrets(t, b, reason)
		})
	}
}

// An error on the pages of links leaves the products' own data synced where it is about
// the campaign, and stops the round where it is about us.
func TestRefusedLinks(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	c := tiktokfake.NewCampaign(1, 5)
	b.fake.Add(c)
	p := b.pod(t)
	b.fake.Program(tiktokfake.Rule{Call: tiktokfake.CallLinks, Code: 16032009, Message: "offline"})
	b.start(t, p, "r1", c.ID)
	finish(t, p, c.ID, "r1")
	require.Equal(t, "DONE complete 5 gone=0", squeeze(b.round(t, c.ID)))
	require.EqualValues(t, 5, b.count(t, "share_link IS NULL AND title <> ''"))
}

// Failures in a row, without progress, end the round; it is not a dead letter.
func TestARoundIsGivenUp(t *testing.T) {
	b := newBench(t, tiktokfake.Options{}, func(c *Config) { c.RetryBase, c.RetryMax, c.MaxFailures = time.Millisecond, time.Millisecond, 2 })
	c := tiktokfake.NewCampaign(1, 5)
	b.fake.Add(c)
	p := b.pod(t)
	b.fake.Program(tiktokfake.Rule{Call: tiktokfake.CallProducts, Drop: true})
	b.start(t, p, "r1", c.ID)
	finish(t, p, c.ID, "r1")
	require.Contains(t, b.text(t, "SELECT last_error FROM mq_campaign_round"), "gave up after 2 failures in a row: TikTok products: no answer")
}

func TestErrorsHoldNoSecrets(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	p := b.pod(t, func(c *Config) { c.Endpoint, c.AuthEndpoint = "http://127.0.0.1:1", "http://127.0.0.1:1" })
	_, err := p.api.products(t.Context(), "1", "")
	require.Error(t, err)
	noSecrets(t, b, err.Error())
	require.NotContains(t, err.Error(), "sign=")
	k := p.api.(*client).tokens
	_, err = k.request(t.Context(), "refresh", url.Values{"refresh_token": {"TTR_secret"}})
	require.Error(t, err)
	noSecrets(t, b, err.Error())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.api.products(ctx, "1", "")
	require.Error(t, err)
	require.False(t, errors.Is(err, errNoToken))
}
