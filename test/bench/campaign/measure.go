package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
)

const (
	// patience bounds a round; the old path needs minutes for the default size.
	patience  = 2 * time.Hour
	lookEvery = 50 * time.Millisecond
	// tellEvery is how often a round that takes long shows how far it is.
	tellEvery = 30 * time.Second
)

// measure runs two rounds of one path on a system of its own.
func measure(ctx context.Context, dir string, binaries map[string]string, o options, events bool, say sayer) (out outcome, err error) {
	s, err := stack.Start(ctx, stack.Options{
		Dir: dir, Binaries: binaries, Durable: true, TikTok: tiktokfake.Options{Delay: o.call, LinkDelay: o.call},
	})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	for i := range o.campaigns {
		n := o.products / o.campaigns
		if i < o.products%o.campaigns {
			n++
		}
		s.TikTok.Add(tiktokfake.NewCampaign(i, n))
	}
	maps.Copy(s.Env, map[string]string{
		"SEAHUB_TIKTOK_RATE":         strconv.FormatFloat(o.apiRate, 'f', -1, 64),
		"SEAHUB_TIKTOK_RATE_MAX":     strconv.FormatFloat(o.apiRate, 'f', -1, 64),
		"SEAHUB_CAMPAIGN_LINK_RATE":  strconv.FormatFloat(o.linkRate, 'f', -1, 64),
		"SEAHUB_CAMPAIGN_EVERY":      "24h",
		"SEAHUB_CAMPAIGN_POLL_EVERY": "200ms",
		"SEAHUB_CAMPAIGN_OVERDUE_BY": "24h",
		"SEAHUB_LOG_LEVEL":           "warn",
	})
	if events {
		if err := startEvents(ctx, s, o.pods); err != nil {
			return out, err
		}
	}
	began := time.Now()
	if _, err := s.StartService(ctx, "campaign-consumer", "poll", map[string]string{"SEAHUB_TASK_ROLE": "poll", "SEAHUB_LOG_LEVEL": "info"}); err != nil {
		return out, err
	}
	round, err := await(ctx, s, o.campaigns, "", say)
	if err != nil {
		return out, err
	}
	out.first = time.Since(began)
	began = time.Now()
	if _, err := s.DB.ExecContext(ctx, "UPDATE mq_campaign_listing SET due_at = NOW(3)"); err != nil {
		return out, err
	}
	if _, err := await(ctx, s, o.campaigns, round, say); err != nil {
		return out, err
	}
	out.second = time.Since(began)
	out.requests = s.TikTok.Counts()
	if problems := s.TikTok.Problems(); len(problems) > 0 {
		return out, fmt.Errorf("%d requests broke a rule of the platform's, the first: %s", len(problems), problems[0].Problem)
	}
	out.rows, out.digest, err = digest(ctx, s)
	return out, err
}

// startEvents gives all campaigns to events, as a change that has been binding for a
// while, and starts who handles them.
func startEvents(ctx context.Context, s *stack.Stack, pods int) error {
	for _, table := range []string{"mq_feature_flag", "mq_feature_flag_history"} {
		if _, err := s.DB.ExecContext(ctx, "INSERT INTO "+table+` (flag, country, enabled, rollout_bp, salt, version, effective_at, updated_by, reason, updated_at)
			VALUES ('campaign-sync', ?, 1, 10000, 'salt', 1, NOW(3) - INTERVAL 1 HOUR, 'bench', 'bench', NOW(3) - INTERVAL 1 HOUR)`, stack.Country); err != nil {
			return fmt.Errorf("set the flag: %w", err)
		}
	}
	if _, err := s.StartService(ctx, "relay", "relay", map[string]string{"SEAHUB_LOG_LEVEL": "info"}); err != nil {
		return err
	}
	for i := range pods {
		env := map[string]string{"SEAHUB_TASK_ROLE": "consume", "SEAHUB_LOG_LEVEL": "info"}
		svc, err := s.StartService(ctx, "campaign-consumer", fmt.Sprint("consume-", i), env)
		if err != nil {
			return err
		}
		if err := svc.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// await waits until every campaign has ended a round other than before, and returns
// that round's id.
func await(ctx context.Context, s *stack.Stack, campaigns int, before string, say sayer) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	told := began
	for {
		var done, failed int
		var round string
		err := s.DB.QueryRowContext(ctx, `SELECT COALESCE(SUM(state = 'DONE' AND complete = 1), 0), COALESCE(SUM(state = 'FAILED'), 0), COALESCE(MAX(round), '')
			FROM mq_campaign_round WHERE round <> ?`, before).Scan(&done, &failed, &round)
		if err != nil {
			return "", fmt.Errorf("read the rounds: %w", err)
		}
		if failed > 0 {
			return "", fmt.Errorf("%d rounds failed", failed)
		}
		if done >= campaigns {
			return round, nil
		}
		if now := time.Now(); now.Sub(told) >= tellEvery {
			told = now
			say("  %d of %d campaigns after %s", done, campaigns, now.Sub(began).Round(time.Second))
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%d of %d campaigns are synced: %w", done, campaigns, ctx.Err())
		case <-time.After(lookEvery):
		}
	}
}

// digest is the app's table without times and without the links' own random part.
func digest(ctx context.Context, s *stack.Stack) (rows int, sum string, err error) {
	err = s.DB.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(HEX(BIT_XOR(CONV(SUBSTRING(SHA2(CONCAT_WS('|', id, country, campaign_id,
		product_id, title, main_image_url, shop_name, category_id, category_name, lowest_price, highest_price, currency, total_commission_bp,
		creator_commission_bp, partner_commission_bp, open_commission_bp, inventory, sales, review_status, available, active,
		share_link IS NOT NULL, link_status, link_checked_at IS NOT NULL), 256), 1, 16), 16, 10))), '')
		FROM tiktok_partner_campaign_products`).Scan(&rows, &sum)
	if err != nil {
		return 0, "", fmt.Errorf("read the final table: %w", err)
	}
	return rows, sum, nil
}
