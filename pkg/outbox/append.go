package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/event"
)

// MaxDelay is the furthest that a delayed event may lie ahead.
const MaxDelay = 366 * 24 * time.Hour

// Appended tells, by event_id and in the order given, which events were written now
// and which had been before. An event that exists is no error: appending twice is how
// callers make their own repeats harmless.
type Appended struct {
	New      []string
	Existing []string
}

// Append writes events in the transaction tx. They are published once it commits, and
// never if it rolls back.
//
// tx must be the open transaction that the business rows are written in. It is used as
// a connection only: conditions, hooks and settings of the handle play no part. When
// Append returns an error the caller must roll back, as after any failed statement;
// after a deadlock the server has done so already, and only the whole transaction can
// be tried again. Append never retries a statement by itself.
func Append(ctx context.Context, tx *gorm.DB, events ...event.Event) (Appended, error) {
	c, err := transactionOf(tx)
	if err != nil {
		return Appended{}, fmt.Errorf("append to outbox: %w", err)
	}
	return appendVia(ctx, c, intoOutbox(), events)
}

// AppendSQL is Append for a transaction of database/sql.
func AppendSQL(ctx context.Context, tx *sql.Tx, events ...event.Event) (Appended, error) {
	if tx == nil {
		return Appended{}, fmt.Errorf("append to outbox: %w: it is nil", ErrNoTransaction)
	}
	return appendVia(ctx, tx, intoOutbox(), events)
}

// AppendAfter writes events that are to be published once wait has passed since now,
// on the database's clock. Existing ones wait already, and keep their due time;
// whether an event of this id was published in the past shows when it is due, and then
// it is dropped.
func AppendAfter(ctx context.Context, tx *gorm.DB, wait time.Duration, events ...event.Event) (Appended, error) {
	c, err := transactionOf(tx)
	if err != nil {
		return Appended{}, fmt.Errorf("append delayed event: %w", err)
	}
	if wait > MaxDelay {
		return Appended{}, fmt.Errorf("append delayed event: %w: it lies %s ahead, at most %s are allowed", ErrDue, wait, MaxDelay)
	}
	return appendVia(ctx, c, intoDelayed(dueAfter(wait)), events)
}

// AppendAt is AppendAfter for an instant. One that has passed is due at once.
func AppendAt(ctx context.Context, tx *gorm.DB, due time.Time, events ...event.Event) (Appended, error) {
	c, err := transactionOf(tx)
	if err != nil {
		return Appended{}, fmt.Errorf("append delayed event: %w", err)
	}
	if due.IsZero() || time.Until(due) > MaxDelay {
		return Appended{}, fmt.Errorf("append delayed event: %w: %s is not within %s from now", ErrDue, event.FormatTime(due), MaxDelay)
	}
	return appendVia(ctx, c, intoDelayed(dueAt(due)), events)
}

// conn is what Append needs of a transaction: *sql.Tx has it, and so has gorm's.
type conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// transactionOf takes the connection out of a gorm handle that is an open transaction.
// Statements go to it directly, so that nothing that clings to the handle (a Where, a
// Table, a hook) becomes part of them.
func transactionOf(tx *gorm.DB) (conn, error) {
	switch {
	case tx == nil || tx.Statement == nil:
		return nil, fmt.Errorf("%w: the handle is nil", ErrNoTransaction)
	case tx.Error != nil:
		return nil, fmt.Errorf("%w: roll back instead: %w", ErrHandle, tx.Error)
	case tx.DryRun || tx.Statement.DryRun:
		return nil, ErrDryRun
	}
	if _, ok := tx.Statement.ConnPool.(gorm.TxCommitter); !ok {
		return nil, fmt.Errorf("%w: use the handle that the transaction's function was given", ErrNoTransaction)
	}
	c, ok := tx.Statement.ConnPool.(conn)
	if !ok {
		return nil, fmt.Errorf("%w: %T", ErrNoTransaction, tx.Statement.ConnPool)
	}
	return c, nil
}

// appendVia validates all events before it writes the first one.
func appendVia(ctx context.Context, c conn, into target, events []event.Event) (Appended, error) {
	rows, repeated, err := rowsOf(ctx, events)
	if err != nil {
		return Appended{}, fmt.Errorf("append to %s: %w", into.table, err)
	}
	existing := make(map[string]bool)
	for chunk := range chunks(rows) {
		if err := insertRows(ctx, c, into, chunk, existing); err != nil {
			return Appended{}, fmt.Errorf("append to %s: %w", into.table, ended(err))
		}
	}
	var out Appended
	for _, r := range rows {
		if existing[r.EventID] {
			out.Existing = append(out.Existing, r.EventID)
		} else {
			out.New = append(out.New, r.EventID)
		}
	}
	out.Existing = append(out.Existing, repeated...)
	return out, nil
}

// ended names the reason where the transaction was committed or rolled back before.
func ended(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("%w: it has ended: %w", ErrNoTransaction, err)
	}
	return err
}

// rowsOf makes one row per distinct event_id. Ids that occur more than once in a call
// come back as repeated: the first one wins, as it would over two calls.
func rowsOf(ctx context.Context, events []event.Event) (rows []row, repeated []string, err error) {
	t := traceOf(ctx)
	seen := make(map[string]bool, len(events))
	rows = make([]row, 0, len(events))
	var errs []error
	for _, e := range events {
		if err := e.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		if seen[e.EventID] {
			repeated = append(repeated, e.EventID)
			continue
		}
		seen[e.EventID] = true
		rows = append(rows, row{Event: e, id: event.NewOutboxID(), trace: t})
	}
	return rows, repeated, errors.Join(errs...)
}
