package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/go-sql-driver/mysql"
)

// Server error numbers that decide something here.
const (
	errTooManyConnections    = 1040
	errServerShutdown        = 1053
	errDuplicateEntry        = 1062
	errUnknownSystemVariable = 1193
	errLockWaitTimeout       = 1205
	errDeadlock              = 1213
	errReadOnlyOption        = 1290
	errReadOnlyTransaction   = 1792
	errReadOnlyMode          = 1836
	errQueryTimeout          = 3024
	errRecordChanged         = 1020 // MariaDB's innodb_snapshot_isolation
	errStatementTimeout      = 1969 // MariaDB's max_statement_time
	errSyntax                = 1064
	errNoSuchTable           = 1146
	errNoSuchColumn          = 1054
)

func code(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// IsDuplicate: a unique key has the value already.
func IsDuplicate(err error) bool { return code(err) == errDuplicateEntry }

// IsRetryable: the server gave up a conflict between transactions. After a deadlock
// or a changed record it has rolled back the whole transaction, so only the whole
// unit may be run again, never the last statement.
func IsRetryable(err error) bool {
	switch code(err) {
	case errDeadlock, errLockWaitTimeout, errRecordChanged:
		return true
	}
	return false
}

// IsMissing: a table or column is not there.
func IsMissing(err error) bool {
	switch code(err) {
	case errNoSuchTable, errNoSuchColumn:
		return true
	}
	return false
}

// IsSyntax: the server does not understand the statement.
func IsSyntax(err error) bool { return code(err) == errSyntax }

// IsUnavailable: the database was not reached, went away, or does not take writes.
// Whether a statement in flight took effect is then unknown.
func IsUnavailable(err error) bool {
	switch code(err) {
	case errTooManyConnections, errServerShutdown, errReadOnlyOption, errReadOnlyTransaction,
		errReadOnlyMode, errQueryTimeout, errStatementTimeout:
		return true
	}
	var netErr net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) ||
		errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr)
}
