package main

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/task"
)

// listing is a listing that is due.
type listing struct {
	Round    string
	Failures int
}

// dueListing returns the listing that is due, nil if none is. One that failed keeps its
// round, so that what it started already is not started twice.
func (s store) dueListing(ctx context.Context) (*listing, error) {
	g := s.db.WithContext(ctx)
	if err := g.Exec(`INSERT IGNORE INTO mq_campaign_listing (country, round, due_at, updated_at)
		VALUES (?, '', NOW(3), NOW(3))`, s.country).Error; err != nil {
		return nil, fmt.Errorf("make the listing's row: %w", err)
	}
	var l listing
	var due bool
	var fresh string
	if err := g.Raw(`SELECT round, failures, due_at <= NOW(3),
		CONCAT('r', LOWER(CONV(FLOOR(UNIX_TIMESTAMP(NOW(3)) * 1000), 10, 36)))
		FROM mq_campaign_listing WHERE country = ?`, s.country).Row().Scan(&l.Round, &l.Failures, &due, &fresh); err != nil {
		return nil, fmt.Errorf("read the listing: %w", err)
	}
	if !due {
		return nil, nil
	}
	if l.Failures > 0 && l.Round != "" {
		return &l, nil
	}
	l.Round = fresh
	if err := g.Exec(`UPDATE mq_campaign_listing SET round = ?, updated_at = NOW(3) WHERE country = ?`, l.Round, s.country).Error; err != nil {
		return nil, fmt.Errorf("begin a listing: %w", err)
	}
	return &l, nil
}

// startRound starts a round of a campaign, unless one of it still waits or runs, and
// writes its event in the same transaction.
func (s store) startRound(ctx context.Context, campaignID, roundID string, withEvent bool) (started bool, err error) {
	err = db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		if started, err = s.openRound(tx, campaignID, roundID); err != nil || !started || !withEvent {
			return err
		}
		e, err := event.CampaignSyncStarted(s.country, campaignID, roundID)
		if err != nil {
			return fmt.Errorf("start a round of campaign %s: %w", campaignID, err)
		}
		if _, err := outbox.Append(ctx, tx, e); err != nil {
			return fmt.Errorf("start a round of campaign %s: %w", campaignID, err)
		}
		return nil
	})
	return started && err == nil, err
}

func (s store) openRound(tx *gorm.DB, campaignID, roundID string) (bool, error) {
	res := tx.Exec(`UPDATE mq_campaign_round
		SET round = ?, state = 'PENDING', created_at = NOW(3), due_at = NOW(3), owner = NULL, lease_until = NULL,
		    failures = 0, page_token = '', pages = 0, restarts = 0, reported_total = 0, products = 0, gone = 0,
		    truncated = 0, complete = 0, last_error = NULL, finished_at = NULL, updated_at = NOW(3)
		WHERE country = ? AND campaign_id = ? AND state IN ('DONE', 'FAILED') AND round <> ?`,
		roundID, s.country, campaignID, roundID)
	if res.Error != nil {
		return false, fmt.Errorf("start a round of campaign %s: %w", campaignID, res.Error)
	}
	if res.RowsAffected == 1 {
		return true, nil
	}
	err := tx.Exec(`INSERT INTO mq_campaign_round (country, campaign_id, round, state, created_at, due_at, updated_at)
		VALUES (?, ?, ?, 'PENDING', NOW(3), NOW(3), NOW(3))`, s.country, campaignID, roundID).Error
	if db.IsDuplicate(err) {
		return false, nil // it waits, runs, or had this round already
	}
	if err != nil {
		return false, fmt.Errorf("start the first round of campaign %s: %w", campaignID, err)
	}
	return true, nil
}

