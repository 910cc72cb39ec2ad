package outbox

import "errors"

// Errors that callers test.
var (
	// ErrNoTransaction: the handle is not an open transaction. An event that is
	// written outside the business transaction is lost by a crash or left over by a
	// rollback, so it is never written.
	ErrNoTransaction = errors.New("not an open transaction")
	// ErrDryRun: the handle would write nothing and say that it had.
	ErrDryRun = errors.New("handle is a dry run")
	// ErrHandle: the handle carries the error of an earlier statement.
	ErrHandle = errors.New("handle carries an earlier error")
	// ErrNotWritten: the server accepted the statement but did not write the rows.
	ErrNotWritten = errors.New("event was not written")
	// ErrIDClash: another event has an id that this table's collation takes for the
	// same one, although the bytes differ ("push:A" and "push:a").
	ErrIDClash = errors.New("event id equals another one in the table's collation")
	// ErrDue: the due time of a delayed event is out of range.
	ErrDue = errors.New("due time out of range")

	// ErrServerTooOld: the server lacks what the relay's claims need.
	ErrServerTooOld = errors.New("database server is too old")

	// ErrNoFilter: an operator's command was given nothing to select by.
	ErrNoFilter = errors.New("no filter")
	// ErrNoReason: an operator's command needs to know who acts and why.
	ErrNoReason = errors.New("who and reason are required")
	// ErrNotFound: no such row, or not in a state in which this can be done.
	ErrNotFound = errors.New("not found")
	// ErrRaced: the rows changed under an operator's command.
	ErrRaced = errors.New("rows were changed by someone else at the same time")
	// ErrNotConfirmed: the broker did not confirm a replayed dead letter.
	ErrNotConfirmed = errors.New("broker did not confirm")
)
