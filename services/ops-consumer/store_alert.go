package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
)

// errLeaseLost: another sweep has begun meanwhile; nothing of this one was written.
var errLeaseLost = errors.New("the sweep's lease was lost")

const alertColumns = `fingerprint, rule, subject, origin, severity, state, episode, value, told_value, threshold,
	detail_json, since, clear_since, told_at, resolved_at`

func scanAlert(row interface{ Scan(...any) error }) (alert, error) {
	var a alert
	var raw string
	err := row.Scan(&a.Fingerprint, &a.Rule, &a.Subject, &a.Origin, &a.Severity, &a.State, &a.Episode, &a.Value, &a.ToldValue,
		&a.Threshold, &raw, &a.Since, &a.ClearSince, &a.ToldAt, &a.ResolvedAt)
	if err == nil {
		err = json.Unmarshal([]byte(raw), &a.Detail)
	}
	return a, err
}

// alerts reads all rows of a country by fingerprint: they are as many as there are rules
// and subjects.
func (r reader) alerts(ctx context.Context, country string) (map[string]alert, error) {
	out := map[string]alert{}
	err := r.each(ctx, `SELECT `+alertColumns+` FROM mq_alert WHERE country = ? LIMIT 100000`, func(row *sql.Rows) error {
		a, err := scanAlert(row)
		out[a.Fingerprint] = a
		return err
	}, country)
	if err != nil {
		return nil, fmt.Errorf("read the alerts: %w", err)
	}
	return out, nil
}

func writeAlert(tx *gorm.DB, country string, a alert) error {
	raw, err := json.Marshal(a.Detail)
	if err != nil {
		return fmt.Errorf("encode alert %s: %w", a.Fingerprint, err)
	}
	err = tx.Exec(`INSERT INTO mq_alert (fingerprint, rule, country, subject, origin, severity, state, episode, value,
		told_value, threshold, detail_json, since, clear_since, told_at, resolved_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NOW(3))
		ON DUPLICATE KEY UPDATE severity = VALUES(severity), state = VALUES(state), episode = VALUES(episode),
		value = VALUES(value), told_value = VALUES(told_value), threshold = VALUES(threshold),
		detail_json = VALUES(detail_json), since = VALUES(since), clear_since = VALUES(clear_since),
		told_at = VALUES(told_at), resolved_at = VALUES(resolved_at), updated_at = VALUES(updated_at)`,
		a.Fingerprint, a.Rule, country, a.Subject, a.Origin, a.Severity, a.State, a.Episode, a.Value,
		a.ToldValue, a.Threshold, string(raw), a.Since, a.ClearSince, a.ToldAt, a.ResolvedAt).Error
	if err != nil {
		return fmt.Errorf("write alert %s: %w", a.Fingerprint, err)
	}
	return nil
}

// enqueue writes a message for a route. After an outage nobody wants to read an alert's
// repeats one by one, so that one takes the place of an earlier one that still waits.
func enqueue(tx *gorm.DB, route string, m message) error {
	raw, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the message of %s: %w", m.Rule, err)
	}
	if m.Kind == kindRepeat || m.Kind == kindWorse {
		if err := supersede(tx, route, m); err != nil {
			return fmt.Errorf("replace waiting messages of %s: %w", m.Rule, err)
		}
	}
	err = tx.Exec(`INSERT INTO mq_alert_message (country, route, severity_rank, kind, rule, message_json, created_at)
		VALUES (?, ?, ?, ?, ?, ?, NOW(3))`, m.Country, route, rankOf(m.Severity), m.Kind, m.Rule, string(raw)).Error
	if err != nil {
		return fmt.Errorf("queue the message of %s: %w", m.Rule, err)
	}
	return nil
}

