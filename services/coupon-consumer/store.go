package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/task"
)

// The states of user_coupons that expire. Any other value is final for us: USED,
// EXPIRED, and whatever the app has besides. The statements name the three as well.
const (
	statusClaimable = "CLAIMABLE"
	statusIssued    = "ISSUED"
	statusActive    = "ACTIVE"
)

const statusExpired = "EXPIRED"

func openStatuses() []string { return []string{statusClaimable, statusIssued, statusActive} }

// batchTimeout bounds one transaction.
const batchTimeout = 15 * time.Second

// store is all SQL of the service. user_coupons is the app's, under this name and with
// these columns (see tables). The app's statement sets the status and nothing else, and
// so do these: whether updated_at follows is the table's own doing.
// Times are the database's.
type store struct{ db *gorm.DB }

func tables() []task.Table {
	return []task.Table{
		{Name: "user_coupons", Columns: []string{"id", "user_id", "status", "expires_at"}},
		{Name: "outbox_event", Columns: []string{"event_id", "created_at"}},
		{Name: "mq_lease", Columns: []string{"name", "owner", "fence", "locked_until"}},
	}
}

// coupon is a row that was due when it was read.
type coupon struct {
	ID        string
	UserID    string
	ExpiresAt time.Time
	// ReadAt is the database's time of reading it.
	ReadAt time.Time
	// Late is how many microseconds it had been due for by then.
	Late int64
}

func (c coupon) eventID() string { return event.CouponExpireEventID(c.UserID, c.ID) }

// beforeAll stands before the first coupon of a status.
func beforeAll() coupon { return coupon{ExpiresAt: time.Date(1901, 1, 1, 0, 0, 0, 0, time.UTC)} }

// sqlDuePage reads a page of the range that begins behind a key. Two things keep it from
// reading more than the page, and a test measures both: the two parts of the key bound
// the range together, since many coupons expire at the same instant, such as midnight;
// and the status is compared by >= and <=, since for an = MariaDB prefers to look the
// status up and to read from its first coupon on, for each page.
const sqlDuePage = `SELECT id, user_id, expires_at, NOW(3) AS read_at, TIMESTAMPDIFF(MICROSECOND, expires_at, NOW(3)) AS late
	FROM user_coupons
	WHERE status >= ? AND status <= ? AND expires_at <= NOW(3) - INTERVAL ? MICROSECOND
	  AND (expires_at > ? OR (expires_at = ? AND id > ?))
	ORDER BY status, expires_at, id LIMIT ?`

// duePage reads the coupons of one status that have been due for longer than by, in
// the order of the index, from just behind the one given.
func (s store) duePage(ctx context.Context, status string, by time.Duration, after coupon, limit int) ([]coupon, error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	var page []coupon
	err := s.db.WithContext(ctx).Raw(sqlDuePage, duePageArgs(status, by, after, limit)...).Scan(&page).Error
	if err != nil {
		return nil, fmt.Errorf("read due coupons: %w", err)
	}
	return page, nil
}

func duePageArgs(status string, by time.Duration, after coupon, limit int) []any {
	return []any{status, status, by.Microseconds(), after.ExpiresAt, after.ExpiresAt, after.ID, limit}
}

// expireIfDue is the CAS of one coupon: it changes the row, or tells by false that a
// redeem, an extension or another worker was first.
func (s store) expireIfDue(ctx context.Context, id string) (bool, error) {
	res := s.db.WithContext(ctx).Exec(`UPDATE user_coupons SET status = 'EXPIRED'
		WHERE id = ? AND status IN ('CLAIMABLE', 'ISSUED', 'ACTIVE') AND expires_at <= NOW(3)`, id)
	if res.Error != nil {
		return false, fmt.Errorf("expire coupon %s: %w", id, res.Error)
	}
	return res.RowsAffected == 1, nil
}

// expireBatch is the same CAS for many coupons, in one transaction and in the order of
// their ids. Rows that a business transaction holds at the moment are left to the next
// scan: waiting for one would make everybody else wait for all that are locked already.
// The primary key is forced since the status may look selective to the optimizer, which
// would then lock its way through every due coupon.
func (s store) expireBatch(ctx context.Context, ids []string) (expired int, err error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	ids = slices.Sorted(slices.Values(ids))
	err = db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		expired = 0
		var free []string
		if err := tx.Raw(`SELECT id FROM user_coupons FORCE INDEX (PRIMARY)
			WHERE id IN ? AND status IN ('CLAIMABLE', 'ISSUED', 'ACTIVE') AND expires_at <= NOW(3)
			ORDER BY id FOR UPDATE SKIP LOCKED`, ids).Scan(&free).Error; err != nil {
			return err
		}
		if len(free) == 0 {
			return nil
		}
		res := tx.Exec(`UPDATE user_coupons FORCE INDEX (PRIMARY) SET status = 'EXPIRED'
			WHERE id IN ? AND status IN ('CLAIMABLE', 'ISSUED', 'ACTIVE') AND expires_at <= NOW(3)`, free)
		expired = int(res.RowsAffected)
		return res.Error
	})
	if err != nil {
		return 0, fmt.Errorf("expire %d coupons: %w", len(ids), err)
	}
	return expired, nil
}

// eventTimes tells when the events of coupons were written, by event_id; an event that
// does not exist (any more) is not in the map. The ids are made here and not by a join:
// the two tables may have collations that cannot be compared.
func (s store) eventTimes(ctx context.Context, coupons []coupon) (map[string]time.Time, error) {
	if len(coupons) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	ids := make([]string, len(coupons))
	for i, c := range coupons {
		ids[i] = c.eventID()
	}
	var rows []struct {
		EventID   string
		CreatedAt time.Time
	}
	if err := s.db.WithContext(ctx).Raw(`SELECT event_id, created_at FROM outbox_event WHERE event_id IN ?`, ids).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("look for the events of coupons: %w", err)
	}
	times := make(map[string]time.Time, len(rows))
	for _, r := range rows {
		times[r.EventID] = r.CreatedAt
	}
	return times, nil
}

// appendEvents writes events in one transaction and tells how many are new.
func (s store) appendEvents(ctx context.Context, events []event.Event) (appended int, err error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	err = db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		done, err := outbox.Append(ctx, tx, events...)
		appended = len(done.New)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("append events of %d coupons: %w", len(events), err)
	}
	return appended, nil
}

// standing is what a coupon looks like to who could not expire it.
type standing struct {
	// Status is "GONE" for a row that is no longer there.
	Status string
	// Open says that the status is one that expires; DueIn is how long until it does.
	Open  bool
	DueIn time.Duration
}

// standingOf reads a coupon back.
func (s store) standingOf(ctx context.Context, id string) (standing, error) {
	var status string
	var dueIn int64
	err := s.db.WithContext(ctx).Raw(`SELECT status, COALESCE(TIMESTAMPDIFF(MICROSECOND, NOW(3), expires_at), 0) FROM user_coupons WHERE id = ?`, id).
		Row().Scan(&status, &dueIn)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return standing{Status: "GONE"}, nil
	case err != nil:
		return standing{}, fmt.Errorf("read coupon %s back: %w", id, err)
	}
	return standing{
		Status: status, Open: slices.Contains(openStatuses(), status), DueIn: time.Duration(dueIn) * time.Microsecond,
	}, nil
}
