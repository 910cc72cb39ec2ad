package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

// The states of mq_campaign_round.
const (
	statePending = "PENDING"
	stateRunning = "RUNNING"
	stateDone    = "DONE"
	stateFailed  = "FAILED"
)

// errFenced: the campaign was taken over since it was leased; nothing was written.
var errFenced = errors.New("campaign was taken over by another worker")

// store is all SQL of the service. The app's table is tiktok_partner_campaign_products,
// under this name and with these columns (see tables); the mq_ tables are ours. Times
// are the database's.
type store struct {
	db      *gorm.DB
	country string
	appKey  string
}

// round is a leased round of a campaign. The fence is in every write of its holder.
type round struct {
	CampaignID string
	Round      string
	Fence      int64
	Failures   int
	// PageToken is where to go on, Pages how many pages are behind it.
	PageToken     string
	Pages         int
	Restarts      int
	ReportedTotal int
	// Products counts what the pages listed, repeats included.
	Products int
}

// refusal says why a round could not be leased.
type refusal struct {
	// Finished is the final state, or that the round is not the current one.
	Finished string
	// Held: another has it. Otherwise it is not due yet.
	Held bool
	// Wait is how long until it may be leased, Until the same as seconds since 1970.
	Wait  time.Duration
	Until int64
}

// notCurrent is a Finished for a round that another one has replaced, or of which
// nothing is known.
const notCurrent = "not the campaign's current round"

// leaseRound is the one door to a campaign, for the poll and for the handler: one UPDATE
// that one caller wins, for the round given, when it is due or its lease ran out.
func (s store) leaseRound(ctx context.Context, campaignID, roundID, owner string, lease time.Duration) (*round, refusal, error) {
	var r *round
	err := db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		r = nil
		res := tx.Exec(`UPDATE mq_campaign_round
			SET state = 'RUNNING', owner = ?, lease_until = NOW(3) + INTERVAL ? MICROSECOND, fence = fence + 1, updated_at = NOW(3)
			WHERE country = ? AND campaign_id = ? AND round = ?
			  AND ((state = 'PENDING' AND due_at <= NOW(3)) OR (state = 'RUNNING' AND lease_until <= NOW(3)))`,
			owner, lease.Microseconds(), s.country, campaignID, roundID)
		if res.Error != nil {
			return fmt.Errorf("lease campaign %s: %w", campaignID, res.Error)
		}
		if res.RowsAffected != 1 {
			return nil
		}
		got := round{CampaignID: campaignID, Round: roundID}
		if err := tx.Raw(`SELECT fence, failures, page_token, pages, restarts, reported_total, products
			FROM mq_campaign_round WHERE country = ? AND campaign_id = ?`, s.country, campaignID).Row().
			Scan(&got.Fence, &got.Failures, &got.PageToken, &got.Pages, &got.Restarts, &got.ReportedTotal, &got.Products); err != nil {
			return fmt.Errorf("read leased campaign %s: %w", campaignID, err)
		}
		r = &got
		return nil
	})
	if err != nil || r != nil {
		return r, refusal{}, err
	}
	why, err := s.whyRefused(ctx, campaignID, roundID)
	return nil, why, err
}

// whyRefused reads a round back that could not be leased.
func (s store) whyRefused(ctx context.Context, campaignID, roundID string) (refusal, error) {
	var current, state string
	var due, lease, dueUnix, leaseUnix sql.NullInt64
	err := s.db.WithContext(ctx).Raw(`SELECT round, state,
		TIMESTAMPDIFF(MICROSECOND, NOW(3), due_at), TIMESTAMPDIFF(MICROSECOND, NOW(3), lease_until),
		FLOOR(UNIX_TIMESTAMP(due_at)), FLOOR(UNIX_TIMESTAMP(lease_until))
		FROM mq_campaign_round WHERE country = ? AND campaign_id = ?`, s.country, campaignID).Row().
		Scan(&current, &state, &due, &lease, &dueUnix, &leaseUnix)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return refusal{Finished: notCurrent}, nil
	case err != nil:
		return refusal{}, fmt.Errorf("read campaign %s back: %w", campaignID, err)
	case current != roundID:
		return refusal{Finished: notCurrent}, nil
	case state == statePending:
		return refusal{Wait: time.Duration(due.Int64) * time.Microsecond, Until: dueUnix.Int64}, nil
	case state == stateRunning:
		return refusal{Held: true, Wait: time.Duration(lease.Int64) * time.Microsecond, Until: leaseUnix.Int64}, nil
	}
	return refusal{Finished: state}, nil
}

