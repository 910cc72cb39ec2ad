package books

import (
	"context"
	"database/sql"
	"fmt"
)

// BookSQL makes the database itself note who expires a coupon when; Read reads that.
func BookSQL() []string {
	return []string{
		`CREATE TABLE demo_expirations (n BIGINT AUTO_INCREMENT PRIMARY KEY, coupon_id VARCHAR(64) NOT NULL, old_status VARCHAR(16) NOT NULL,
			due_at DATETIME(3) NOT NULL, at DATETIME(3) NOT NULL)`,
		`CREATE TRIGGER demo_book AFTER UPDATE ON user_coupons FOR EACH ROW BEGIN
			IF NEW.status = 'EXPIRED' THEN
				INSERT INTO demo_expirations (coupon_id, old_status, due_at, at) VALUES (NEW.id, OLD.status, OLD.expires_at, NOW(3)); END IF; END`,
	}
}

// Read takes the tables in one snapshot.
func Read(ctx context.Context, db *sql.DB) (Tables, error) {
	t, err := read(ctx, db)
	if err != nil {
		return Tables{}, fmt.Errorf("read the books: %w", err)
	}
	return t, nil
}

func read(ctx context.Context, db *sql.DB) (t Tables, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return t, err
	}
	defer func() { _ = tx.Rollback() }()
	if t.Pushes, err = collect(ctx, tx, "SELECT id, user_id, status FROM push_messages",
		func(p *PushRow) []any { return []any{&p.ID, &p.UserID, &p.Status} }); err != nil {
		return t, err
	}
	if t.Devices, err = collect(ctx, tx, "SELECT id, user_id, push_token, active FROM user_devices",
		func(d *DeviceRow) []any { return []any{&d.ID, &d.UserID, &d.Token, &d.Active} }); err != nil {
		return t, err
	}
	if t.Events, err = collect(ctx, tx, "SELECT event_id, aggregate_id, status FROM outbox_event",
		func(e *EventRow) []any { return []any{&e.EventID, &e.AggregateID, &e.Status} }); err != nil {
		return t, err
	}
	id := func(id *string) []any { return []any{id} }
	if t.Delayed, err = collect(ctx, tx, "SELECT event_id FROM mq_delayed_event", id); err != nil {
		return t, err
	}
	if t.DeadLetters, err = collect(ctx, tx, "SELECT event_id FROM mq_dead_letter", id); err != nil {
		return t, err
	}
	if t.Coupons, err = collect(ctx, tx, "SELECT id, status FROM user_coupons",
		func(c *CouponRow) []any { return []any{&c.ID, &c.Status} }); err != nil {
		return t, err
	}
	if t.Products, err = collect(ctx, tx, `SELECT campaign_id, product_id, title, lowest_price, highest_price, currency,
		total_commission_bp, inventory, sales, available, active, link_status FROM tiktok_partner_campaign_products`,
		func(p *ProductRow) []any {
			return []any{&p.CampaignID, &p.ID, &p.Name, &p.Lowest, &p.Highest, &p.Currency, &p.Commission, &p.Inventory, &p.Sales,
				&p.Available, &p.Active, &p.Link}
		}); err != nil {
		return t, err
	}
	if t.Expirations, err = collect(ctx, tx, "SELECT coupon_id, old_status, due_at, at FROM demo_expirations",
		func(e *Expiration) []any { return []any{&e.CouponID, &e.From, &e.Due, &e.At} }); err != nil {
		return t, err
	}
	t.Fallbacks, err = collect(ctx, tx, "SELECT task, instance, fallback_runs, fallback FROM mq_task_health",
		func(f *Fallback) []any { return []any{&f.Task, &f.Instance, &f.Runs, &f.Now} })
	return t, err
}

func collect[T any](ctx context.Context, tx *sql.Tx, query string, fields func(*T) []any) ([]T, error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	defer func() { _ = rows.Close() }()
	var all []T
	for rows.Next() {
		var row T
		if err := rows.Scan(fields(&row)...); err != nil {
			return nil, fmt.Errorf("%s: %w", query, err)
		}
		all = append(all, row)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	return all, nil
}
