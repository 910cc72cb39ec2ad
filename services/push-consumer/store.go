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

// The states of push_messages. Any other value is somebody else's and final for us.
const (
	statusPending = "PENDING"
	statusSending = "SENDING"
	statusSent    = "SENT"
	statusFailed  = "FAILED"
	statusExpired = "EXPIRED"
)

// errLeaseLost: the push was taken over by another worker since it was leased; nothing
// was changed.
var errLeaseLost = errors.New("lease on the push was lost, another worker has it")

// store is all SQL of the service. The app's tables are push_messages and user_devices,
// under these names and with these columns (see tables); mq_push_attempts is ours.
// Times are the database's.
type store struct{ db *gorm.DB }

// push is a leased row with what is needed to send it.
type push struct {
	ID      string
	UserID  string
	Title   string
	Body    string
	Data    string
	Attempt int
	Owner   string
	// Country, when set, makes a failure for good count in the ops figures.
	Country string
	// LeftToLive is how long the push is of use; 0 where it has no expiry.
	LeftToLive time.Duration
	// Expired says why it is of no use any more, "" while it is.
	Expired string
	// Accepted is how many devices have taken it in earlier attempts, Devices those
	// of the user that have given no final answer yet.
	Accepted int
	Devices  []device
	// Refused is the code of an earlier final refusal, for the reason of a failure.
	Refused string
}

// device is one that a push is still to be sent to. Tries counts its requests so far.
type device struct {
	ID    string
	Token string
	Tries int
}

// refusal is why a push was not leased.
type refusal struct {
	// Finished holds the final status, or "GONE" for a row that is no longer there.
	Finished string
	// Held says that another worker has it; otherwise it is not due yet.
	Held bool
	// Wait is how long until it may be leased, Until the same as seconds since 1970.
	Wait  time.Duration
	Until int64
}

// leaseMessageIfDue is the one door to a push, for the poll and for the handler: one
// UPDATE that one caller wins, for a row that is PENDING and due, or SENDING with a
// lease that ran out. attempt grows with every lease, so (owner, attempt) names this
// lease and no other; it also stays above the ledger's, should someone reset it by
// hand. Without a push there is a refusal that says what to wait for.
func (s store) leaseMessageIfDue(ctx context.Context, id, owner string, lease, maxAge time.Duration, maxTries int) (*push, refusal, error) {
	var p *push
	err := db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		p = nil
		res := tx.Exec(`UPDATE push_messages
			SET status = 'SENDING', lease_owner = ?, lease_until = NOW(3) + INTERVAL ? MICROSECOND,
			    attempt = 1 + GREATEST(attempt, (SELECT COALESCE(MAX(a.attempt), 0) FROM mq_push_attempts a WHERE a.push_id = ?)),
			    updated_at = NOW(3)
			WHERE id = ?
			  AND ((status = 'PENDING' AND due_at <= NOW(3))
			    OR (status = 'SENDING' AND (lease_until IS NULL OR lease_until <= NOW(3))))`,
			owner, lease.Microseconds(), id, id)
		if res.Error != nil {
			return fmt.Errorf("lease push %s: %w", id, res.Error)
		}
		if res.RowsAffected != 1 {
			return nil
		}
		var err error
		p, err = readLeased(tx, id, owner, maxAge, maxTries)
		return err
	})
	if err != nil {
		return nil, refusal{}, err
	}
	if p != nil {
		return p, refusal{}, nil
	}
	r, err := s.whyRefused(ctx, id)
	return nil, r, err
}

// readLeased reads a push inside the transaction that leased it.
func readLeased(tx *gorm.DB, id, owner string, maxAge time.Duration, maxTries int) (*push, error) {
	p := push{Owner: owner}
	var left, late sql.NullInt64
	err := tx.Raw(`SELECT id, user_id, title, body, COALESCE(data_json, ''), attempt,
		TIMESTAMPDIFF(MICROSECOND, NOW(3), expires_at), TIMESTAMPDIFF(MICROSECOND, due_at, NOW(3))
		FROM push_messages WHERE id = ?`, id).Row().
		Scan(&p.ID, &p.UserID, &p.Title, &p.Body, &p.Data, &p.Attempt, &left, &late)
	if err != nil {
		return nil, fmt.Errorf("read leased push %s: %w", id, err)
	}
	// Whoever had the lease before may have died in mid-request: FCM may have taken it.
	if p.Attempt > 1 {
		if err := tx.Exec(`UPDATE mq_push_attempts SET state = 'UNKNOWN', error_code = 'WORKER_LOST', finished_at = NOW(3)
			WHERE push_id = ? AND state = 'SENDING'`, p.ID).Error; err != nil {
			return nil, fmt.Errorf("close old attempts of push %s: %w", p.ID, err)
		}
	}
	past, err := readLedger(tx, p.ID)
	if err != nil {
		return nil, err
	}
	switch {
	case left.Valid && left.Int64 <= 0:
		p.Expired = "its expiry has passed"
	case max(time.Duration(late.Int64)*time.Microsecond, past.age) > maxAge:
		p.Expired = "it is older than pushes are sent at (" + maxAge.String() + ")"
	}
	p.LeftToLive = time.Duration(left.Int64) * time.Microsecond
	p.Accepted, p.Refused = past.accepted, past.refused
	p.Devices, err = readDevices(tx, p.UserID, past, maxTries)
	return &p, err
}