// hold is the first statement of every write of a round's holder. It takes the row's
// lock, so that nobody takes the campaign over before the write commits; it prolongs
// the lease; and it fails if somebody has taken over already.
func (s store) hold(tx *gorm.DB, r *round, lease time.Duration) error {
	res := tx.Exec(`UPDATE mq_campaign_round SET lease_until = NOW(3) + INTERVAL ? MICROSECOND, updated_at = NOW(3)
		WHERE country = ? AND campaign_id = ? AND round = ? AND fence = ? AND state = 'RUNNING'`,
		lease.Microseconds(), s.country, r.CampaignID, r.Round, r.Fence)
	return oneRow(res, "hold", r.CampaignID)
}

// renew prolongs the lease where there is nothing to write.
func (s store) renew(ctx context.Context, r *round, lease time.Duration) error {
	return s.hold(s.db.WithContext(ctx), r, lease)
}

// restart sends a round back to the first page: its page token is no longer good.
func (s store) restart(ctx context.Context, r *round) error {
	res := s.db.WithContext(ctx).Exec(`UPDATE mq_campaign_round
		SET page_token = '', pages = 0, products = 0, restarts = restarts + 1, updated_at = NOW(3)
		WHERE country = ? AND campaign_id = ? AND round = ? AND fence = ? AND state = 'RUNNING'`,
		s.country, r.CampaignID, r.Round, r.Fence)
	if err := oneRow(res, "restart", r.CampaignID); err != nil {
		return err
	}
	r.PageToken, r.Pages, r.Products = "", 0, 0
	r.Restarts++
	return nil
}

// giveBack leaves the rest of a round for later. With wake, the event that brings it
// back is written with it. A failure counts, until a page is finished.
func (s store) giveBack(ctx context.Context, r *round, wait time.Duration, failure error, wake bool) error {
	reason, failed := "", 0
	if failure != nil {
		reason, failed = short(failure.Error()), 1
	}
	return db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		res := tx.Exec(`UPDATE mq_campaign_round
			SET state = 'PENDING', due_at = NOW(3) + INTERVAL ? MICROSECOND, owner = NULL, lease_until = NULL,
			    failures = failures + ?, last_error = NULLIF(?, ''), updated_at = NOW(3)
			WHERE country = ? AND campaign_id = ? AND round = ? AND fence = ? AND state = 'RUNNING'`,
			wait.Microseconds(), failed, reason, s.country, r.CampaignID, r.Round, r.Fence)
		if err := oneRow(res, "give back", r.CampaignID); err != nil || !wake {
			return err
		}
		return s.appendResume(ctx, tx, r.CampaignID, r.Round, r.Fence, wait)
	})
}

// wakeLater writes the event that brings a round back which cannot be leased for a long
// while. Its number is the time that is waited for; fences are far smaller numbers.
func (s store) wakeLater(ctx context.Context, campaignID, roundID string, why refusal) error {
	return db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		return s.appendResume(ctx, tx, campaignID, roundID, why.Until, why.Wait)
	})
}

func (s store) appendResume(ctx context.Context, tx *gorm.DB, campaignID, roundID string, n int64, wait time.Duration) error {
	e, err := event.CampaignSyncResumed(s.country, campaignID, roundID, n)
	if err != nil {
		return fmt.Errorf("resume campaign %s: %w", campaignID, err)
	}
	if wait <= 0 {
		_, err = outbox.Append(ctx, tx, e)
	} else {
		_, err = outbox.AppendAfter(ctx, tx, min(wait, outbox.MaxDelay), e)
	}
	if err != nil {
		return fmt.Errorf("resume campaign %s: %w", campaignID, err)
	}
	return nil
}

// fail ends a round that cannot be finished. Nothing is marked as gone.
func (s store) fail(ctx context.Context, r *round, cause error) error {
	res := s.db.WithContext(ctx).Exec(`UPDATE mq_campaign_round
		SET state = 'FAILED', complete = 0, last_error = ?, owner = NULL, lease_until = NULL, finished_at = NOW(3), updated_at = NOW(3)
		WHERE country = ? AND campaign_id = ? AND round = ? AND fence = ? AND state = 'RUNNING'`,
		short(cause.Error()), s.country, r.CampaignID, r.Round, r.Fence)
	return oneRow(res, "fail", r.CampaignID)
}

// oneRow turns a write that found its row no longer its own into errFenced.
func oneRow(res *gorm.DB, what, campaignID string) error {
	if res.Error != nil {
		return fmt.Errorf("%s campaign %s: %w", what, campaignID, res.Error)
	}
	if res.RowsAffected != 1 {
		return fmt.Errorf("%s campaign %s: %w", what, campaignID, errFenced)
	}
	return nil
}

// short fits a column of 512 characters, which takes no half ones.
func short(text string) string {
	const longest = 500
	return strings.ToValidUTF8(text[:min(len(text), longest)], "")
}
