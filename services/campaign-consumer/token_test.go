package main

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

// The access token expires while two pods sync ten campaigns: one refresh, the new pair
// is in the table before anybody uses it, and nothing fails.
func TestATokenThatExpiresMidRunIsRefreshedOnce(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBenchOn(t, s, tiktokfake.Options{RefreshDelay: 500 * time.Millisecond, LinkDelay: 2 * time.Millisecond})
		campaigns := many(10, 120)
		b.fake.Add(campaigns...)
		pods := []*poller{b.pod(t), b.pod(t)}
		b.start(t, pods[0], "r1", ids(campaigns)...)
		// Each API request: if its token is a new one, the table must have it already.
		first := b.text(t, "SELECT access_token FROM mq_tiktok_token")
		var early sync.Map
		b.fake.OnAccess(func() {
			if b.fake.Counts()[tiktokfake.CallRefresh] == 0 {
				return
			}
			var stored string
			if err := s.DB.QueryRow("SELECT access_token FROM mq_tiktok_token").Scan(&stored); err != nil || stored == first {
				early.Store(err, true)
			}
		})
		var all sync.WaitGroup
		for i, c := range campaigns {
			all.Go(func() {
				for range 50 {
					handle(t, pods[i%2], c.ID, "r1")
					if why, err := pods[0].store.whyRefused(t.Context(), c.ID, "r1"); err != nil || why.Finished != "" {
						return
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
		testenv.Eventually(t, 10*time.Second, "the run is under way", func() bool { return b.fake.Counts()[tiktokfake.CallProducts] > 5 })
		b.fake.ExpireAccess()
		all.Wait()
		for _, c := range campaigns {
			require.Equal(t, "DONE complete 120 gone=0", squeeze(b.round(t, c.ID)))
		}
		require.Equal(t, 1, b.fake.Counts()[tiktokfake.CallRefresh])
		require.EqualValues(t, 2, s.QueryInt(t, "SELECT version FROM mq_tiktok_token"))
		require.Equal(t, tokenOK, b.text(t, "SELECT state FROM mq_tiktok_token"))
		for _, r := range b.fake.Requests() {
			if r.Problem != "" {
				require.Contains(t, r.Problem, "Expired", "no other fault than the old token's")
			}
		}
		early.Range(func(k, _ any) bool { t.Errorf("a request came while the table had the old token: %v", k); return true })
	})
}

func TestATokenIsRefreshedBeforeItsEnd(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	p := b.pod(t)
	b.s.Exec(t, "UPDATE mq_tiktok_token SET obtained_at = obtained_at - INTERVAL 6 DAY, access_expires_at = access_expires_at - INTERVAL 6 DAY")
	_, err := p.api.campaigns(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, 1, b.fake.Counts()[tiktokfake.CallRefresh])

	// As long as the old one works, a refresh that fails stops nothing.
	b.s.Exec(t, "UPDATE mq_tiktok_token SET obtained_at = obtained_at - INTERVAL 6 DAY, access_expires_at = access_expires_at - INTERVAL 6 DAY")
	b.fake.Program(tiktokfake.Rule{Call: tiktokfake.CallRefresh, Status: 503, Body: "oops"})
	late := b.pod(t)
	for range 5 {
		_, err = late.api.campaigns(t.Context(), "")
		require.NoError(t, err)
	}
	require.Equal(t, tokenOK, b.text(t, "SELECT state FROM mq_tiktok_token"))
	require.Equal(t, 2, b.fake.Counts()[tiktokfake.CallRefresh], "not one more for each call")
	b.fake.Unprogram()
	k := late.api.(*client).tokens
	k.early, k.at = k.early.Add(-earlyPause), time.Time{}
	_, err = late.api.campaigns(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, 3, b.fake.Counts()[tiktokfake.CallRefresh])
	require.EqualValues(t, 3, b.s.QueryInt(t, "SELECT version FROM mq_tiktok_token"))
}

// An answer that got lost after the platform had rotated the refresh token cannot be
// mended: one clear alert, once, over all pods; no hot retries; a person's new
// authorisation is used within seconds.
func TestALostRefreshAnswerLeadsToOneAlert(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	campaigns := many(10, 5)
	b.fake.Add(campaigns...)
	var log syncBuffer
	ctx := zerolog.New(&log).WithContext(t.Context())
	pods := []*poller{b.pod(t), b.pod(t)}
	b.start(t, pods[0], "r1", ids(campaigns)...)
	b.fake.LoseRefreshAnswers(1)
	b.fake.ExpireAccess()
	for range 3 {
		var all sync.WaitGroup
		for i, c := range campaigns {
			all.Go(func() { pods[i%2].Handle(ctx, c.ID, delivery(t, c.ID, "r1", 1)) })
		}
		all.Wait()
		b.s.Exec(t, "UPDATE mq_campaign_round SET due_at = "+now+" WHERE state = 'PENDING'")
	}
	require.Equal(t, tokenReauthorise, b.text(t, "SELECT state FROM mq_tiktok_token"))
	require.Equal(t, 1, strings.Count(log.String(), "must be authorised again"), log.String())
	refreshes := b.fake.Counts()[tiktokfake.CallRefresh]
	require.LessOrEqual(t, refreshes, 3)
	noSecrets(t, b, log.String())
	require.EqualValues(t, 10, b.s.QueryInt(t, "SELECT COUNT(*) FROM mq_campaign_round WHERE state = 'FAILED'"))

	b.authorise(t, b.fake.Issue(tiktokfake.UserPartner))
	b.start(t, pods[0], "r2", ids(campaigns)...)
	for _, p := range pods { // as time does
		p.api.(*client).tokens.at = time.Time{}
	}
	for i, c := range campaigns {
		finish(t, pods[i%2], c.ID, "r2")
		require.Equal(t, "DONE complete 5 gone=0", squeeze(b.round(t, c.ID)))
	}
	require.Equal(t, refreshes, b.fake.Counts()[tiktokfake.CallRefresh])
}

// A token endpoint that answers 200 with an error, or with no tokens, changes no row.
func TestRefreshAnswersAreJudgedByTheirBody(t *testing.T) {
	for name, tt := range map[string]struct {
		body  string
		state string
	}{
		"error code": {`{"code":36004004,"message":"refresh token is invalid","request_id":"x","data":null}`, tokenReauthorise},
		"throttled":  {`{"code":36009002,"message":"x"}`, tokenOK},
		"no code":    {`{"data":{"access_token":"a","refresh_token":"b","access_token_expire_in":1900000000}}`, tokenOK},
		"no data":    {`{"code":0,"data":null}`, tokenOK},
		"half":       {`{"code":0,"data":{"access_token":"a","access_token_expire_in":1900000000}}`, tokenOK},
		"a duration": {`{"code":0,"data":{"access_token":"a","refresh_token":"b","access_token_expire_in":604800}}`, tokenOK},
		"a seller's": {`{"code":0,"data":{"access_token":"a","refresh_token":"b","access_token_expire_in":1900000000,"user_type":0}}`, tokenOK},
		"a page":     {`<html>`, tokenOK},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tiktokfake.Options{})
			before := b.text(t, "SELECT CONCAT_WS('|', version, access_token, refresh_token) FROM mq_tiktok_token")
			b.fake.ExpireAccess()
			b.fake.Program(tiktokfake.Rule{Call: tiktokfake.CallRefresh, Body: tt.body})
			_, err := b.pod(t).api.campaigns(t.Context(), "")
			require.Error(t, err)
			noSecrets(t, b, err.Error())
			require.Equal(t, before, b.text(t, "SELECT CONCAT_WS('|', version, access_token, refresh_token) FROM mq_tiktok_token"))
			require.Equal(t, tt.state, b.text(t, "SELECT state FROM mq_tiktok_token"))
		})
	}
}

