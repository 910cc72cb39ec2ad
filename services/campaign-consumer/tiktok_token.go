package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/lease"
)

const (
	// tokenLease bounds one refresh; another replica may try after it.
	tokenLease = 30 * time.Second
	// tokenTimeout bounds the request for a token, well within the lease.
	tokenTimeout = 15 * time.Second
	// tokenPatience is how long a loser waits for the winner's token.
	tokenPatience = tokenLease + 10*time.Second
	// tokenCache is how long a token is used before the table is looked at again.
	tokenCache = 15 * time.Second
	// lookAgain is the pause between two looks at the table while another refreshes.
	lookAgain = 150 * time.Millisecond
	// storeTries and storeEach bound how long a new token is tried to be stored: if it
	// were lost, a person would have to authorise the app again.
	storeTries = 8
	storeEach  = 3 * time.Second
	// earlyPause is the pause after an early refresh that brought nothing: the old token
	// still works, and calls must neither wait for the token endpoint nor hammer it.
	earlyPause = time.Minute
	// refreshPart is the part of a token's life after which it is refreshed.
	refreshPart = 0.8
)

// Errors that decide about the work.
var (
	// errReauthorise: the platform refuses the refresh token. A person must act.
	errReauthorise = errors.New("TikTok authorisation has ended: authorise the app again")
	// errNoToken: nobody has authorised the app yet.
	errNoToken = errors.New("TikTok authorisation is missing: mq_tiktok_token has no row for this app and country")
)

// token is the row of mq_tiktok_token. It is never printed.
type token struct {
	Version     int64
	Reauthorise bool
	Access      string
	Refresh     string
	Cipher      string
	// Left is until the access token expires, Life its whole life.
	Left, Life time.Duration
}

func (t token) dueForRefresh() bool {
	return float64(t.Life-t.Left) >= refreshPart*float64(t.Life)
}

// tokenStore is the part of the store that keeps tokens.
type tokenStore interface {
	readToken(ctx context.Context) (token, error)
	replaceToken(ctx context.Context, old token, fresh freshToken) error
	endToken(ctx context.Context, old token, reason string) (first bool, err error)
	storeCipher(ctx context.Context, cipher string) error
}

// tokenKeeper hands out the access token that all replicas share. One of them refreshes
// it, under a lease; the new pair is stored, by CAS on the old one, before anybody uses
// it. Safe for concurrent use.
type tokenKeeper struct {
	cfg    Config
	store  tokenStore
	leases *lease.Store
	http   *http.Client
	seen   func(call, result string, took time.Duration)

	mu     sync.Mutex
	cached token
	at     time.Time // when it was read; zero: not at all
	early  time.Time // when an early refresh last brought nothing
}

// access returns a token to use now.
func (k *tokenKeeper) access(ctx context.Context) (string, error) {
	t, err := k.current(ctx)
	if err != nil {
		return "", err
	}
	if !t.dueForRefresh() {
		return t.Access, nil
	}
	usable := t.Left > 0
	if usable && (t.Reauthorise || !k.mayTryEarly()) {
		return t.Access, nil
	}
	switch fresh, err := k.refresh(ctx, t.Access, !usable); {
	case err == nil:
		return fresh.Access, nil
	case usable: // whoever holds the lease is at it, or it will be tried again
		k.mu.Lock()
		k.early = time.Now()
		k.mu.Unlock()
		return t.Access, nil
	default:
		return "", err
	}
}

func (k *tokenKeeper) mayTryEarly() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.early.IsZero() || time.Since(k.early) > earlyPause
}

// renew replaces a token that the platform calls expired.
func (k *tokenKeeper) renew(ctx context.Context, old string) error {
	_, err := k.refresh(ctx, old, true)
	return err
}

func (k *tokenKeeper) current(ctx context.Context) (token, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	age := time.Since(k.at)
	if !k.at.IsZero() && age < tokenCache && age < k.cached.Left {
		t := k.cached
		t.Left -= age
		return t, nil
	}
	return k.read(ctx)
}

// read looks at the table; the caller holds the lock.
func (k *tokenKeeper) read(ctx context.Context) (token, error) {
	began := time.Now()
	t, err := k.store.readToken(ctx)
	if err != nil {
		return token{}, err
	}
	k.cached, k.at = t, began
	return t, nil
}

func (k *tokenKeeper) look(ctx context.Context) (token, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.read(ctx)
}

// refresh returns a token other than old. If another replica is refreshing, it waits
// for that one's token, or with wait false returns lease.ErrHeld.
func (k *tokenKeeper) refresh(ctx context.Context, old string, wait bool) (token, error) {
	end := time.Now().Add(tokenPatience)
	for {
		t, err := k.look(ctx)
		switch {
		case err != nil:
			return token{}, err
		case t.Access != old && t.Left > 0:
			return t, nil
		case t.Reauthorise:
			return token{}, errReauthorise
		}
		err = k.leases.Hold(ctx, k.leaseName(), tokenLease, func(ctx context.Context, _ *lease.Held) error {
			return k.refreshHeld(ctx, old)
		})
		switch {
		case err == nil, errors.Is(err, errTokenChanged):
			return k.look(ctx)
		case !errors.Is(err, lease.ErrHeld) || !wait:
			return token{}, err
		case time.Now().After(end) || !backoff.Sleep(ctx, lookAgain):
			return token{}, &laterError{after: time.Second, cause: err}
		}
	}
}

