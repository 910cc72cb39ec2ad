package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/event"
)

// The statuses of an outbox_event row. There are no others.
const (
	StatusPending   = "PENDING"
	StatusPublished = "PUBLISHED"
	StatusFailed    = "FAILED"
)

// Filter selects rows of outbox_event; its conditions all hold. At least one beside
// Status is required, or All.
type Filter struct {
	Status        string     `json:"status"`
	ID            string     `json:"id,omitempty"`
	EventID       string     `json:"event_id,omitempty"`
	Type          event.Type `json:"type,omitempty"`
	AggregateType string     `json:"aggregate_type,omitempty"`
	AggregateID   string     `json:"aggregate_id,omitempty"`
	// From and To bound created_at, To excluded.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// All says that no other condition is meant.
	All bool `json:"all,omitempty"`
}

// Selects reports whether anything beside the status is named, or all rows are meant.
func (f Filter) Selects() bool {
	return f.All || f.ID != "" || f.EventID != "" || f.Type != "" || f.AggregateType != "" || f.AggregateID != "" ||
		!f.From.IsZero() || !f.To.IsZero()
}

func (f Filter) check(allowed ...string) error {
	if !f.Selects() {
		return fmt.Errorf("%w: name an id, event id, type, aggregate or time, or say that all rows are meant", ErrNoFilter)
	}
	for _, s := range allowed {
		if f.Status == s {
			return nil
		}
	}
	return fmt.Errorf("%w: status %q cannot be selected here, allowed are %v", ErrNoFilter, f.Status, allowed)
}

// Row is a row of outbox_event without its payload.
type Row struct {
	ID            string     `json:"id"`
	EventID       string     `json:"event_id"`
	Type          event.Type `json:"type"`
	AggregateType string     `json:"aggregate_type"`
	AggregateID   string     `json:"aggregate_id"`
	Status        string     `json:"status"`
	RetryCount    int        `json:"retry_count"`
	CreatedAt     time.Time  `json:"created_at"`
	LastError     string     `json:"last_error,omitempty"`

	place cursor
}

// List reads rows in the order of created_at, at most limit. It is how FAILED events
// are looked at, and what a dry run shows.
func (s *Store) List(ctx context.Context, f Filter, limit int) ([]Row, error) {
	f.All = true // looking needs no condition
	if err := f.check(StatusPending, StatusPublished, StatusFailed); err != nil {
		return nil, err
	}
	return s.page(ctx, f, cursor{}, limit)
}

// Count counts the rows that a filter selects, up to a cap.
func (s *Store) Count(ctx context.Context, f Filter) (Count, error) {
	f.All = true
	if err := f.check(StatusPending, StatusPublished, StatusFailed); err != nil {
		return Count{}, err
	}
	return s.countFiltered(ctx, f, statusCap)
}

// Act says who does something to rows, why, and at which pace.
type Act struct {
	Who    string
	Reason string
	// Rate is the most rows a second; 0 sets no limit.
	Rate int
	// Progress, when not nil, is told the rows of each batch.
	Progress func(rows int64)
}

func (a Act) check() error {
	if a.Who == "" || a.Reason == "" {
		return ErrNoReason
	}
	return nil
}

// adminBatch bounds one transaction of a requeue or discard.
const adminBatch = 200

// Requeue makes PUBLISHED or FAILED rows PENDING again, so that the relay sends them
// under their old event_id. Each row is requeued at most once per call, also while
// another call runs. It may be interrupted and given again: mq_audit then has one entry
// for each call, with the rows that it really changed.
func (s *Store) Requeue(ctx context.Context, f Filter, act Act) (int64, error) {
	if err := errors.Join(f.check(StatusFailed, StatusPublished), act.check()); err != nil {
		return 0, fmt.Errorf("requeue: %w", err)
	}
	return s.act(ctx, "requeue", f, act, s.requeuePage)
}

// Discard moves FAILED rows to mq_outbox_archive. Their event_ids become free again: an
// event that is appended under one of them later is a new one.
func (s *Store) Discard(ctx context.Context, f Filter, act Act) (int64, error) {
	if err := errors.Join(f.check(StatusFailed), act.check()); err != nil {
		return 0, fmt.Errorf("discard: %w", err)
	}
	return s.act(ctx, "discard", f, act, s.discardPage)
}

// pageFunc changes one page of rows in a transaction that also raises the audit entry.
type pageFunc func(ctx context.Context, c command, ids []string) (int64, error)

// command is a running requeue or discard.
type command struct {
	audit  int64
	status string
	act    Act
	// began is when it started, by the database's clock, as text.
	began string
}

func (s *Store) act(ctx context.Context, action string, f Filter, act Act, change pageFunc) (int64, error) {
	audit, began, err := s.beginAudit(ctx, action, f, act)
	if err != nil {
		return 0, err
	}
	c := command{audit: audit, status: f.Status, act: act, began: began}
	limit := adminBatch
	if act.Rate > 0 {
		limit = max(1, min(adminBatch, act.Rate/5))
	}
	var total int64
	var from cursor
	for {
		started := time.Now()
		page, err := s.page(ctx, f, from, limit)
		if err != nil || len(page) == 0 {
			return total, err
		}
		n, err := retryPage(ctx, func() (int64, error) { return change(ctx, c, idsOf(page)) })
		total += n
		if err != nil {
			return total, fmt.Errorf("%s: after %d rows: %w", action, total, err)
		}
		if act.Progress != nil {
			act.Progress(n)
		}
		if len(page) < limit {
			return total, nil
		}
		from = page[len(page)-1].place
		if !backoff.Sleep(ctx, pauseFor(len(page), act.Rate, time.Since(started))) {
			return total, fmt.Errorf("%s: interrupted after %d rows: %w", action, total, ctx.Err())
		}
	}
}

// pauseFor keeps n rows that took some time within the rate.
func pauseFor(n, rate int, took time.Duration) time.Duration {
	if rate <= 0 {
		return 0
	}
	return max(0, time.Duration(n)*time.Second/time.Duration(rate)-took)
}

func idsOf(page []Row) []string {
	ids := make([]string, len(page))
	for i, r := range page {
		ids[i] = r.ID
	}
	return ids
}