// The alert about the authorisation goes by this gauge: what nobody has read is absent,
// and what has ended is 0, however it ended.
func TestTheGaugeOfTheAuthorisation(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	p := b.pod(t)
	reg := prometheus.NewRegistry()
	reg.MustRegister(p.metrics.authorised)
	gauge := func() (values []float64) {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				values = append(values, m.GetGauge().GetValue())
			}
		}
		return values
	}
	require.Empty(t, gauge())
	p.show(t.Context(), nil)
	require.Len(t, gauge(), 1)
	require.Greater(t, gauge()[0], (24 * time.Hour).Seconds())
	b.s.Exec(t, "UPDATE mq_tiktok_token SET state = 'REAUTHORISE'")
	p.show(t.Context(), nil)
	require.Equal(t, []float64{0}, gauge())
	b.s.Exec(t, "DELETE FROM mq_tiktok_token")
	p.show(t.Context(), nil)
	require.Equal(t, []float64{0}, gauge())
}

func TestReplaceTokenIsACompareAndSwap(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		b := newBenchOn(t, s, tiktokfake.Options{})
		p := b.pod(t)
		old, err := p.store.readToken(t.Context())
		require.NoError(t, err)
		require.Greater(t, old.Left, 6*24*time.Hour)
		fresh := freshToken{Access: "a1", Refresh: "r1", AccessExpires: 1_900_000_000, RefreshExpires: 1_950_000_000}
		require.NoError(t, p.store.replaceToken(t.Context(), old, fresh))
		require.NoError(t, p.store.replaceToken(t.Context(), old, fresh), "after an answer that got lost")
		require.ErrorIs(t, p.store.replaceToken(t.Context(), old, freshToken{Access: "a2", Refresh: "r2", AccessExpires: 1_900_000_000, RefreshExpires: 1}), errTokenChanged)
		left, err := p.store.authorisedFor(t.Context())
		require.NoError(t, err)
		require.Greater(t, left, 24*time.Hour)
		first, err := p.store.endToken(t.Context(), old, "x")
		require.NoError(t, err)
		require.False(t, first, "a loser of the race calls nothing over")
		now, err := p.store.readToken(t.Context())
		require.NoError(t, err)
		require.Equal(t, "a1", now.Access)
		require.False(t, now.Reauthorise)
		require.EqualValues(t, 1_900_000_000, s.QueryInt(t, "SELECT TIMESTAMPDIFF(SECOND, '1970-01-01 07:00:00', access_expires_at) FROM mq_tiktok_token"))
	})
}

