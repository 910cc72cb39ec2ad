package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// lockWait is how long a change waits for the table's metadata lock, in seconds. A
// waiting ALTER blocks every later statement on the table, so it must give up soon.
const lockWait = 2

// ErrNeedsPerson: the change cannot be made in place on this server.
var ErrNeedsPerson = errors.New("this change would rebuild or lock outbox_event")

// ErrNotOutbox: a table of that name exists and is not the app's outbox_event.
var ErrNotOutbox = errors.New("outbox_event is not as the app makes it")

// change is one addition to a table that exists.
type change struct {
	statement string // without ALGORITHM and LOCK
	algorithm string
}

// addedColumns are ours; all nullable, so that the app's own INSERTs go on unchanged.
var addedColumns = []struct{ name, definition string }{
	{"available_at", "DATETIME(3) NULL"},
	{"requeued_at", "DATETIME(3) NULL"},
	{"last_error", "VARCHAR(512) NULL"},
	{"traceparent", "VARCHAR(55) NULL"},
	{"request_id", "VARCHAR(64) NULL"},
}

var appColumns = []string{
	"id", "event_id", "event_type", "aggregate_type", "aggregate_id",
	"payload_json", "status", "retry_count", "created_at", "published_at",
}

// Adopt adds what an existing outbox_event lacks and returns the statements that ran.
func Adopt(ctx context.Context, db *sql.DB) ([]string, error) {
	plan, err := adoptionPlan(ctx, db)
	if err != nil || len(plan) == 0 {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	// The short lock_wait_timeout belongs to this work only; the connection is not reused.
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }); _ = conn.Close() }()
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", lockWait)); err != nil {
		return nil, fmt.Errorf("set lock_wait_timeout: %w", err)
	}
	var done []string
	for _, c := range plan {
		stmt, err := c.run(ctx, conn)
		if err != nil {
			return done, err
		}
		done = append(done, stmt)
	}
	return done, nil
}

// run makes the change by its algorithm and no other.
func (c change) run(ctx context.Context, conn *sql.Conn) (string, error) {
	stmt := c.statement + ", " + c.algorithm
	_, err := conn.ExecContext(ctx, stmt)
	switch {
	case err == nil:
		return stmt, nil
	case isUnsupportedAlgorithm(err):
		return "", fmt.Errorf("%w: %w; run it yourself at a quiet hour, then `relay migrate` again: %s;", ErrNeedsPerson, err, c.statement)
	}
	return "", fmt.Errorf("%s: %w; nothing was changed by it, run `relay migrate` again", stmt, err)
}

// isUnsupportedAlgorithm: 1845 and 1846 say that ALGORITHM or LOCK is not supported
// for this change, 1221 that the server does not know the combination, 4092 and 4158
// that MySQL has made all the instant changes of a table that it can, or that the row
// would become too long for one.
func isUnsupportedAlgorithm(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains([]uint16{1845, 1846, 1221, 4092, 4158}, e.Number)
}

// adoptionPlan compares outbox_event with what this version needs. A table that does
// not exist yet needs nothing: migration 1 makes it whole.
func adoptionPlan(ctx context.Context, db *sql.DB) ([]change, error) {
	have, err := names(ctx, db, "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'outbox_event'")
	if err != nil {
		return nil, fmt.Errorf("read columns of outbox_event: %w", err)
	}
	if len(have) == 0 {
		return nil, noColumns(ctx, db)
	}
	var absent []string
	for _, c := range appColumns {
		if !have[c] {
			absent = append(absent, c)
		}
	}
	if len(absent) > 0 {
		return nil, fmt.Errorf("%w: it has no column %s; is this the right schema?", ErrNotOutbox, strings.Join(absent, ", "))
	}
	var plan []change
	for _, c := range addedColumns {
		if !have[c.name] {
			plan = append(plan, change{
				statement: "ALTER TABLE outbox_event ADD COLUMN " + c.name + " " + c.definition,
				algorithm: "ALGORITHM=INSTANT", // INPLACE would copy every row, too
			})
		}
	}
	indexed, err := hasClaimIndex(ctx, db)
	if err != nil {
		return nil, err
	}
	if !indexed {
		plan = append(plan, change{
			statement: "ALTER TABLE outbox_event ADD INDEX idx_status_created (status, created_at)",
			algorithm: "ALGORITHM=INPLACE, LOCK=NONE",
		})
	}
	return plan, nil
}

// hasClaimIndex: the relay's statements name idx_status_created, so the index must have
// that name and begin with (status, created_at).
func hasClaimIndex(ctx context.Context, db *sql.DB) (bool, error) {
	columns, err := names(ctx, db, `SELECT CONCAT(seq_in_index, ':', column_name) FROM information_schema.statistics
		WHERE table_schema = DATABASE() AND table_name = 'outbox_event' AND index_name = 'idx_status_created'`)
	if err != nil {
		return false, fmt.Errorf("read indexes of outbox_event: %w", err)
	}
	if len(columns) == 0 {
		return false, nil
	}
	if !columns["1:status"] || !columns["2:created_at"] {
		return false, fmt.Errorf("%w: its index idx_status_created does not begin with (status, created_at)", ErrNotOutbox)
	}
	return true, nil
}

func names(ctx context.Context, db *sql.DB, query string) (map[string]bool, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	set := map[string]bool{}
	for rows.Next() {
		var n string
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		set[strings.ToLower(n)] = true
	}
	return set, rows.Err()
}
