package flags

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
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
	// byHand has the rules that history tells of rows that say something else by now.
	byHand map[Name]rule
}

const columns = "flag, country, enabled, rollout_bp, salt, version, effective_at, updated_by, reason, updated_at"

// load reads the database's time first: a change that is committed after that
// reading has a later timestamp than ours.
func (f *Flags) load(ctx context.Context) (reading, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	r := reading{rows: map[Name]Row{}, previous: map[Name][]superseded{}, bad: map[Name]string{}, byHand: map[Name]rule{}}
	r.clock.asked = time.Now()
	if err := f.db.QueryRowContext(ctx, "SELECT NOW(3)").Scan(&r.clock.database); err != nil {
		return r, fmt.Errorf("ask for the time: %w", err)
	}
	r.clock.answered = time.Now()
	rows, err := queryRows(ctx, f.db, "SELECT "+columns+" FROM mq_feature_flag WHERE country = ?", f.country)
	if err != nil {
		return r, err
	}
	recorded, err := queryRows(ctx, f.db, "SELECT "+qualified("h")+` FROM mq_feature_flag_history h
		JOIN mq_feature_flag f ON f.flag = h.flag AND f.country = h.country AND f.version = h.version
		WHERE f.country = ?`, f.country)
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
		r.take(row.Row, plain(recorded))
		if row.EffectiveAt.After(r.clock.database) {
			if r.previous[row.Flag], err = f.superseded(ctx, row.Row); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// qualified is columns with a table's name.
func qualified(table string) string {
	return table + "." + strings.ReplaceAll(columns, ", ", ", "+table+".")
}

// take accepts a row, and notes if history has it otherwise. recorded are the lines of
// history of the versions that the rows are at.
func (r *reading) take(row Row, recorded []Row) {
	r.rows[row.Flag] = row
	said := rule{}
	for _, h := range recorded {
		if h.Flag == row.Flag && h.Version == row.Version {
			said = h.rule()
		}
	}
	if said != row.rule() {
		r.byHand[row.Flag] = said
	}
}

// versions are the rows' versions; a row that cannot be used counts as not read.
func (r reading) versions(before map[Name]int64) map[Name]int64 {
	out := make(map[Name]int64, len(r.rows))
	for name, row := range r.rows {
		out[name] = row.Version
	}
	for name := range r.bad {
		out[name] = before[name]
	}
	return out
}

func (r Row) rule() rule { return rule{r.Enabled, r.BasisPoints, r.Salt} }

// historyEnough is more changes than fit into a hand-over.
const historyEnough = 50

// superseded finds the rules that were in force before a change that is not binding
// yet.
func (f *Flags) superseded(ctx context.Context, row Row) ([]superseded, error) {
	history, err := queryRows(ctx, f.db, "SELECT "+columns+` FROM mq_feature_flag_history
		WHERE flag = ? AND country = ? AND version < ? ORDER BY version DESC LIMIT ?`,
		string(row.Flag), row.Country, row.Version, historyEnough)
	if err != nil {
		return nil, err
	}
	env := f.cfg.env(row.Flag)
	return chain(row, plain(history), env != nil && *env), nil
}

// chain goes back through the history, youngest first, to the first change that was
// binding when row was written: what was in force before that, no process goes by.
// envOn says what was in force before the first row.
func chain(row Row, history []Row, envOn bool) []superseded {
	var rules []superseded
	until := row.EffectiveAt
	written := row.EffectiveAt.Add(-HandOver)
	for _, h := range history {
		rules = append(rules, superseded{h.rule(), until})
		until = h.EffectiveAt
		if until.Before(written) {
			return rules
		}
	}
	if envOn && len(history) < historyEnough {
		rules = append(rules, superseded{rule{enabled: true, basisPoints: FullRollout}, until})
	}
	return rules
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
