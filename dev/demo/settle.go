package demo

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/dev/stack"
)

const (
	settleTime = 90 * time.Second
	// quietTime is how long nothing may happen any more before the books are closed:
	// a repeat that is one too many comes late.
	quietTime = 2500 * time.Millisecond
)

// figures are what the progress line shows.
type figures struct {
	pending, published, failed int // outbox_event
	delayed                    int
	open, sent, unsent         int // push_messages
	requests                   int // to the fake
	coupons, expired           int // coupons that have yet to expire, and that have
	campaigns                  int // that are not synced
	unresolved                 int // alerts without an all-clear
}

func (r *run) figures(ctx context.Context) (figures, error) {
	var f figures
	err := countBy(ctx, r.stack.DB, "SELECT status, COUNT(*) FROM outbox_event GROUP BY status", func(status string, n int) {
		switch status {
		case "PENDING":
			f.pending = n
		case "PUBLISHED":
			f.published = n
		default:
			f.failed += n
		}
	})
	if err != nil {
		return f, err
	}
	err = countBy(ctx, r.stack.DB, "SELECT status, COUNT(*) FROM push_messages GROUP BY status", func(status string, n int) {
		switch status {
		case "SENT":
			f.sent = n
		case "FAILED", "EXPIRED":
			f.unsent += n
		default:
			f.open += n
		}
	})
	if err != nil {
		return f, err
	}
	f.requests = len(r.stack.FCM.Requests())
	if err := r.stack.DB.QueryRowContext(ctx, "SELECT COUNT(*) FROM mq_delayed_event").Scan(&f.delayed); err != nil {
		return f, fmt.Errorf("count delayed events: %w", err)
	}
	if f.coupons, f.expired, err = r.couponsOpen(ctx); err != nil {
		return f, err
	}
	if f.campaigns, err = r.campaignsOpen(ctx); err != nil {
		return f, err
	}
	f.unresolved = unresolved(told(r.feishu.Shown()))
	return f, nil
}

func countBy(ctx context.Context, db *sql.DB, query string, add func(key string, n int)) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var key string
		var n int
		if err := rows.Scan(&key, &n); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
		add(key, n)
	}
	return rows.Err()
}

// progress is the line that is kept up to date.
func (r *run) progress(ctx context.Context) string {
	f, err := r.figures(ctx)
	if err != nil {
		return ""
	}
	line := fmt.Sprintf("begun %d/%d · events: %d waiting, %d due later, %d published · pushes: %d open, %d sent, %d failed · coupons expired %d · campaigns to sync %d",
		r.feed.begun.Load(), r.o.Pushes, f.pending, f.delayed, f.published, f.open, f.sent, f.unsent, f.expired, f.campaigns)
	if now := r.faults.current(); now != "" {
		line += " · now: " + now
	}
	return line
}

// settle waits until nothing is left to do and nothing more happens.
func (r *run) settle(ctx context.Context) error {
	r.say.printf("- all is written; waiting until the last push and coupon have ended and nothing more happens")
	bounded, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	var last figures
	since := time.Now()
	for {
		f, err := r.figures(bounded)
		if err == nil && (f != last || !r.settled(bounded, f)) {
			last, since = f, time.Now()
		}
		if err == nil && time.Since(since) >= quietTime {
			return nil
		}
		if pause(bounded, 100*time.Millisecond) != nil {
			return fmt.Errorf("it has not settled within %s: %d events wait, %d are due later; open are %d pushes, %d coupons, %d campaigns, %d alerts",
				settleTime, last.pending, last.delayed, last.open, last.coupons, last.campaigns, last.unresolved)
		}
	}
}

func (r *run) settled(ctx context.Context, f figures) bool {
	if f.pending+f.delayed+f.open+f.coupons+f.campaigns+f.unresolved > 0 {
		return false
	}
	for _, s := range r.stack.Services() {
		if !consumes(s) {
			continue
		}
		for _, name := range []string{"seahub_bus_backlog", "seahub_consumer_inflight", "seahub_bus_parked"} {
			if v, err := s.Metric(ctx, name, nil); err != nil || v != 0 {
				return false
			}
		}
	}
	return true
}

func consumes(s *stack.Service) bool { return s.Kind != "relay" }
