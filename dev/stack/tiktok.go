package stack

import (
	"context"
	"fmt"

	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

// startTikTok starts the strict fake in this process, for the same reasons as FCM's.
func (s *Stack) startTikTok(o Options) error {
	var err error
	if s.TikTok, err = tiktokfake.Start(o.TikTok); err != nil {
		return err
	}
	s.closers = append(s.closers, s.TikTok.Close)
	return nil
}

// authoriseTikTok stores an authorisation, as a person brings it about with
// `campaign-consumer authorise`.
func (s *Stack) authoriseTikTok(ctx context.Context) error {
	t := s.TikTok.Issue(tiktokfake.UserPartner)
	_, err := s.DB.ExecContext(ctx, `INSERT INTO mq_tiktok_token
		(app_key, country, version, state, access_token, access_expires_at, refresh_token, refresh_expires_at, obtained_at, updated_at)
		VALUES (?, ?, 1, 'OK', ?, FROM_UNIXTIME(?), ?, FROM_UNIXTIME(?), NOW(3), NOW(3))`,
		s.TikTok.AppKey(), Country, t.Access, t.AccessExpires.Unix(), t.Refresh, t.RefreshExpires.Unix())
	if err != nil {
		return fmt.Errorf("authorise at the TikTok fake: %w", err)
	}
	return nil
}

// tiktokEnv points campaign-consumer at the fake, share links included.
func (s *Stack) tiktokEnv() map[string]string {
	return map[string]string{
		"SEAHUB_TIKTOK_APP_KEY":             s.TikTok.AppKey(),
		"SEAHUB_TIKTOK_APP_SECRET":          s.TikTok.AppSecret(),
		"SEAHUB_TIKTOK_ENDPOINT":            s.TikTok.URL(),
		"SEAHUB_TIKTOK_AUTH_ENDPOINT":       s.TikTok.URL(),
		"SEAHUB_CAMPAIGN_LINK_TEST_ADDRESS": s.TikTok.Addr(),
	}
}
