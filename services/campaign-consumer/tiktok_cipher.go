package main

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/lease"
)

// cipher returns the market's cipher. It is kept beside the token, so that replicas ask
// for it once.
func (c *client) cipher(ctx context.Context) (string, error) {
	end := time.Now().Add(tokenPatience)
	for {
		t, err := c.tokens.current(ctx)
		if err != nil || t.Cipher != "" {
			return t.Cipher, err
		}
		var got string
		err = c.tokens.leases.Hold(ctx, c.tokens.leaseName()+":cipher", tokenLease, func(ctx context.Context, _ *lease.Held) error {
			got, err = c.cipherHeld(ctx)
			return err
		})
		switch {
		case err == nil:
			return got, nil
		case !errors.Is(err, lease.ErrHeld):
			return "", err
		case time.Now().After(end) || !backoff.Sleep(ctx, lookAgain):
			return "", &laterError{after: time.Second, cause: err}
		}
		if _, err := c.tokens.look(ctx); err != nil {
			return "", err
		}
	}
}

func (c *client) cipherHeld(ctx context.Context) (string, error) {
	t, err := c.tokens.look(ctx)
	if err != nil || t.Cipher != "" {
		return t.Cipher, err
	}
	got, err := c.fetchCipher(ctx)
	if err != nil {
		return "", err
	}
	if err := c.tokens.store.storeCipher(writing(ctx), got); err != nil {
		return "", err
	}
	_, err = c.tokens.look(ctx)
	return got, err
}

// dropCipher forgets a cipher that the platform refuses: the next call asks for it anew.
func (k *tokenKeeper) dropCipher(ctx context.Context) {
	if err := k.store.storeCipher(writing(ctx), ""); err != nil {
		zerolog.Ctx(ctx).Warn().Err(err).Msg("a refused cipher was not forgotten")
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at = time.Time{}
}
