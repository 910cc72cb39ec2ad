package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
	"github.com/seahub/seahub-mq/test/bench/internal/stat"
)

// others are the coupons that are not due and that business updates.
const others = 50_000

// chunk is how many rows one INSERT makes.
const chunk = 50_000

// bed is a running system and what is measured on it.
type bed struct {
	*stack.Stack
	o        options
	progress *sheet.Progress
}

// errWrong: the measured thing did something else than what was to be measured.
var errWrong = errors.New("run is not valid")

func newBed(s *stack.Stack, o options, progress *sheet.Progress) *bed {
	// Two hours and a half: a fallback would be another measurement.
	s.Env["SEAHUB_COUPON_EXPIRE_SCAN_DELAY_MS"] = "9000"
	s.Env["SEAHUB_COUPON_OVERDUE_SCANS"] = "1000"
	return &bed{Stack: s, o: o, progress: progress}
}

func (b *bed) exec(ctx context.Context, statement string, args ...any) error {
	if _, err := b.DB.ExecContext(ctx, statement, args...); err != nil {
		return fmt.Errorf("prepare the tables: %w", err)
	}
	return nil
}

// fill makes the due coupons, half of them at one instant, and the others.
func (b *bed) fill(ctx context.Context) error {
	b.progress.Step("writing %d due coupons", b.o.coupons)
	for _, table := range []string{"user_coupons", "outbox_event"} {
		if err := b.exec(ctx, "TRUNCATE TABLE "+table); err != nil {
			return err
		}
	}
	const insert = `INSERT INTO user_coupons (id, user_id, coupon_id, status, expires_at, created_at)
		SELECT CONCAT(?, LPAD(seq, 9, '0')), CONCAT('u', seq MOD 100000), 'c1', ELT(1 + seq MOD 3, 'CLAIMABLE', 'ISSUED', 'ACTIVE'), %s, NOW(3) - INTERVAL 30 DAY FROM seq_%d_to_%d`
	var instant time.Time
	if err := b.DB.QueryRowContext(ctx, "SELECT NOW() - INTERVAL 1 MINUTE").Scan(&instant); err != nil {
		return fmt.Errorf("read the time: %w", err)
	}
	due := fmt.Sprintf("IF(seq MOD 2 = 0, '%s', NOW(3) - INTERVAL seq MOD 60 SECOND)", instant.Format(time.DateTime))
	for from := 1; from <= b.o.coupons; from += chunk {
		if err := b.exec(ctx, fmt.Sprintf(insert, due, from, min(from+chunk-1, b.o.coupons)), "uc"); err != nil {
			return err
		}
	}
	return b.exec(ctx, fmt.Sprintf(insert, "NOW(3) + INTERVAL 30 DAY", 1, others), "live")
}

// business updates coupons that are not due until it is stopped. An update that begins
// late, since the one before took too long, is made up for: who falls behind for good has
// a lower rate than was asked for.
func (b *bed) business(ctx context.Context) (stop func() (stat.Span, float64, error)) {
	ctx, cancel := context.WithCancel(ctx)
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		times  []time.Duration
		failed error
	)
	began := time.Now()
	every := time.Duration(b.o.writers) * time.Second / time.Duration(b.o.updates)
	for range b.o.writers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if !backoff.Sleep(ctx, time.Until(began.Add(time.Duration(n)*every))) {
					return
				}
				at := time.Now()
				_, err := b.DB.ExecContext(context.WithoutCancel(ctx), `UPDATE user_coupons SET expires_at = expires_at + INTERVAL 1 SECOND
					WHERE id = ? AND status IN ('CLAIMABLE', 'ISSUED', 'ACTIVE')`, fmt.Sprintf("live%09d", 1+rand.IntN(others)))
				took := time.Since(at)
				mu.Lock()
				times = append(times, took)
				if err != nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	return func() (stat.Span, float64, error) {
		cancel()
		all.Wait()
		rate := float64(len(times)) / time.Since(began).Seconds()
		return stat.SpanOf(times), rate, failed
	}
}

