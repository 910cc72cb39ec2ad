package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
)

// The values of link_status in the app's table.
const (
	statusValid   = "VALID"
	statusInvalid = "INVALID"
	statusUnknown = "UNKNOWN"
)

// known is what the tables hold of a product before a page is worked on.
type known struct {
	Link     string
	Status   string
	Round    string // that looked at the link last
	Invalids int
	// Fresh is how long ago the link was found valid; -1: never.
	Fresh time.Duration
}

// entry is a product on its way into the tables.
type entry struct {
	product product
	known   known
	made    string // a link made in this round
	checked bool
	looked  looked
}

// link is the product's share link, "" if it has none.
func (e *entry) link() string {
	if e.known.Link != "" {
		return e.known.Link
	}
	return e.made
}

// outcome is the status and the count of invalid looks in a row that follow. Only
// repeated invalid ones change the status; what is unknown changes nothing.
func (e *entry) outcome(invalidAfter int) (status string, invalids int) {
	status, invalids = e.known.Status, e.known.Invalids
	if status == "" {
		status = statusUnknown
	}
	switch {
	case !e.checked:
	case e.looked.verdict == linkValid:
		status, invalids = statusValid, 0
	case e.looked.verdict == linkInvalid:
		if invalids++; invalids >= invalidAfter {
			status = statusInvalid
		}
	}
	return status, invalids
}

// readKnown reads what the tables hold of a campaign's products.
func (s store) readKnown(ctx context.Context, campaignID string, ids []string) (map[string]known, error) {
	out := make(map[string]known, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	var rows []struct{ ProductID, ShareLink, LinkStatus string }
	if err := s.db.WithContext(ctx).Raw(`SELECT product_id, COALESCE(share_link, '') AS share_link, link_status
		FROM tiktok_partner_campaign_products WHERE country = ? AND campaign_id = ? AND product_id IN ?`,
		s.country, campaignID, ids).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read products of campaign %s: %w", campaignID, err)
	}
	for _, r := range rows {
		out[r.ProductID] = known{Link: r.ShareLink, Status: r.LinkStatus, Fresh: -1}
	}
	var ours []struct {
		ProductID, LinkRound string
		LinkInvalids         int
		Fresh                int64
	}
	if err := s.db.WithContext(ctx).Raw(`SELECT product_id, link_round, link_invalids,
		COALESCE(TIMESTAMPDIFF(MICROSECOND, link_valid_at, NOW(3)), -1) AS fresh
		FROM mq_campaign_product WHERE country = ? AND campaign_id = ? AND product_id IN ?`,
		s.country, campaignID, ids).Scan(&ours).Error; err != nil {
		return nil, fmt.Errorf("read what is known of campaign %s: %w", campaignID, err)
	}
	for _, r := range ours {
		k, there := out[r.ProductID]
		if !there {
			continue // the app removed its row
		}
		k.Round, k.Invalids, k.Fresh = r.LinkRound, r.LinkInvalids, time.Duration(r.Fresh)*time.Microsecond
		out[r.ProductID] = k
	}
	return out, nil
}

// cursor is where a round stands after a page.
type cursor struct {
	token         string
	pages         int
	products      int
	reportedTotal int
}

// save writes entries, and with next also the new cursor, in one transaction that
// begins with the fence.
func (s store) save(ctx context.Context, r *round, lease time.Duration, entries []*entry, next *cursor, invalidAfter int) error {
	return db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		if err := s.hold(tx, r, lease); err != nil {
			return err
		}
		if len(entries) > 0 {
			if err := s.upsertProducts(tx, r, entries, invalidAfter); err != nil {
				return err
			}
			if err := s.upsertOwn(tx, r, entries, invalidAfter); err != nil {
				return err
			}
		}
		if next == nil {
			return nil
		}
		res := tx.Exec(`UPDATE mq_campaign_round
			SET page_token = ?, pages = ?, products = ?, reported_total = ?, failures = 0, last_error = NULL, updated_at = NOW(3)
			WHERE country = ? AND campaign_id = ? AND round = ? AND fence = ?`,
			next.token, next.pages, next.products, next.reportedTotal, s.country, r.CampaignID, r.Round, r.Fence)
		return oneRow(res, "move the cursor of", r.CampaignID)
	})
}

