package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
)

const (
	env     = "id-test"
	country = "id"
	schema  = "app"
	zone    = "+00:00"
	// connections of this program's own pool: writers, and some to look.
	connections = 40
)

// bed is what is measured on: private servers, the schema, the relay's binary.
type bed struct {
	options
	p      *sheet.Progress
	server *testenv.Server
	dbName string
	dsn    string
	db     *sql.DB
	topic  topic
	binary string
	logs   string
	next   int   // number of the next event that writers append
	floor  split // of the last run of the floor, which is over when it is read
}

// makeBed starts everything. On an error what was started is stopped again.
func makeBed(ctx context.Context, o options, p *sheet.Progress) (_ *bed, err error) {
	b := &bed{options: o, p: p}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	dir := filepath.Join(o.root, ".local", "bench")
	b.logs = filepath.Join(dir, "logs")
	if err := os.MkdirAll(b.logs, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder for logs: %w", err)
	}
	p.Step("building the relay")
	binaries, err := stack.Build(ctx, o.root, filepath.Join(dir, "bin"), false, "relay")
	if err != nil {
		return nil, err
	}
	b.binary = binaries["relay"]
	p.Step("starting %s and %s", o.db, o.provider)
	if err := b.startDatabase(ctx); err != nil {
		return nil, err
	}
	if b.topic, err = topics[o.provider](ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// startDatabase starts a server that commits as production's does: every commit on the
// disk, with a row binary log. Log and pool have room for the whole backlog, as a
// server in production has for hours of it; a small log would measure its checkpoints.
func (b *bed) startDatabase(ctx context.Context) error {
	o := testenv.Options{Durable: true}
	var err error
	switch b.options.db {
	case "mariadb":
		o.Args = []string{"--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M"}
		b.server, err = testenv.StartMariaDB(ctx, o)
	default:
		o.Args = []string{"--innodb-buffer-pool-size=1G", "--innodb-redo-log-capacity=512M"}
		b.server, err = testenv.StartMySQL(ctx, o)
	}
	if err != nil {
		return err
	}
	b.dsn = b.server.DSN(schema)
	admin, err := sql.Open("mysql", b.server.DSN(""))
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { _ = admin.Close() }()
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+schema+" CHARACTER SET utf8mb4"); err != nil {
		return fmt.Errorf("create the schema: %w", err)
	}
	if err := admin.QueryRowContext(ctx, "SELECT CONCAT(@@version_comment, ' ', @@version)").Scan(&b.dbName); err != nil {
		return fmt.Errorf("ask for the version: %w", err)
	}
	b.db, err = db.OpenSQL(db.Config{
		DSN: b.dsn, TimeZone: zone, DialTimeout: 5 * time.Second, IOTimeout: time.Minute,
	}, db.WithPool(connections), db.WithInterpolation())
	if err != nil {
		return err
	}
	if _, err := migrations.Up(ctx, b.db); err != nil {
		return err
	}
	return prepareFill(ctx, b.db)
}

// close ends all of it; it may be called on half a bed.
func (b *bed) close() {
	if b.db != nil {
		_ = b.db.Close()
	}
	if b.topic != nil {
		b.topic.close()
	}
	if b.server != nil {
		_ = b.server.Close()
	}
}

// await polls until f says so, within limit.
func await(ctx context.Context, limit time.Duration, what string, f func(ctx context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s: not within %s", what, limit))
	defer cancel()
	for {
		ok, err := f(ctx)
		if ok && err == nil {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