// listed ends a listing that worked.
func (s store) listed(ctx context.Context, campaigns, started int, truncated bool, every time.Duration) error {
	err := s.db.WithContext(ctx).Exec(`UPDATE mq_campaign_listing
		SET due_at = NOW(3) + INTERVAL ? MICROSECOND, listed_at = NOW(3), campaigns = ?, started = ?, truncated = ?, failures = 0,
		    last_error = NULL, updated_at = NOW(3) WHERE country = ?`, every.Microseconds(), campaigns, started, truncated, s.country).Error
	if err != nil {
		return fmt.Errorf("end the listing: %w", err)
	}
	return nil
}

// listingFailed puts a listing off.
func (s store) listingFailed(ctx context.Context, wait time.Duration, cause error) error {
	err := s.db.WithContext(ctx).Exec(`UPDATE mq_campaign_listing
		SET due_at = NOW(3) + INTERVAL ? MICROSECOND, failures = failures + 1, last_error = ?, updated_at = NOW(3) WHERE country = ?`,
		wait.Microseconds(), short(cause.Error()), s.country).Error
	if err != nil {
		return fmt.Errorf("put the listing off: %w", err)
	}
	return nil
}

// dueRow is a round that could be leased.
type dueRow struct {
	CampaignID string
	Round      string
	CreatedAt  time.Time
	Since      time.Time // when it became due, or its lease ran out
	Late       int64     // the same as microseconds before the database's now
}

// dueRounds reads the rounds that have been due for longer than by, the oldest first,
// from just after the row given.
func (s store) dueRounds(ctx context.Context, by time.Duration, after dueRow, limit int) ([]dueRow, error) {
	since := after.Since
	if since.IsZero() {
		since = time.Unix(0, 0)
	}
	// A country has some hundreds of open rounds at most, so the expression costs nothing.
	var rows []dueRow
	err := s.db.WithContext(ctx).Raw(`SELECT campaign_id, round, created_at, since, TIMESTAMPDIFF(MICROSECOND, since, NOW(3)) AS late
		FROM (SELECT campaign_id, round, created_at, IF(state = 'RUNNING', COALESCE(lease_until, updated_at), due_at) AS since
		      FROM mq_campaign_round WHERE country = ? AND state IN ('PENDING', 'RUNNING')) AS open_rounds
		WHERE since <= NOW(3) - INTERVAL ? MICROSECOND AND since >= ? AND (since > ? OR campaign_id > ?)
		ORDER BY since, campaign_id LIMIT ?`, s.country, by.Microseconds(), since, since, after.CampaignID, limit).Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("read due rounds: %w", err)
	}
	return rows, nil
}

// tables are those that the service uses, with the columns that it reads or writes.
func tables() []task.Table {
	return []task.Table{
		{Name: "tiktok_partner_campaign_products", Columns: []string{"id", "country", "campaign_id", "product_id", "title",
			"main_image_url", "shop_name", "category_id", "category_name", "lowest_price", "highest_price", "currency",
			"total_commission_bp", "creator_commission_bp", "partner_commission_bp", "open_commission_bp", "inventory", "sales",
			"review_status", "available", "active", "share_link", "link_status", "link_checked_at", "created_at", "updated_at"}},
		{Name: "mq_campaign_listing", Columns: []string{"country", "round", "due_at", "failures"}},
		{Name: "mq_campaign_round", Columns: []string{"country", "campaign_id", "round", "state", "fence", "page_token", "reported_total"}},
		{Name: "mq_campaign_product", Columns: []string{"country", "campaign_id", "product_id", "seen_round", "missed", "link_round", "link_valid_at"}},
		{Name: "mq_tiktok_token", Columns: []string{"app_key", "country", "version", "state", "access_token", "cipher"}},
		{Name: "mq_budget", Columns: []string{"name", "rate", "next_at", "paused_until"}},
		{Name: "mq_lease", Columns: []string{"name", "fence"}},
		{Name: "mq_delayed_event", Columns: []string{"event_id", "due_at"}},
		{Name: "outbox_event", Columns: []string{"event_id", "status"}},
	}
}
