package testenv

import (
	"context"
	"database/sql"
	"testing"
)

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Explain returns the plan of a query: for each table the columns of EXPLAIN in its
// tabular form, which MariaDB and MySQL share.
func (s *Schema) Explain(t testing.TB, q Querier, query string, args ...any) []map[string]string {
	t.Helper()
	verb := "EXPLAIN "
	if s.Kind == KindMySQL {
		verb = "EXPLAIN FORMAT=TRADITIONAL " // a tree otherwise
	}
	rows, err := q.QueryContext(t.Context(), verb+query, args...)
	must(t, "explain "+query, err)
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	must(t, "columns of the plan", err)
	var plan []map[string]string
	for rows.Next() {
		values := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		must(t, "read the plan", rows.Scan(into...))
		table := map[string]string{}
		for i, name := range names {
			table[name] = values[i].String
		}
		plan = append(plan, table)
	}
	must(t, "read the plan", rows.Err())
	if len(plan) == 0 {
		t.Fatalf("no plan for %s", query)
	}
	return plan
}

// Reads runs a query and tells how many rows it returned, and how many the storage
// engine looked at: those it handed out, and those that it dropped itself by a
// condition on the index (which MariaDB counts; on MySQL the plan must be a range).
// A full scan is not among them, see the plan.
func Reads(t testing.TB, conn *sql.Conn, query string, args ...any) (returned, touched int) {
	t.Helper()
	before := handlerReads(t, conn)
	rows, err := conn.QueryContext(t.Context(), query, args...)
	must(t, query, err)
	for rows.Next() {
		returned++
	}
	must(t, query, rows.Err())
	must(t, query, rows.Close())
	return returned, handlerReads(t, conn) - before
}

func handlerReads(t testing.TB, conn *sql.Conn) int {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_%'")
	must(t, "session status", err)
	defer func() { _ = rows.Close() }()
	sum := 0
	for rows.Next() {
		var name string
		var n int
		must(t, "session status", rows.Scan(&name, &n))
		switch name {
		case "Handler_read_first", "Handler_read_key", "Handler_read_next", "Handler_read_prev", "Handler_read_rnd", "Handler_icp_attempts":
			sum += n
		case "Handler_icp_match":
			sum -= n
		}
	}
	must(t, "session status", rows.Err())
	return sum
}

func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
