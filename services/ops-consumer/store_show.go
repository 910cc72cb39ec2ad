package main

import (
	"context"
	"database/sql"
	"fmt"
)

// figureLines reads the figures of the last sweep.
func (r reader) figureLines(ctx context.Context, country string) ([]figureLine, error) {
	out := []figureLine{}
	err := r.each(ctx, `SELECT name, subject, value, source, note, event_id, TIMESTAMPDIFF(MICROSECOND, measured_at, NOW(3)) / 1000000
		FROM mq_ops_figure WHERE country = ? ORDER BY name, subject`, func(row *sql.Rows) error {
		var l figureLine
		err := row.Scan(&l.Name, &l.Subject, &l.Value, &l.Source, &l.Note, &l.EventID, &l.Age)
		out = append(out, l)
		return err
	}, country)
	if err != nil {
		return nil, fmt.Errorf("read the figures: %w", err)
	}
	return out, nil
}

// alertList reads the open alerts, the most severe first, and the latest resolved ones
// that ever fired.
func (r reader) alertList(ctx context.Context, country string) (open, recent []alert, err error) {
	for _, part := range []struct {
		into  *[]alert
		where string
	}{
		{&open, `state IN ('PENDING', 'FIRING') ORDER BY FIELD(severity, 'critical', 'warning', 'info'), since LIMIT 1000`},
		{&recent, `state = 'RESOLVED' AND episode > 0 ORDER BY updated_at DESC LIMIT 20`},
	} {
		err := r.each(ctx, `SELECT `+alertColumns+` FROM mq_alert WHERE country = ? AND `+part.where, func(row *sql.Rows) error {
			a, err := scanAlert(row)
			*part.into = append(*part.into, a)
			return err
		}, country)
		if err != nil {
			return nil, nil, fmt.Errorf("read the alerts: %w", err)
		}
	}
	return open, recent, nil
}

// messageCounts counts the messages by "route status".
func (r reader) messageCounts(ctx context.Context, country string) (map[string]int, error) {
	out := map[string]int{}
	err := r.each(ctx, `SELECT route, status, COUNT(*) FROM mq_alert_message WHERE country = ? GROUP BY route, status`, func(row *sql.Rows) error {
		var route, status string
		var n int
		err := row.Scan(&route, &status, &n)
		out[route+" "+status] = n
		return err
	}, country)
	if err != nil {
		return nil, fmt.Errorf("count the messages: %w", err)
	}
	return out, nil
}
