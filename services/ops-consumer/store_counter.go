package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
)

// counted is what became of an event.
type counted int

const (
	countedInTime counted = iota
	countedApart
	countedBefore
)

// errDuplicate ends the transaction of an event that was counted before.
var errDuplicate = errors.New("event was counted before")

// ahead is how far in the future an event may lie before its clock is not believed.
const ahead = 5 * time.Minute

// count takes an event once: its id and the increment of its minute are one transaction.
// What is late by more than lateness beyond now, or lies ahead, is counted apart, in the
// minute of its arrival.
func (s store) count(ctx context.Context, eventID, metric string, at time.Time, lateness time.Duration) (counted, error) {
	result := countedInTime
	err := db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		result = countedInTime
		if err := tx.Exec(`INSERT INTO mq_ops_counted (event_id, counted_at) VALUES (?, NOW(3))`, eventID).Error; err != nil {
			if db.IsDuplicate(err) {
				return errDuplicate
			}
			return err
		}
		var now time.Time
		if err := tx.Raw("SELECT NOW(3)").Row().Scan(&now); err != nil {
			return err
		}
		minute, n, apart := floorMinute(at), 1, 0
		if minute.Before(floorMinute(now).Add(-lateness)) || at.After(now.Add(ahead)) {
			minute, n, apart, result = floorMinute(now), 0, 1, countedApart
		}
		return tx.Exec(`INSERT INTO mq_ops_bucket (metric, country, minute, n, apart) VALUES (?, ?, ?, ?, ?)
			ON DUPLICATE KEY UPDATE n = n + VALUES(n), apart = apart + VALUES(apart)`,
			metric, s.country, minute, n, apart).Error
	})
	switch {
	case errors.Is(err, errDuplicate):
		return countedBefore, nil
	case err != nil:
		return 0, fmt.Errorf("count event %s: %w", eventID, err)
	}
	return result, nil
}

// bucketSum adds up the buckets of [from, to).
func (r reader) bucketSum(ctx context.Context, country, metric string, from, to time.Time) (n, apart float64, err error) {
	err = r.conn.QueryRowContext(ctx, `SELECT COALESCE(SUM(n), 0), COALESCE(SUM(apart), 0) FROM mq_ops_bucket
		WHERE metric = ? AND country = ? AND minute >= ? AND minute < ?`, metric, country, from, to).Scan(&n, &apart)
	if err != nil {
		return 0, 0, fmt.Errorf("add up the buckets of %s: %w", metric, err)
	}
	return n, apart, nil
}

// agreement is a row of mq_ops_agreement; exists is false before the first sweep.
func (r reader) agreement(ctx context.Context, country, metric string) (a agreement, exists bool, err error) {
	err = r.conn.QueryRowContext(ctx, `SELECT flag_version, counting_from, agreements, disagreements, recounted_at, by_sql, by_events
		FROM mq_ops_agreement WHERE metric = ? AND country = ?`, metric, country).
		Scan(&a.FlagVersion, &a.CountingFrom, &a.Agreements, &a.Disagreements, &a.RecountedAt, &a.BySQL, &a.ByEvents)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return agreement{}, false, nil
	case err != nil:
		return a, false, fmt.Errorf("read the agreement on %s: %w", metric, err)
	}
	return a, true, nil
}

func writeAgreement(tx *gorm.DB, country, metric string, a agreement) error {
	err := tx.Exec(`INSERT INTO mq_ops_agreement
		(metric, country, flag_version, counting_from, agreements, disagreements, recounted_at, by_sql, by_events, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NOW(3))
		ON DUPLICATE KEY UPDATE flag_version = VALUES(flag_version), counting_from = VALUES(counting_from),
		agreements = VALUES(agreements), disagreements = VALUES(disagreements), recounted_at = VALUES(recounted_at),
		by_sql = VALUES(by_sql), by_events = VALUES(by_events), updated_at = VALUES(updated_at)`,
		metric, country, a.FlagVersion, a.CountingFrom, a.Agreements, a.Disagreements, a.RecountedAt, a.BySQL, a.ByEvents).Error
	if err != nil {
		return fmt.Errorf("write the agreement on %s: %w", metric, err)
	}
	return nil
}
