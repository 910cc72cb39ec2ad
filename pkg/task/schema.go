package task

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// schemaTimeout bounds one look at the schema.
const schemaTimeout = 5 * time.Second

// Table names a table and those of its columns that a service uses.
type Table struct {
	Name    string
	Columns []string
}

// ownTables are what this package and package flags use.
func ownTables() []Table {
	return []Table{
		{"mq_feature_flag", []string{"flag", "country", "enabled"}},
		{"mq_task_health", []string{"task", "instance", "fallback"}},
	}
}

// Missing names what the schema lacks of tables, "" if nothing.
func Missing(ctx context.Context, pool *sql.DB, tables []Table) (string, error) {
	found, err := schemaNames(ctx, pool)
	if err != nil {
		return "", err
	}
	var lacks []string
	for _, table := range tables {
		if !found[table.Name] {
			lacks = append(lacks, "table "+table.Name)
			continue
		}
		for _, column := range table.Columns {
			if !found[table.Name+"."+column] {
				lacks = append(lacks, "column "+table.Name+"."+column)
			}
		}
	}
	return strings.Join(lacks, ", "), nil
}

// schemaNames are the schema's tables, and its columns as table.column.
func schemaNames(ctx context.Context, pool *sql.DB) (found map[string]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	rows, err := pool.QueryContext(ctx, `SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.columns
		WHERE TABLE_SCHEMA = DATABASE()`)
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	defer func() {
		if closeErr := rows.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("read the schema: %w", closeErr)
		}
	}()
	found = map[string]bool{}
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return nil, fmt.Errorf("read the schema: %w", err)
		}
		found[strings.ToLower(table)] = true
		found[strings.ToLower(table+"."+column)] = true
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	return found, nil
}

// gate holds loops back until the database has what they need, and names what it lacks.
type gate struct {
	pool   *sql.DB
	tables []Table
	open   chan struct{}
	why    chan string // holds the latest reason
}

func newGate(pool *sql.DB, tables []Table) *gate {
	g := &gate{pool: pool, tables: append(tables, ownTables()...), open: make(chan struct{}), why: make(chan string, 1)}
	g.why <- "schema not checked yet"
	return g
}

// watch looks until everything is there, and then stays until ctx ends, as loops must.
func (g *gate) watch(ctx context.Context) error {
	wait := backoff.Policy{Base: 200 * time.Millisecond, Max: 10 * time.Second}
	told := ""
	for attempt := 1; ; attempt++ {
		lacks, err := Missing(ctx, g.pool, g.tables)
		switch {
		case err != nil:
			lacks = "database is not reachable"
		case lacks == "":
			<-g.why
			g.why <- ""
			close(g.open)
			<-ctx.Done()
			return nil
		default:
			lacks = "the database lacks " + lacks + ": run `relay migrate` for our tables; the others are the app's"
		}
		if lacks != told && ctx.Err() == nil {
			told = lacks
			zerolog.Ctx(ctx).Error().AnErr("cause", err).Msg("nothing starts yet: " + lacks)
		}
		<-g.why
		g.why <- lacks
		if !backoff.Sleep(ctx, wait.Delay(attempt)) {
			return nil
		}
	}
}

func (g *gate) ready() (bool, string) {
	why := <-g.why
	g.why <- why
	return why == "", why
}

// then runs a loop once the gate is open. Until then it beats for the loop: waiting
// for a database is no reason to start the process again.
func (g *gate) then(beat func(), run func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(heartbeatLimit / 8)
		defer tick.Stop()
		for {
			select {
			case <-g.open:
				return run(ctx)
			case <-ctx.Done():
				return nil
			case <-tick.C:
				beat()
			}
		}
	}
}