// ledger is what earlier attempts of a push came to.
type ledger struct {
	accepted int
	refused  string
	final    map[string]bool
	tries    map[string]int
	age      time.Duration // since the first request
}

func readLedger(tx *gorm.DB, id string) (ledger, error) {
	l := ledger{final: map[string]bool{}, tries: map[string]int{}}
	var lines []struct {
		DeviceID  string
		State     string
		ErrorCode string
		Age       int64
	}
	if err := tx.Raw(`SELECT device_id, state, COALESCE(error_code, '') AS error_code,
		TIMESTAMPDIFF(MICROSECOND, started_at, NOW(3)) AS age
		FROM mq_push_attempts WHERE push_id = ?`, id).Scan(&lines).Error; err != nil {
		return l, fmt.Errorf("read attempts of push %s: %w", id, err)
	}
	for _, line := range lines {
		l.age = max(l.age, time.Duration(line.Age)*time.Microsecond)
		switch line.State {
		case stateAccepted:
			l.accepted++
			l.final[line.DeviceID] = true
		case stateDeadToken, stateRejected:
			l.refused = line.ErrorCode
			l.final[line.DeviceID] = true
		case stateOutside:
		default:
			l.tries[line.DeviceID]++
			l.refused = line.ErrorCode
		}
	}
	return l, nil
}

// readDevices returns the user's devices that are still to get the push.
func readDevices(tx *gorm.DB, userID string, past ledger, maxTries int) ([]device, error) {
	var rows []struct{ ID, PushToken string }
	if err := tx.Raw(`SELECT id, push_token FROM user_devices WHERE user_id = ? AND active = 1 ORDER BY id`,
		userID).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read devices: %w", err)
	}
	var open []device
	for _, r := range rows {
		if !past.final[r.ID] && past.tries[r.ID] < maxTries {
			open = append(open, device{ID: r.ID, Token: r.PushToken, Tries: past.tries[r.ID]})
		}
	}
	return open, nil
}

// whyRefused reads a push back that could not be leased.
func (s store) whyRefused(ctx context.Context, id string) (refusal, error) {
	var status string
	var due, lease, dueUnix, leaseUnix sql.NullInt64
	err := s.db.WithContext(ctx).Raw(`SELECT status,
		TIMESTAMPDIFF(MICROSECOND, NOW(3), due_at), TIMESTAMPDIFF(MICROSECOND, NOW(3), lease_until),
		FLOOR(UNIX_TIMESTAMP(due_at)), FLOOR(UNIX_TIMESTAMP(lease_until))
		FROM push_messages WHERE id = ?`, id).Row().Scan(&status, &due, &lease, &dueUnix, &leaseUnix)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return refusal{Finished: "GONE"}, nil
	case err != nil:
		return refusal{}, fmt.Errorf("read push %s back: %w", id, err)
	case status == statusPending:
		return refusal{Wait: time.Duration(due.Int64) * time.Microsecond, Until: dueUnix.Int64}, nil
	case status == statusSending:
		return refusal{Held: true, Wait: time.Duration(lease.Int64) * time.Microsecond, Until: leaseUnix.Int64}, nil
	}
	return refusal{Finished: status}, nil
}

// beginAttempts writes the ledger's lines before the requests leave.
func (s store) beginAttempts(ctx context.Context, p *push) error {
	values := make([]string, 0, len(p.Devices))
	args := make([]any, 0, 4*len(p.Devices))
	for _, d := range p.Devices {
		values = append(values, "(?, ?, ?, ?, 'SENDING', NOW(3))")
		args = append(args, p.ID, d.ID, p.Attempt, p.Owner)
	}
	err := s.db.WithContext(ctx).Exec(`INSERT INTO mq_push_attempts (push_id, device_id, attempt, owner, state, started_at)
		VALUES `+strings.Join(values, ", "), args...).Error
	if err != nil {
		return fmt.Errorf("begin attempt %d of push %s: %w", p.Attempt, p.ID, err)
	}
	return nil
}

// recordAnswer closes a line of the ledger, once.
func (s store) recordAnswer(ctx context.Context, p *push, deviceID string, a answer) error {
	res := s.db.WithContext(ctx).Exec(`UPDATE mq_push_attempts
		SET state = ?, provider_id = NULLIF(?, ''), error_code = NULLIF(?, ''), finished_at = NOW(3)
		WHERE push_id = ? AND device_id = ? AND attempt = ? AND owner = ? AND state = 'SENDING'`,
		a.class.state(), a.providerID, a.code, p.ID, deviceID, p.Attempt, p.Owner)
	if res.Error != nil {
		return fmt.Errorf("record answer for push %s: %w", p.ID, res.Error)
	}
	if res.RowsAffected != 1 {
		return fmt.Errorf("record answer for push %s: %w", p.ID, errLeaseLost)
	}
	return nil
}

