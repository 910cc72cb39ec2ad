package main

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

// countFailure appends what the ops figures count, in the transaction that made the push
// FAILED and with the very time that it wrote: a recount by SQL goes by that column.
func countFailure(ctx context.Context, tx *gorm.DB, p *push) error {
	var at time.Time
	if err := tx.Raw(`SELECT updated_at FROM push_messages WHERE id = ?`, p.ID).Row().Scan(&at); err != nil {
		return fmt.Errorf("read when push %s failed: %w", p.ID, err)
	}
	e, err := event.PushFailed(p.Country, p.ID, p.Attempt, at)
	if err != nil {
		return fmt.Errorf("count failed push %s: %w", p.ID, err)
	}
	if _, err := outbox.Append(ctx, tx, e); err != nil {
		return fmt.Errorf("count failed push %s: %w", p.ID, err)
	}
	return nil
}
