package task

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Report is what a process that runs no task tells of itself, or of a consumer group
// that it looked at, in mq_task_health.
type Report struct {
	// LastPass and LastConfirm are this process's times; zero if never.
	LastPass, LastConfirm time.Time
	// Group is whose Backlog and OldestAge are; negative ones are unknown.
	Group     string
	Backlog   int64
	OldestAge time.Duration
	// Note says why less is done than could be.
	Note string
}

// Reporter writes one row of mq_task_health. One goroutine uses it.
type Reporter struct{ store *healthStore }

// NewReporter names the row. instance tells this process from all others.
func NewReporter(pool *sql.DB, task, country, instance, role string) *Reporter {
	return &Reporter{&healthStore{db: pool, task: task, country: country, instance: cut(instance, 128), role: role}}
}

// Write replaces what the row said before, in bounded time.
func (r *Reporter) Write(ctx context.Context, rep Report) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	f := noFigures()
	f.lastPass, f.lastConfirm, f.note = rep.LastPass, rep.LastConfirm, rep.Note
	if rep.Group != "" {
		f.group, f.backlog, f.oldestAge = rep.Group, rep.Backlog, rep.OldestAge
	}
	return r.store.write(ctx, f)
}

// Forget removes rows of processes that are long gone; once per start is enough.
func (r *Reporter) Forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if err := r.store.forget(ctx, keepRows); err != nil {
		return fmt.Errorf("forget old reports: %w", err)
	}
	return nil
}

// Reported is a row that a Reporter wrote, with ages by the database's clock; one that
// is negative is unknown.
type Reported struct {
	Instance    string        `json:"instance"`
	Seen        time.Duration `json:"seen_ns"`
	LastPass    time.Duration `json:"last_pass_ns"`
	LastConfirm time.Duration `json:"last_confirm_ns"`
	Note        string        `json:"note"`
}

// Reports reads what processes told of themselves under a task's name and in a role,
// those that gave a sign of life lately.
func Reports(ctx context.Context, db *sql.DB, task, role string, lately time.Duration) (out []Reported, err error) {
	rows, err := db.QueryContext(ctx, `SELECT instance, TIMESTAMPDIFF(MICROSECOND, updated_at, NOW(3)),
			COALESCE(TIMESTAMPDIFF(MICROSECOND, last_pass_at, NOW(3)), -1),
			COALESCE(TIMESTAMPDIFF(MICROSECOND, last_confirm_at, NOW(3)), -1), COALESCE(note, '')
		FROM mq_task_health WHERE task = ? AND role = ? AND updated_at > NOW(3) - INTERVAL ? MICROSECOND
		ORDER BY instance`, task, role, lately.Microseconds())
	if err != nil {
		return nil, fmt.Errorf("read reports of %s: %w", task, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var r Reported
		var seen, pass, confirm int64
		if err := rows.Scan(&r.Instance, &seen, &pass, &confirm, &r.Note); err != nil {
			return nil, fmt.Errorf("read reports of %s: %w", task, err)
		}
		r.Seen, r.LastPass, r.LastConfirm = micros(seen), micros(pass), micros(confirm)
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read reports of %s: %w", task, err)
	}
	return out, nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
