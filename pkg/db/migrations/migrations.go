// Package migrations holds all DDL of this project and applies it.
//
// Our own tables (mq_…) are versioned files, one statement each, run in order under
// a table lock, so that two Jobs at once do the work once. The app's outbox_event is
// adopted instead: where it exists, missing nullable columns and the claim's index are
// added in place (columns INSTANT, the index without a lock on writers, giving up after
// a short wait for the table's metadata lock); what would rebuild the table is refused
// with the statement for a person to run. Columns and indexes of the app are never
// changed or dropped. Running it again changes nothing.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed sql/*.sql
var files embed.FS

// versionTable and lockTable are goose's bookkeeping.
const (
	versionTable = "mq_schema_version"
	lockTable    = "mq_schema_lock"
)

// Step is one migration and whether the database has it.
type Step struct {
	Version int64     `json:"version"`
	Name    string    `json:"name"`
	Applied bool      `json:"applied"`
	At      time.Time `json:"at,omitzero"`
}

// ErrPending: the schema lacks something that this version needs.
var ErrPending = errors.New("schema is not up to date: run `relay migrate`")

func provider(db *sql.DB) (*goose.Provider, error) {
	sub, err := fs.Sub(files, "sql")
	if err != nil {
		return nil, fmt.Errorf("embedded migrations: %w", err)
	}
	locker, err := lock.NewMySQLTableLocker(lock.WithTableName(lockTable))
	if err != nil {
		return nil, fmt.Errorf("migration lock: %w", err)
	}
	store, err := database.NewStore(database.DialectMySQL, versionTable)
	if err != nil {
		return nil, fmt.Errorf("migration versions: %w", err)
	}
	p, err := goose.NewProvider("", db, sub,
		goose.WithStore(store), goose.WithLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	return p, nil
}

// Up applies everything that is missing and returns what it did.
func Up(ctx context.Context, db *sql.DB) ([]string, error) { return UpTo(ctx, db, latest) }

// latest means "no bound".
const latest = int64(1<<63 - 1)

// UpTo applies what is missing up to and including version.
func UpTo(ctx context.Context, db *sql.DB, version int64) ([]string, error) {
	// A table of that name that is not the app's is a reason to stop before anything is made.
	if _, err := adoptionPlan(ctx, db); err != nil {
		return nil, err
	}
	p, err := provider(db)
	if err != nil {
		return nil, err
	}
	results, err := p.UpTo(ctx, version)
	var done []string
	for _, r := range results {
		done = append(done, r.Source.Path)
	}
	if err != nil {
		return done, fmt.Errorf("apply migrations: %w", err)
	}
	adopted, err := Adopt(ctx, db)
	return append(done, adopted...), err
}

// Status lists all steps. The database is not changed.
func Status(ctx context.Context, db *sql.DB) ([]Step, error) {
	applied, err := appliedVersions(ctx, db)
	if err != nil {
		return nil, err
	}
	p, err := provider(db)
	if err != nil {
		return nil, err
	}
	var steps []Step
	for _, s := range p.ListSources() {
		at, ok := applied[s.Version]
		steps = append(steps, Step{Version: s.Version, Name: s.Path, Applied: ok, At: at})
	}
	return steps, nil
}

// Check returns ErrPending, with the names, when something is missing.
func Check(ctx context.Context, db *sql.DB) error {
	steps, err := Status(ctx, db)
	if err != nil {
		return err
	}
	var missing []string
	for _, s := range steps {
		if !s.Applied {
			missing = append(missing, s.Name)
		}
	}
	plan, err := adoptionPlan(ctx, db)
	if err != nil {
		return err
	}
	for _, c := range plan {
		missing = append(missing, c.statement)
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w (missing: %q)", ErrPending, missing)
	}
	return nil
}

// appliedVersions reads goose's table itself: goose would create it, and Check must
// not write.
func appliedVersions(ctx context.Context, db *sql.DB) (map[int64]time.Time, error) {
	var n int
	err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?", versionTable).Scan(&n)
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", versionTable, err)
	}
	applied := map[int64]time.Time{}
	if n == 0 {
		return applied, nil
	}
	rows, err := db.QueryContext(ctx, "SELECT version_id, tstamp FROM "+versionTable+" WHERE is_applied = 1")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", versionTable, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var v int64
		var at time.Time
		if err := rows.Scan(&v, &at); err != nil {
			return nil, fmt.Errorf("read %s: %w", versionTable, err)
		}
		applied[v] = at
	}
	return applied, rows.Err()
}
