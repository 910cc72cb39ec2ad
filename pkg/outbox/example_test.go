package outbox_test

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// A first event: the business row and its event in one transaction. If the transaction
// rolls back there is no event; once it commits, the relay publishes it.
func ExampleAppend() {
	ctx := context.Background()
	g, end, err := exampleDatabase(ctx)
	if end != nil {
		defer end()
	}
	if err != nil {
		fmt.Println(err)
		return
	}

	send := func(pushID string) (outbox.Appended, error) {
		var appended outbox.Appended
		err := db.InTx(ctx, g, func(tx *gorm.DB) error {
			if err := tx.Exec("INSERT IGNORE INTO my_pushes (id) VALUES (?)", pushID).Error; err != nil {
				return err
			}
			e, err := event.PushDispatched(pushID)
			if err != nil {
				return err
			}
			appended, err = outbox.Append(ctx, tx, e)
			return err
		})
		return appended, err
	}

	fmt.Println(send("4711"))
	fmt.Println(send("4711")) // the same again: nothing happens
	// Output:
	// {[push:4711] []} <nil>
	// {[] [push:4711]} <nil>
}

// exampleDatabase starts a server; a service calls db.Open with its configuration.
func exampleDatabase(ctx context.Context) (g *gorm.DB, end func(), err error) {
	server, err := testenv.StartMariaDB(ctx, testenv.Options{})
	if err != nil {
		return nil, nil, err
	}
	end = func() { _ = server.Close() }
	cfg := db.Config{DSN: server.DSN("mysql"), TimeZone: "+00:00", MaxOpen: 4, DialTimeout: time.Second, IOTimeout: 10 * time.Second}
	admin, err := db.OpenSQL(cfg)
	if err != nil {
		return nil, end, err
	}
	defer func() { _ = admin.Close() }()
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE example"); err != nil {
		return nil, end, err
	}
	cfg.DSN = server.DSN("example")
	if g, err = db.Open(cfg); err != nil {
		return nil, end, err
	}
	pool, err := db.Pool(g)
	if err != nil {
		return nil, end, err
	}
	end = func() { _ = pool.Close(); _ = server.Close() }
	if _, err := migrations.Up(ctx, pool); err != nil {
		return nil, end, err
	}
	return g, end, g.Exec("CREATE TABLE my_pushes (id VARCHAR(64) PRIMARY KEY)").Error
}
