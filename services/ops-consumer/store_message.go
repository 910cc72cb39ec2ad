package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
)

// States of a queued message.
const (
	messageQueued  = "QUEUED"
	messageSent    = "SENT"
	messageRefused = "REFUSED" // the other side will never take it
	messageLogged  = "LOGGED"  // there is no address to send it to
)

// queued is a message that waits for its route.
type queued struct {
	ID       int64
	Attempts int
	Waited   time.Duration
	Message  message
}

// nextMessage is what a route is to send next: the oldest of the most severe. nil: nothing.
func (s store) nextMessage(ctx context.Context, route string) (*queued, error) {
	var q queued
	var raw string
	var us int64
	err := s.sweep.WithContext(ctx).Raw(`SELECT id, attempts, TIMESTAMPDIFF(MICROSECOND, created_at, NOW(3)), message_json
		FROM mq_alert_message WHERE country = ? AND route = ? AND status = 'QUEUED' ORDER BY severity_rank, id LIMIT 1`,
		s.country, route).Row().Scan(&q.ID, &q.Attempts, &us, &raw)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the queue of messages: %w", err)
	}
	q.Waited = time.Duration(us) * time.Microsecond
	if err := json.Unmarshal([]byte(raw), &q.Message); err != nil {
		return &q, fmt.Errorf("message %d: %w: %w", q.ID, errMessage, err)
	}
	return &q, nil
}

// errMessage: a stored message cannot be read.
var errMessage = errors.New("message is not readable")

// settleMessage writes what became of an attempt. A message that was replaced meanwhile
// has no row any more, which is no error.
func (s store) settleMessage(ctx context.Context, id int64, status, lastError string) error {
	err := s.sweep.WithContext(ctx).Exec(`UPDATE mq_alert_message SET attempts = attempts + 1, status = ?, last_error = NULLIF(?, ''),
		sent_at = IF(? = 'SENT', NOW(3), sent_at) WHERE id = ? AND status = 'QUEUED'`,
		status, cutText(lastError, 512), status, id).Error
	if err != nil {
		return fmt.Errorf("settle message %d: %w", id, err)
	}
	return nil
}

// receive changes alerts that came from outside, one transaction for all of them. decide
// gets the row as it is, locked.
func (s store) receive(ctx context.Context, prints []string, decide func(rows map[string]alert, now time.Time) ([]alert, []routed)) error {
	return db.InTx(ctx, s.sweep, func(tx *gorm.DB) (err error) {
		var now time.Time
		if err := tx.Raw("SELECT NOW(3)").Row().Scan(&now); err != nil {
			return fmt.Errorf("read the database's time: %w", err)
		}
		rows, err := lockAlerts(tx, prints)
		if err != nil {
			return err
		}
		alerts, messages := decide(rows, now)
		return writeAlerts(tx, s.country, alerts, messages)
	})
}

func lockAlerts(tx *gorm.DB, prints []string) (out map[string]alert, err error) {
	rows, err := tx.Raw(`SELECT `+alertColumns+` FROM mq_alert WHERE fingerprint IN ? ORDER BY fingerprint FOR UPDATE`, prints).Rows()
	if err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	defer func() {
		if closeErr := rows.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("read alerts: %w", closeErr)
		}
	}()
	out = map[string]alert{}
	for rows.Next() {
		a, err := scanAlert(rows)
		if err != nil {
			return nil, fmt.Errorf("read alerts: %w", err)
		}
		out[a.Fingerprint] = a
	}
	return out, rows.Err()
}