func (b *bed) idle(ctx context.Context) (result, error) {
	if err := b.fill(ctx); err != nil {
		return result{}, err
	}
	b.progress.Step("business alone")
	stop := b.business(ctx)
	select {
	case <-time.After(time.Duration(b.o.idleSeconds) * time.Second):
	case <-ctx.Done():
	}
	span, rate, err := stop()
	return result{name: "business alone", business: span, rate: rate}, err
}

func (b *bed) flagOff(ctx context.Context) (result, error) {
	return b.measure(ctx, "flag off", "scan", "poll")
}

// flagOn has the filled tables of its own, the flag as a change that has long been
// binding, and the whole way over the broker.
func (b *bed) flagOn(ctx context.Context) (result, error) {
	if err := b.fill(ctx); err != nil {
		return result{}, err
	}
	for _, table := range []string{"mq_feature_flag", "mq_feature_flag_history"} {
		if err := b.exec(ctx, "INSERT INTO "+table+` (flag, country, enabled, rollout_bp, salt, version, effective_at, updated_by, reason, updated_at)
			VALUES ('coupon-expire', ?, 1, 10000, 'salt', 1, NOW(3) - INTERVAL 1 HOUR, 'bench', 'bench', NOW(3) - INTERVAL 1 HOUR)`, stack.Country); err != nil {
			return result{}, err
		}
	}
	if _, err := b.StartService(ctx, "relay", "relay-1", nil); err != nil {
		return result{}, err
	}
	return b.measure(ctx, "flag on", "event", "all")
}

// measure starts the service and waits until every coupon is expired by what it is to
// be expired by.
func (b *bed) measure(ctx context.Context, name, by, role string) (result, error) {
	b.progress.Step("%s", name)
	stop := b.business(ctx)
	began := time.Now()
	svc, err := b.StartService(ctx, "coupon-consumer", "coupon-"+by, map[string]string{"SEAHUB_TASK_ROLE": role})
	if err != nil {
		return result{}, err
	}
	err = b.await(ctx, svc, by)
	r := result{name: name, took: time.Since(began)}
	var businessErr error
	r.business, r.rate, businessErr = stop()
	if err := errors.Join(err, businessErr, svc.Stop(ctx)); err != nil {
		return r, err
	}
	var left int
	if err := b.DB.QueryRowContext(ctx, "SELECT COUNT(*) FROM user_coupons WHERE status <> 'EXPIRED' AND id LIKE 'uc%'").Scan(&left); err != nil {
		return r, fmt.Errorf("count what is left: %w", err)
	}
	if left > 0 {
		return r, fmt.Errorf("%w: %d coupons are still open", errWrong, left)
	}
	r.longest, err = longest(svc.Log)
	return r, err
}

func (b *bed) await(ctx context.Context, svc *stack.Service, by string) error {
	told := time.Now()
	for {
		n, err := svc.Metric(ctx, "seahub_coupon_expired_total", map[string]string{"by": by})
		if err == nil && int(n) >= b.o.coupons {
			return nil
		}
		if n, err := svc.Metric(ctx, "seahub_coupon_expired_total", map[string]string{"by": "fallback"}); err == nil && n > 0 {
			return fmt.Errorf("%w: the fallback stepped in", errWrong)
		}
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			b.progress.Step("  %.0f expired", n)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-svc.Done():
			return fmt.Errorf("%w: the service ended:\n%s", errWrong, svc.LogTail())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// longest reads the scan's longest transaction off the service's own lines.
func longest(log string) (time.Duration, error) {
	f, err := os.Open(log)
	if err != nil {
		return 0, fmt.Errorf("read the log: %w", err)
	}
	defer func() { _ = f.Close() }()
	var most float64
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Milliseconds float64 `json:"longest_transaction"`
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil {
			most = max(most, line.Milliseconds)
		}
	}
	if most == 0 {
		return 0, fmt.Errorf("%w: the log names no scan", errWrong)
	}
	return time.Duration(most * float64(time.Millisecond)), lines.Err()
}
