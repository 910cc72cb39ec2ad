package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// errTokenChanged: another replica replaced the token first.
var errTokenChanged = errors.New("token was replaced by another replica")

// The states of mq_tiktok_token.
const (
	tokenOK          = "OK"
	tokenReauthorise = "REAUTHORISE"
)

// readToken reads the token of this app and country.
func (s store) readToken(ctx context.Context) (token, error) {
	var t token
	var state string
	var left, life int64
	err := s.db.WithContext(ctx).Raw(`SELECT version, state, access_token, refresh_token, COALESCE(cipher, ''),
		TIMESTAMPDIFF(MICROSECOND, NOW(3), access_expires_at), TIMESTAMPDIFF(MICROSECOND, obtained_at, access_expires_at)
		FROM mq_tiktok_token WHERE app_key = ? AND country = ?`, s.appKey, s.country).Row().
		Scan(&t.Version, &state, &t.Access, &t.Refresh, &t.Cipher, &left, &life)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return t, errNoToken
	case err != nil:
		return t, fmt.Errorf("read TikTok token: %w", err)
	}
	t.Reauthorise = state == tokenReauthorise
	t.Left, t.Life = time.Duration(left)*time.Microsecond, time.Duration(life)*time.Microsecond
	return t, nil
}

// authorisedFor is how long the refresh token is good for, 0 if it is not.
func (s store) authorisedFor(ctx context.Context) (time.Duration, error) {
	var left int64
	err := s.db.WithContext(ctx).Raw(`SELECT COALESCE(MAX(IF(state = 'OK', TIMESTAMPDIFF(SECOND, NOW(3), refresh_expires_at), 0)), 0)
		FROM mq_tiktok_token WHERE app_key = ? AND country = ?`, s.appKey, s.country).Row().Scan(&left)
	if err != nil {
		return 0, fmt.Errorf("read how long the TikTok authorisation lasts: %w", err)
	}
	return max(0, time.Duration(left)*time.Second), nil
}

// replaceToken stores a new pair over the old one, and over no other. A retry after an
// answer that was lost finds its own pair and is content.
func (s store) replaceToken(ctx context.Context, old token, fresh freshToken) error {
	g := s.db.WithContext(ctx)
	res := g.Exec(`UPDATE mq_tiktok_token
		SET version = version + 1, state = 'OK', access_token = ?, access_expires_at = FROM_UNIXTIME(?),
		    refresh_token = ?, refresh_expires_at = FROM_UNIXTIME(?), obtained_at = NOW(3), last_error = NULL, updated_at = NOW(3)
		WHERE app_key = ? AND country = ? AND version = ? AND access_token = ?`,
		fresh.Access, fresh.AccessExpires, fresh.Refresh, fresh.RefreshExpires, s.appKey, s.country, old.Version, old.Access)
	if res.Error != nil {
		return fmt.Errorf("store TikTok token: %w", res.Error)
	}
	if res.RowsAffected == 1 {
		return nil
	}
	now, err := s.readToken(ctx)
	if err != nil {
		return err
	}
	if now.Access == fresh.Access && now.Refresh == fresh.Refresh {
		return nil
	}
	return errTokenChanged
}

// endToken notes that the refresh token is refused; first tells who noted it.
func (s store) endToken(ctx context.Context, old token, reason string) (first bool, err error) {
	res := s.db.WithContext(ctx).Exec(`UPDATE mq_tiktok_token SET state = 'REAUTHORISE', last_error = ?, updated_at = NOW(3)
		WHERE app_key = ? AND country = ? AND version = ? AND state <> 'REAUTHORISE'`, short(reason), s.appKey, s.country, old.Version)
	if res.Error != nil {
		return false, fmt.Errorf("note that the TikTok authorisation ended: %w", res.Error)
	}
	return res.RowsAffected == 1, nil
}

// storeCipher keeps the market's cipher beside the token; an empty one is forgotten.
func (s store) storeCipher(ctx context.Context, cipher string) error {
	err := s.db.WithContext(ctx).Exec(`UPDATE mq_tiktok_token SET cipher = NULLIF(?, ''), cipher_at = NOW(3)
		WHERE app_key = ? AND country = ?`, cipher, s.appKey, s.country).Error
	if err != nil {
		return fmt.Errorf("store TikTok cipher: %w", err)
	}
	return nil
}

// firstToken stores what a person's authorisation brought, over whatever was there.
func (s store) firstToken(ctx context.Context, fresh freshToken) error {
	err := s.db.WithContext(ctx).Exec(`INSERT INTO mq_tiktok_token
		(app_key, country, version, state, access_token, access_expires_at, refresh_token, refresh_expires_at, obtained_at, updated_at)
		VALUES (?, ?, 1, ?, ?, FROM_UNIXTIME(?), ?, FROM_UNIXTIME(?), NOW(3), NOW(3))
		ON DUPLICATE KEY UPDATE version = version + 1, state = VALUES(state), access_token = VALUES(access_token),
		access_expires_at = VALUES(access_expires_at), refresh_token = VALUES(refresh_token),
		refresh_expires_at = VALUES(refresh_expires_at), obtained_at = VALUES(obtained_at), cipher = NULL, last_error = NULL,
		updated_at = VALUES(updated_at)`,
		s.appKey, s.country, tokenOK, fresh.Access, fresh.AccessExpires, fresh.Refresh, max(fresh.RefreshExpires, 1)).Error
	if err != nil {
		return fmt.Errorf("store TikTok authorisation: %w", err)
	}
	return nil
}
