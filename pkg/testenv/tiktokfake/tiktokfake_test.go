package tiktokfake_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	campaignsPath = "/affiliate_partner/202405/campaigns"
	assetsPath    = "/authorization/202405/category_assets"
	cipher        = "CIPHER+/ID=="
)

// ask is a request under construction; what is spoilt after signing is refused.
type ask struct {
	method, path string
	query        url.Values
	body         []byte
	token        string
	contentType  string
	after        func(q url.Values)
}

type answer struct {
	status int
	code   int
	data   map[string]any
	header http.Header
	raw    string
}

// signed is the test's own reading of the rule, apart from the fake's.
func signed(secret, path string, q url.Values, body []byte) string {
	var pairs []string
	for k := range q {
		pairs = append(pairs, k+q.Get(k))
	}
	sort.Strings(pairs)
	m := hmac.New(sha256.New, []byte(secret))
	_, _ = io.WriteString(m, secret+path+strings.Join(pairs, "")+string(body)+secret)
	return hex.EncodeToString(m.Sum(nil))
}

func start(t *testing.T, o tiktokfake.Options) *tiktokfake.Server {
	t.Helper()
	s, err := tiktokfake.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func client() *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func do(t *testing.T, s *tiktokfake.Server, a ask) answer {
	t.Helper()
	if a.query == nil {
		a.query = url.Values{}
	}
	if !a.query.Has("app_key") {
		a.query.Set("app_key", s.AppKey())
	}
	if !a.query.Has("timestamp") {
		a.query.Set("timestamp", strconv.FormatInt(time.Now().Unix(), 10))
	}
	a.query.Del("sign")
	a.query.Set("sign", signed(s.AppSecret(), a.path, a.query, a.body))
	if a.after != nil {
		a.after(a.query)
	}
	if a.method == "" {
		a.method = http.MethodGet
	}
	req, err := http.NewRequest(a.method, s.URL()+a.path+"?"+a.query.Encode(), bytes.NewReader(a.body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if a.contentType != "" {
		req.Header.Set("Content-Type", a.contentType)
	}
	req.Header.Set("x-tts-access-token", a.token)
	return send(t, req)
}

func send(t *testing.T, req *http.Request) answer {
	t.Helper()
	resp, err := client().Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var e struct {
		Code int            `json:"code"`
		Data map[string]any `json:"data"`
	}
	_ = json.Unmarshal(raw, &e)
	return answer{resp.StatusCode, e.Code, e.Data, resp.Header, string(raw)}
}

// What the platform refuses the fake refuses, with the same code; the good request
// beside each shows that it is this that was refused.
func TestTheGate(t *testing.T) {
	s := start(t, tiktokfake.Options{})
	s.Add(tiktokfake.NewCampaign(1, 3))
	token := s.Issue(tiktokfake.UserPartner).Access
	good := func() ask {
		return ask{path: campaignsPath, token: token, query: url.Values{"category_asset_cipher": {cipher}, "page_size": {"100"}}}
	}
	require.Zero(t, do(t, s, good()).code)
	at := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	for name, tt := range map[string]struct {
		spoil func(a *ask)
		code  int
	}{
		"app key":               {func(a *ask) { a.query.Set("app_key", "x") }, 36009004},
		"timestamp too old":     {func(a *ask) { a.query.Set("timestamp", at(-302*time.Second)) }, 36009004},
		"timestamp ahead":       {func(a *ask) { a.query.Set("timestamp", at(33*time.Second)) }, 36009004},
		"timestamp old enough":  {func(a *ask) { a.query.Set("timestamp", at(-295*time.Second)) }, 0},
		"timestamp in millis":   {func(a *ask) { a.query.Set("timestamp", at(0)+"000") }, 36009004},
		"signature":             {func(a *ask) { a.after = func(q url.Values) { q.Set("sign", strings.Repeat("0", 64)) } }, 106001},
		"query changed":         {func(a *ask) { a.after = func(q url.Values) { q.Set("page_size", "99") } }, 106001},
		"query added":           {func(a *ask) { a.after = func(q url.Values) { q.Set("x", "y") } }, 106001},
		"content type":          {func(a *ask) { a.contentType = "text/plain" }, 36009004},
		"no token":              {func(a *ask) { a.token = "" }, 36009004},
		"unknown token":         {func(a *ask) { a.token = "x" }, 105002},
		"seller's token":        {func(a *ask) { a.token = s.Issue(tiktokfake.UserSeller).Access }, 101000},
		"token without scopes":  {func(a *ask) { a.token = s.IssueWithoutScopes().Access }, 105005},
		"no cipher":             {func(a *ask) { a.query.Del("category_asset_cipher") }, 106013},
		"wrong cipher":          {func(a *ask) { a.query.Set("category_asset_cipher", "x") }, 36009004},
		"shop cipher":           {func(a *ask) { a.query.Set("shop_cipher", "x") }, 36009004},
		"needless cipher":       {func(a *ask) { a.path = assetsPath }, 36009004},
		"page size 0":           {func(a *ask) { a.query.Set("page_size", "0") }, 36009004},
		"page size 101":         {func(a *ask) { a.query.Set("page_size", "101") }, 36009004},
		"no page size":          {func(a *ask) { a.query.Del("page_size") }, 36009004},
		"page token of another": {func(a *ask) { a.query.Set("page_token", "AAAA") }, 36009004},
		"method":                {func(a *ask) { a.method = http.MethodPost }, 36009010},
		"path":                  {func(a *ask) { a.path = "/affiliate_partner/202405/nothing" }, 36009009},
		"campaign":              {func(a *ask) { a.path = campaignsPath + "/1/products" }, 16032005},
	} {
		t.Run(name, func(t *testing.T) {
			a := good()
			tt.spoil(&a)
			require.Equal(t, tt.code, do(t, s, a).code)
		})
	}
	require.Zero(t, do(t, s, ask{path: assetsPath, token: token}).code)
	s.ExpireAccess()
	require.Equal(t, 105002, do(t, s, good()).code)
}

func TestBatchesAnswerWithNumbersAndFailInPart(t *testing.T) {
	s := start(t, tiktokfake.Options{})
	c := tiktokfake.NewCampaign(1, 60)
	c.Products[0].ID, c.Products[1].FailLinks = "9223372036854775807", 1
	s.Add(c)
	a := ask{
		method: http.MethodPost, token: s.Issue(tiktokfake.UserPartner).Access, query: url.Values{"category_asset_cipher": {cipher}},
		path: "/affiliate_partner/202505/campaigns/" + c.ID + "/products/promotion_links/generate_batch",
		body: []byte(`{"product_ids":["` + c.Products[0].ID + `","` + c.Products[1].ID + `"]}`),
	}
	got := do(t, s, a)
	require.Zero(t, got.code)
	require.Contains(t, got.raw, `"product_id":9223372036854775807`)
	require.Contains(t, got.raw, `"failed_product_ids":[`+c.Products[1].ID+`]`)
	ids := make([]string, 51)
	for i := range ids {
		ids[i] = c.Products[i].ID
	}
	var err error
	a.body, err = json.Marshal(map[string][]string{"product_ids": ids})
	require.NoError(t, err)
	require.Equal(t, 36009004, do(t, s, a).code)
	a.body = nil
	require.Equal(t, 36009004, do(t, s, a).code)
	require.Len(t, s.Problems(), 2)
}

func TestPaceAndErrorsOn200(t *testing.T) {
	s := start(t, tiktokfake.Options{QPS: 2, RetryAfter: 3 * time.Second})
	a := ask{path: assetsPath, token: s.Issue(tiktokfake.UserPartner).Access}
	require.Zero(t, do(t, s, a).code)
	require.Zero(t, do(t, s, a).code)
	got := do(t, s, a)
	require.Equal(t, []any{429, 36009002, "3"}, []any{got.status, got.code, got.header.Get("Retry-After")})
	require.Empty(t, s.Problems(), "too fast is no fault of a request")
	s = start(t, tiktokfake.Options{ErrorsOn200: true})
	got = do(t, s, ask{path: assetsPath, token: "x"})
	require.Equal(t, []any{200, 105002}, []any{got.status, got.code})
}

func TestRefreshTokensWorkOnce(t *testing.T) {
	s := start(t, tiktokfake.Options{})
	refresh := func(token string) answer {
		q := url.Values{"app_key": {s.AppKey()}, "app_secret": {s.AppSecret()}, "refresh_token": {token}, "grant_type": {"refresh_token"}}
		req, err := http.NewRequest(http.MethodGet, s.URL()+"/api/v2/token/refresh?"+q.Encode(), nil)
		require.NoError(t, err)
		return send(t, req)
	}
	first := s.Issue(tiktokfake.UserPartner).Refresh
	got := refresh(first)
	require.Zero(t, got.code)
	require.Greater(t, got.data["access_token_expire_in"].(float64), 1e9, "an instant")
	require.NotZero(t, refresh(first).code)
	require.Zero(t, refresh(got.data["refresh_token"].(string)).code)
	require.Len(t, s.Requests(), 3)
}

func TestRulesControlAndRecord(t *testing.T) {
	s := start(t, tiktokfake.Options{})
	post := func(body string) int {
		resp, err := client().Post(s.URL()+"/control", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	require.Equal(t, http.StatusNoContent, post(`{"rules":[{"call":"assets","code":36009007,"message":"x","skip":1,"times":1}],"campaigns":[{"id":"5","status":"ONGOING"}]}`))
	require.Equal(t, http.StatusBadRequest, post(`{"nonsense":1}`))
	a := ask{path: assetsPath, token: s.Issue(tiktokfake.UserPartner).Access}
	for _, want := range []int{0, 36009007, 0} {
		require.Equal(t, want, do(t, s, a).code)
	}
	req, err := http.NewRequest(http.MethodGet, s.URL()+"/record", nil)
	require.NoError(t, err)
	got := send(t, req)
	require.Contains(t, got.raw, `"assets":3`)
	require.NotContains(t, got.raw, "TTP_")
	require.NotContains(t, got.raw, s.AppSecret())
}