// productColumns are those of the app's table that the sync writes, in the order of
// productValues; link columns and times follow in the statement.
const productColumns = `title, main_image_url, shop_name, category_id, category_name, lowest_price, highest_price, currency,
		total_commission_bp, creator_commission_bp, partner_commission_bp, open_commission_bp, inventory, sales, review_status, available`

func productValues(p product) []any {
	return []any{
		fit(p.Name, 512), fit(p.Image, 1024), fit(p.Shop, 255), string(p.Category.ID), fit(p.Category.Name, 255),
		string(p.Lowest.Amount), string(p.Highest.Amount), fit(p.Lowest.Currency, 8),
		int64(p.TotalCommission), int64(p.CreatorCommission), int64(p.PartnerCommission), int64(p.OpenCommission),
		int64(p.Inventory), int64(p.Sales), fit(p.ReviewStatus, 32), p.Available,
	}
}

// upsertProducts writes only the sync's own columns, all of them: zero values arrive,
// and what people wrote beside them stays. A link that is there stays, too.
func (s store) upsertProducts(tx *gorm.DB, r *round, entries []*entry, invalidAfter int) error {
	const each = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1, NULLIF(?, ''), ?, IF(?, NOW(3), NULL), NOW(3), NOW(3))`
	values := make([]string, 0, len(entries))
	args := make([]any, 0, 23*len(entries))
	for _, e := range entries {
		status, _ := e.outcome(invalidAfter)
		values = append(values, each)
		args = append(args, rowID(s.country, r.CampaignID, string(e.product.ID)), s.country, r.CampaignID, string(e.product.ID))
		args = append(args, productValues(e.product)...)
		args = append(args, e.link(), status, e.checked)
	}
	var set strings.Builder
	for name := range strings.SplitSeq(productColumns, ",") {
		name = strings.TrimSpace(name)
		set.WriteString(name + " = VALUES(" + name + "), ")
	}
	err := tx.Exec(`INSERT INTO tiktok_partner_campaign_products
		(id, country, campaign_id, product_id, `+productColumns+`, active, share_link, link_status, link_checked_at, created_at, updated_at)
		VALUES `+strings.Join(values, ", ")+`
		ON DUPLICATE KEY UPDATE `+set.String()+`active = 1, share_link = COALESCE(NULLIF(share_link, ''), VALUES(share_link)),
		link_status = VALUES(link_status), link_checked_at = COALESCE(VALUES(link_checked_at), link_checked_at), updated_at = NOW(3)`,
		args...).Error
	if err != nil {
		return fmt.Errorf("upsert %d products of campaign %s: %w", len(entries), r.CampaignID, err)
	}
	return nil
}

// upsertOwn notes that this round has seen the products, and their links.
func (s store) upsertOwn(tx *gorm.DB, r *round, entries []*entry, invalidAfter int) error {
	values := make([]string, 0, len(entries))
	args := make([]any, 0, 7*len(entries))
	for _, e := range entries {
		_, invalids := e.outcome(invalidAfter)
		linkRound := e.known.Round
		if e.checked {
			linkRound = r.Round
		}
		values = append(values, "(?, ?, ?, ?, 0, ?, ?, IF(?, NOW(3), NULL))")
		args = append(args, s.country, r.CampaignID, string(e.product.ID), r.Round, linkRound, invalids,
			e.checked && e.looked.verdict == linkValid)
	}
	err := tx.Exec(`INSERT INTO mq_campaign_product
		(country, campaign_id, product_id, seen_round, missed, link_round, link_invalids, link_valid_at)
		VALUES `+strings.Join(values, ", ")+`
		ON DUPLICATE KEY UPDATE seen_round = VALUES(seen_round), missed = 0, link_round = VALUES(link_round),
		link_invalids = VALUES(link_invalids), link_valid_at = COALESCE(VALUES(link_valid_at), link_valid_at)`, args...).Error
	if err != nil {
		return fmt.Errorf("note %d products of campaign %s: %w", len(entries), r.CampaignID, err)
	}
	return nil
}

// ended is how a round came to its end.
type ended struct {
	distinct int
	complete bool
	gone     int
}

// finish ends a round. Only one that saw the whole list, as the platform counts it,
// counts what it missed; a product is gone after goneAfter such rounds in a row.
func (s store) finish(ctx context.Context, r *round, truncated string, goneAfter int) (ended, error) {
	var e ended
	err := db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		e = ended{}
		if err := s.hold(tx, r, time.Minute); err != nil {
			return err
		}
		if err := tx.Raw(`SELECT COUNT(*) FROM mq_campaign_product WHERE country = ? AND campaign_id = ? AND seen_round = ?`,
			s.country, r.CampaignID, r.Round).Row().Scan(&e.distinct); err != nil {
			return fmt.Errorf("count products of campaign %s: %w", r.CampaignID, err)
		}
		e.complete = truncated == "" && e.distinct >= r.ReportedTotal
		if e.complete {
			var err error
			if e.gone, err = s.markGone(tx, r, goneAfter); err != nil {
				return err
			}
		}
		res := tx.Exec(`UPDATE mq_campaign_round
			SET state = 'DONE', complete = ?, truncated = ?, last_error = NULLIF(?, ''), products = ?, gone = ?,
			    owner = NULL, lease_until = NULL, finished_at = NOW(3), updated_at = NOW(3)
			WHERE country = ? AND campaign_id = ? AND round = ? AND fence = ?`,
			e.complete, truncated != "", truncated, e.distinct, e.gone, s.country, r.CampaignID, r.Round, r.Fence)
		return oneRow(res, "finish", r.CampaignID)
	})
	return e, err
}

func (s store) markGone(tx *gorm.DB, r *round, goneAfter int) (int, error) {
	if err := tx.Exec(`UPDATE mq_campaign_product SET missed = missed + 1
		WHERE country = ? AND campaign_id = ? AND seen_round <> ?`, s.country, r.CampaignID, r.Round).Error; err != nil {
		return 0, fmt.Errorf("count misses of campaign %s: %w", r.CampaignID, err)
	}
	var ids []string
	if err := tx.Raw(`SELECT product_id FROM mq_campaign_product WHERE country = ? AND campaign_id = ? AND missed >= ?`,
		s.country, r.CampaignID, goneAfter).Scan(&ids).Error; err != nil {
		return 0, fmt.Errorf("read misses of campaign %s: %w", r.CampaignID, err)
	}
	gone := 0
	const atOnce = 500
	for len(ids) > 0 {
		some := ids[:min(len(ids), atOnce)]
		ids = ids[len(some):]
		res := tx.Exec(`UPDATE tiktok_partner_campaign_products SET active = 0, updated_at = NOW(3)
			WHERE country = ? AND campaign_id = ? AND product_id IN ? AND active = 1`, s.country, r.CampaignID, some)
		if res.Error != nil {
			return 0, fmt.Errorf("mark products of campaign %s as gone: %w", r.CampaignID, res.Error)
		}
		gone += int(res.RowsAffected)
	}
	return gone, nil
}

// rowID is the primary key of a product's row, made as the app makes ids of what has a
// natural key.
func rowID(country, campaignID, productID string) string {
	sum := sha256.Sum256([]byte(country + ":" + campaignID + ":" + productID))
	return hex.EncodeToString(sum[:])
}

// fit cuts text to a column's characters; a row must not fail for a long name.
func fit(text string, most int) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most])
}
