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
