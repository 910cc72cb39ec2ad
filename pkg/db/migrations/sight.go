package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrNoSight: the account cannot see what the app's table has, so nothing could be said
// of what it lacks.
var ErrNoSight = errors.New("outbox_event is there, and this account sees none of its columns: it needs SELECT on the table")

// noColumns tells a table that does not exist yet from one whose columns the server shows
// only to accounts with a right on them; ALTER alone is none.
func noColumns(ctx context.Context, db *sql.DB) error {
	tables, err := names(ctx, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'outbox_event'")
	if err != nil {
		return fmt.Errorf("look for outbox_event: %w", err)
	}
	if len(tables) > 0 {
		return ErrNoSight
	}
	return nil
}