// supersede takes the alerts of m out of earlier messages of its kind that still wait.
// What those say of other alerts stays.
func supersede(tx *gorm.DB, route string, m message) error {
	var waiting []struct {
		ID  int64
		Raw string
	}
	err := tx.Raw(`SELECT id, message_json AS raw FROM mq_alert_message WHERE country = ? AND route = ? AND status = 'QUEUED'
		AND severity_rank = ? AND rule = ? AND kind = ? ORDER BY id FOR UPDATE`, m.Country, route, rankOf(m.Severity), m.Rule, m.Kind).Scan(&waiting).Error
	if err != nil {
		return err
	}
	newer := map[string]bool{}
	for _, i := range m.Items {
		newer[i.Fingerprint] = true
	}
	for _, w := range waiting {
		var old message
		if json.Unmarshal([]byte(w.Raw), &old) != nil {
			continue // the sender settles what cannot be read
		}
		old.Items = slices.DeleteFunc(old.Items, func(i item) bool { return newer[i.Fingerprint] })
		if len(old.Items) == 0 {
			if err := tx.Exec(`DELETE FROM mq_alert_message WHERE id = ?`, w.ID).Error; err != nil {
				return err
			}
			continue
		}
		raw, err := json.Marshal(old)
		if err != nil {
			return err
		}
		if err := tx.Exec(`UPDATE mq_alert_message SET message_json = ? WHERE id = ?`, string(raw), w.ID).Error; err != nil {
			return err
		}
	}
	return nil
}

// outcome is everything that a sweep writes, in one transaction.
type outcome struct {
	figures    []figure
	agreements map[string]agreement
	alerts     []alert
	messages   []routed
}

// routed is a message and where it goes.
type routed struct {
	route   string
	message message
}

// commit writes a sweep's outcome if the sweep still has its lease: the row stays locked
// until the commit, so no other sweep decides on the same alerts meanwhile.
func (s store) commit(ctx context.Context, lease string, fence int64, o outcome) error {
	return db.InTx(ctx, s.sweep, func(tx *gorm.DB) error {
		var one int
		err := tx.Raw(`SELECT 1 FROM mq_lease WHERE name = ? AND fence = ? FOR UPDATE`, lease, fence).Row().Scan(&one)
		if errors.Is(err, sql.ErrNoRows) {
			return errLeaseLost
		}
		if err != nil {
			return fmt.Errorf("look at the sweep's lease: %w", err)
		}
		if err := writeFigures(tx, s.country, o.figures); err != nil {
			return err
		}
		for metric, a := range o.agreements {
			if err := writeAgreement(tx, s.country, metric, a); err != nil {
				return err
			}
		}
		return writeAlerts(tx, s.country, o.alerts, o.messages)
	})
}

func writeAlerts(tx *gorm.DB, country string, alerts []alert, messages []routed) error {
	for _, a := range alerts {
		if err := writeAlert(tx, country, a); err != nil {
			return err
		}
	}
	for _, m := range messages {
		if err := enqueue(tx, m.route, m.message); err != nil {
			return err
		}
	}
	return nil
}

// writeFigures replaces the last sweep's.
func writeFigures(tx *gorm.DB, country string, figures []figure) error {
	var at time.Time
	if err := tx.Raw("SELECT NOW(3)").Row().Scan(&at); err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	for _, f := range figures {
		err := tx.Exec(`INSERT INTO mq_ops_figure
			(name, country, subject, value, source, note, event_id, trace_id, request_id, unknown_since, measured_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, IF(? IS NULL, ?, NULL), ?)
			ON DUPLICATE KEY UPDATE value = VALUES(value), source = VALUES(source), note = VALUES(note),
			event_id = VALUES(event_id), trace_id = VALUES(trace_id), request_id = VALUES(request_id),
			unknown_since = IF(VALUES(value) IS NULL, COALESCE(unknown_since, VALUES(unknown_since)), NULL),
			measured_at = VALUES(measured_at)`,
			f.Name, country, cutText(f.Subject, 128), f.Value, f.Source, cutText(f.Note, 512), f.EventID, f.TraceID,
			cutText(f.RequestID, 64), f.Value, at, at).Error
		if err != nil {
			return fmt.Errorf("write figure %s: %w", f.Name, err)
		}
	}
	err := tx.Exec(`DELETE FROM mq_ops_figure WHERE country = ? AND measured_at < ?`, country, at).Error
	if err != nil {
		return fmt.Errorf("remove figures of earlier sweeps: %w", err)
	}
	return nil
}