// refreshHeld refreshes, unless the one who held the lease before has done it.
func (k *tokenKeeper) refreshHeld(ctx context.Context, old string) error {
	t, err := k.look(ctx)
	if err != nil || (t.Access != old && t.Left > 0) {
		return err
	}
	if t.Reauthorise {
		return errReauthorise
	}
	fresh, err := k.request(ctx, "refresh", url.Values{"refresh_token": {t.Refresh}, "grant_type": {"refresh_token"}})
	var refused *apiError
	if errors.As(err, &refused) && refused.final() {
		return k.end(ctx, t, refused)
	}
	if err != nil {
		return err
	}
	return k.keep(ctx, t, fresh)
}

// final says that the platform has judged, and not merely failed.
func (e *apiError) final() bool {
	return e.code > 0 && e.status < http.StatusInternalServerError && (e.kind != transient || e.name == "unknown code") && e.kind != throttled
}

// end records that the authorisation is over; whoever is first says so, once.
func (k *tokenKeeper) end(ctx context.Context, t token, refused *apiError) error {
	first, err := k.store.endToken(writing(ctx), t, refused.Error())
	if err != nil {
		return err
	}
	if first {
		zerolog.Ctx(ctx).Error().Int("code", refused.code).Str("tiktok_request", refused.requestID).
			Msg("TikTok refuses the refresh token: the app must be authorised again; campaigns are synced until the access token expires")
	}
	return errReauthorise
}

// keep stores a new pair before anybody uses it, whatever else is told to stop: with a
// rotated refresh token there is no way back.
func (k *tokenKeeper) keep(ctx context.Context, old token, fresh freshToken) error {
	var err error
	for attempt := 1; attempt <= storeTries; attempt++ {
		storeCtx, cancel := context.WithTimeout(writing(ctx), storeEach)
		err = k.store.replaceToken(storeCtx, old, fresh)
		cancel()
		if err == nil || errors.Is(err, errTokenChanged) {
			return err
		}
		backoff.Sleep(writing(ctx), backoff.Policy{Base: 100 * time.Millisecond, Max: time.Second}.Delay(attempt))
	}
	zerolog.Ctx(ctx).Error().Err(err).Msg("a new TikTok token could not be stored and is lost; if the platform rotates refresh tokens, the app must be authorised again")
	return err
}

// freshToken is what the token endpoint answers. The *_expire_in values are instants,
// in seconds since 1970, whatever their name says.
type freshToken struct {
	Access         string `json:"access_token"`
	AccessExpires  int64  `json:"access_token_expire_in"`
	Refresh        string `json:"refresh_token"`
	RefreshExpires int64  `json:"refresh_token_expire_in"`
	UserType       *int   `json:"user_type"`
}

// userPartner is the type of user whose tokens open a partner's campaigns.
const userPartner = 3

// request asks the token endpoint; it is not signed. Errors hold no address, since the
// query is all secrets.
func (k *tokenKeeper) request(ctx context.Context, call string, query url.Values) (freshToken, error) {
	began := time.Now()
	var fresh freshToken
	path := "/api/v2/token/refresh"
	if call == "token" {
		path = "/api/v2/token/get"
	}
	query.Set("app_key", k.cfg.AppKey)
	query.Set("app_secret", k.cfg.AppSecret)
	// An order to stop must not lose an answer: the old refresh token may be spent.
	ctx, cancel := context.WithTimeout(writing(ctx), tokenTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(k.cfg.AuthEndpoint, "/")+path+"?"+query.Encode(), nil)
	if err != nil {
		return fresh, asAPIError(call, withoutURL(err))
	}
	status, header, body, err := exchange(k.http, req)
	if err != nil {
		k.seen(call, "no-answer", time.Since(began))
		return fresh, asAPIError(call, err)
	}
	data, failure := classify(call, status, header, body, time.Now())
	if failure != nil {
		k.seen(call, failure.kind.String(), time.Since(began))
		return fresh, failure
	}
	k.seen(call, "ok", time.Since(began))
	if json.Unmarshal(data, &fresh) != nil || fresh.Access == "" || fresh.Refresh == "" || fresh.AccessExpires < 1e9 {
		return fresh, &apiError{call: call, name: "success without tokens", kind: transient, status: status}
	}
	if fresh.UserType != nil && *fresh.UserType != userPartner {
		return fresh, &apiError{call: call, name: fmt.Sprintf("token is of user type %d, not a partner's", *fresh.UserType), kind: config, status: status}
	}
	return fresh, nil
}

// leaseName fits the column whatever the app key is.
func (k *tokenKeeper) leaseName() string {
	return "tiktok-token:" + k.cfg.Base.Country + ":" + k.cfg.appHash()
}

// appHash names the app in shared names.
func (c Config) appHash() string {
	sum := sha256.Sum256([]byte(c.AppKey))
	return hex.EncodeToString(sum[:4])
}

// market is the target market whose cipher is used.
func (c Config) market() string {
	if c.Market != "" {
		return c.Market
	}
	return strings.ToUpper(c.Base.Country)
}