// finish writes the final status and switches dead tokens off, in one transaction.
func (s store) finish(ctx context.Context, p *push, status, reason string, dead []device) error {
	return db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		res := tx.Exec(`UPDATE push_messages
			SET status = ?, last_error = NULLIF(?, ''), sent_at = IF(? = 'SENT', NOW(3), sent_at),
			    lease_owner = NULL, lease_until = NULL, updated_at = NOW(3)
			WHERE id = ? AND status = 'SENDING' AND lease_owner = ? AND attempt = ?`,
			status, reason, status, p.ID, p.Owner, p.Attempt)
		if err := oneRow(res, "finish", p.ID); err != nil {
			return err
		}
		if status == statusFailed && p.Country != "" {
			if err := countFailure(ctx, tx, p); err != nil {
				return err
			}
		}
		return switchOff(tx, dead)
	})
}

// reschedule gives the push back for a later attempt. With wake, the event that brings
// it back is written with it.
func (s store) reschedule(ctx context.Context, p *push, wait time.Duration, reason string, dead []device, wake bool) error {
	return db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		res := tx.Exec(`UPDATE push_messages
			SET status = 'PENDING', due_at = NOW(3) + INTERVAL ? MICROSECOND, last_error = NULLIF(?, ''),
			    lease_owner = NULL, lease_until = NULL, updated_at = NOW(3)
			WHERE id = ? AND status = 'SENDING' AND lease_owner = ? AND attempt = ?`,
			wait.Microseconds(), reason, p.ID, p.Owner, p.Attempt)
		if err := oneRow(res, "reschedule", p.ID); err != nil {
			return err
		}
		if err := switchOff(tx, dead); err != nil || !wake {
			return err
		}
		return appendWake(ctx, tx, p.ID, p.Attempt, wait)
	})
}

// postpone moves a push that is due and nobody's to later, without leasing it.
func (s store) postpone(ctx context.Context, id string, wait time.Duration, reason string, wake bool) error {
	return db.InTx(ctx, s.db, func(tx *gorm.DB) error {
		res := tx.Exec(`UPDATE push_messages
			SET due_at = NOW(3) + INTERVAL ? MICROSECOND, last_error = NULLIF(?, ''), updated_at = NOW(3)
			WHERE id = ? AND status = 'PENDING' AND due_at <= NOW(3)`, wait.Microseconds(), reason, id)
		if err := oneRow(res, "postpone", id); err != nil || !wake {
			return err
		}
		var due int64
		if err := tx.Raw(`SELECT FLOOR(UNIX_TIMESTAMP(due_at)) FROM push_messages WHERE id = ?`, id).Row().Scan(&due); err != nil {
			return fmt.Errorf("read new due time of push %s: %w", id, err)
		}
		return appendWake(ctx, tx, id, int(due), wait)
	})
}

// wakeLater writes the event that brings a push back which cannot be leased for a long
// while. Its number is the time that is waited for, so that another due time means
// another event; attempts are far smaller numbers.
func (s store) wakeLater(ctx context.Context, id string, r refusal) error {
	return db.InTx(ctx, s.db, func(tx *gorm.DB) error { return appendWake(ctx, tx, id, int(r.Until), r.Wait) })
}

func appendWake(ctx context.Context, tx *gorm.DB, id string, number int, wait time.Duration) error {
	e, err := event.PushRetried(id, number)
	if err != nil {
		return fmt.Errorf("wake push %s: %w", id, err)
	}
	if _, err := outbox.AppendAfter(ctx, tx, min(wait, outbox.MaxDelay), e); err != nil {
		return fmt.Errorf("wake push %s: %w", id, err)
	}
	return nil
}

// switchOff compares the token's value, byte for byte: the device may have registered
// anew since it was read.
func switchOff(tx *gorm.DB, dead []device) error {
	for _, d := range dead {
		if err := tx.Exec(`UPDATE user_devices SET active = 0, deactivated_at = NOW(3), updated_at = NOW(3)
			WHERE id = ? AND active = 1 AND CAST(push_token AS BINARY) = CAST(? AS BINARY)`, d.ID, d.Token).Error; err != nil {
			return fmt.Errorf("switch device off: %w", err)
		}
	}
	return nil
}

func oneRow(res *gorm.DB, what, id string) error {
	if res.Error != nil {
		return fmt.Errorf("%s push %s: %w", what, id, res.Error)
	}
	if res.RowsAffected != 1 {
		return fmt.Errorf("%s push %s: %w", what, id, errLeaseLost)
	}
	return nil
}
