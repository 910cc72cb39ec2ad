package flags

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Row is a flag of a country as the database has it.
type Row struct {
	Flag        Name      `json:"flag"`
	Country     string    `json:"country"`
	Enabled     bool      `json:"enabled"`
	BasisPoints int       `json:"basisPoints"`
	Salt        string    `json:"-"`
	Version     int64     `json:"version"`
	EffectiveAt time.Time `json:"effectiveAt"`
	UpdatedBy   string    `json:"updatedBy"`
	Reason      string    `json:"reason"`
	UpdatedAt   time.Time `json:"updatedAt"`
}

// reading is what one look at the database brought.
type reading struct {
	clock    clock
	rows     map[Name]Row
	previous map[Name][]superseded
	bad      map[Name]string
}

const columns = "flag, country, enabled, rollout_bp, salt, version, effective_at, updated_by, reason, updated_at"

// load reads the database's time first: a change that is committed after that
// reading has a later timestamp than ours.
func (f *Flags) load(ctx context.Context) (reading, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	r := reading{rows: map[Name]Row{}, previous: map[Name][]superseded{}, bad: map[Name]string{}}
	r.clock.asked = time.Now()
	if err := f.db.QueryRowContext(ctx, "SELECT NOW(3)").Scan(&r.clock.database); err != nil {
		return r, fmt.Errorf("ask for the time: %w", err)
	}
	r.clock.answered = time.Now()
	rows, err := queryRows(ctx, f.db, "SELECT "+columns+" FROM mq_feature_flag WHERE country = ?", f.country)
	if err != nil {
		return r, err
	}
	for _, row := range rows {
		if known(row.Flag) != nil {
			continue // of another version of this program
		}
		if why := row.problem(); why != "" {
			r.bad[row.Flag] = why
			continue
		}
		r.rows[row.Flag] = row.Row
		if row.EffectiveAt.After(r.clock.database) {
			if r.previous[row.Flag], err = f.superseded(ctx, row.Row); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// superseded finds the rules that were in force before a change that is not binding
// yet: back to the youngest one whose own change is.
func (f *Flags) superseded(ctx context.Context, row Row) ([]superseded, error) {
	const enough = 50 // more changes than that do not fit into a hand-over
	history, err := queryRows(ctx, f.db, "SELECT "+columns+` FROM mq_feature_flag_history
		WHERE flag = ? AND country = ? AND version < ? ORDER BY version DESC LIMIT ?`,
		string(row.Flag), row.Country, row.Version, enough)
	if err != nil {
		return nil, err
	}
	var rules []superseded
	until := row.EffectiveAt
	settled := row.EffectiveAt.Add(-HandOver)
	for _, h := range history {
		rules = append(rules, superseded{rule{h.Enabled, h.BasisPoints, h.Salt}, until})
		until = h.EffectiveAt
		if h.EffectiveAt.Before(settled) {
			return rules, nil
		}
	}
	if env := f.cfg.env(row.Flag); len(history) < enough && env != nil && *env {
		// Before there was a row the environment decided.
		rules = append(rules, superseded{rule{enabled: true, basisPoints: FullRollout}, until})
	}
	return rules, nil
}

// rawRow keeps enabled as the number that it is, to judge it.
type rawRow struct {
	Row
	enabled int
}

func (r rawRow) problem() string {
	switch {
	case r.enabled != 0 && r.enabled != 1:
		return fmt.Sprintf("enabled is %d, neither 0 nor 1", r.enabled)
	case r.BasisPoints < 0 || r.BasisPoints > FullRollout:
		return fmt.Sprintf("rollout_bp is %d, not from 0 to %d", r.BasisPoints, FullRollout)
	}
	return ""
}

// querier is *sql.DB and *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func queryRows(ctx context.Context, q querier, query string, args ...any) (out []rawRow, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read flag rows: %w", err)
	}
	defer func() {
		if closeErr := rows.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("read flag rows: %w", closeErr)
		}
	}()
	for rows.Next() {
		var r rawRow
		if err := rows.Scan(&r.Flag, &r.Country, &r.enabled, &r.BasisPoints, &r.Salt, &r.Version,
			&r.EffectiveAt, &r.UpdatedBy, &r.Reason, &r.UpdatedAt); err != nil {
			return nil, fmt.Errorf("read flag rows: %w", err)
		}
		r.Enabled = r.enabled == 1
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read flag rows: %w", err)
	}
	return out, nil
}

// List returns the rows of all flags and countries.
func List(ctx context.Context, db *sql.DB) ([]Row, error) {
	raw, err := queryRows(ctx, db, "SELECT "+columns+" FROM mq_feature_flag ORDER BY flag, country")
	return plain(raw), err
}

// History returns the latest changes of a flag, the youngest first.
func History(ctx context.Context, db *sql.DB, flag Name, country string, limit int) ([]Row, error) {
	if err := known(flag); err != nil {
		return nil, err
	}
	raw, err := queryRows(ctx, db, "SELECT "+columns+` FROM mq_feature_flag_history
		WHERE flag = ? AND country = ? ORDER BY version DESC LIMIT ?`, string(flag), country, limit)
	return plain(raw), err
}

func plain(raw []rawRow) []Row {
	rows := make([]Row, len(raw))
	for i, r := range raw {
		rows[i] = r.Row
	}
	return rows
}