// Clocks that are off by less than the window cost nothing; beyond it the alarm names
// the clock, and nothing is tried again.
func TestClocks(t *testing.T) {
	for off, fine := range map[time.Duration]bool{
		-6 * time.Minute: false, -3 * time.Minute: true, 0: true, 80 * time.Second: true, 6 * time.Minute: false,
	} {
		b := newBench(t, tiktokfake.Options{})
		p := b.pod(t)
		p.api.(*client).now = func() time.Time { return time.Now().Add(off) }
		_, err := p.api.campaigns(t.Context(), "")
		if fine {
			require.NoError(t, err, off)
			continue
		}
		require.ErrorContains(t, err, "clock is off", off)
		require.Len(t, b.fake.Requests(), 1)
	}
}

// Signatures hold for whatever is in a query and a body, a path and a token.
func TestSignaturesHoldForEveryByte(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	c := b.pod(t).api.(*client)
	for i, raw := range []string{"", "{}", `{"a":"Kopi susu gula aren ☕ <>&"}`, `{"id":9223372036854775807,"b":{"z":1,"a":[1, 2]}}`, " { } \n"} {
		var body []byte
		if raw != "" {
			body = []byte(raw)
		}
		for _, value := range []string{"a b", "a+b", "a%2Fb", "a,b", "+/==", "é☕", "a&b=c", ""} {
			r := request{name: "links", method: "POST", path: "/affiliate_partner/202505/campaigns/1/products/promotion_links/generate_batch",
				cipher: true, body: body, query: map[string][]string{"x": {value}, "page_token": {"+/" + fmt.Sprint(i)}}}
			err := c.call(t.Context(), r, &struct{}{})
			require.Error(t, err)
			require.NotContains(t, err.Error(), "signature", "%q %q", raw, value)
		}
	}
	for _, line := range b.fake.Requests() {
		require.NotEqual(t, 106001, line.Code)
	}
	c.cfg.AppSecret = "rotated"
	_, err := c.campaigns(t.Context(), "")
	require.ErrorContains(t, err, "signature invalid")
}

func TestWrongKindsOfTokens(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	p := b.pod(t)
	for _, tt := range []struct {
		tokens tiktokfake.Tokens
		want   string
	}{
		{b.fake.Issue(tiktokfake.UserSeller), "token of another user type"},
		{b.fake.Issue(tiktokfake.UserCreator), "token of another user type"},
		{b.fake.IssueWithoutScopes(), "scope missing"},
	} {
		b.authorise(t, tt.tokens)
		p.api.(*client).tokens.at = time.Time{}
		_, err := p.api.campaigns(t.Context(), "")
		require.ErrorContains(t, err, tt.want)
	}
	b.s.Exec(t, "DELETE FROM mq_tiktok_token")
	p.api.(*client).tokens.at = time.Time{}
	_, err := p.api.campaigns(t.Context(), "")
	require.ErrorIs(t, err, errNoToken)
}

func TestAuthorise(t *testing.T) {
	b := newBench(t, tiktokfake.Options{})
	b.s.Exec(t, "DELETE FROM mq_tiktok_token")
	code := b.fake.AuthCode()
	require.NoError(t, authorise(t.Context(), b.cfg, code))
	_, err := b.pod(t).api.campaigns(t.Context(), "")
	require.NoError(t, err)
	err = authorise(t.Context(), b.cfg, code)
	require.Error(t, err, "a code works once")
	noSecrets(t, b, err.Error())
}

// syncBuffer is a log that many goroutines write.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}
