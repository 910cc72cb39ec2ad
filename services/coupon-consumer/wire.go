package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/rs/zerolog"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/service"
	"github.com/seahub/seahub-mq/pkg/task"
)

// leaseConns are the connections of the pool that renews the scan's lease: renewals
// must not queue behind handlers.
const leaseConns = 2

// wire joins the rooms; nothing here dials.
func wire(cfg *Config, role *string) func(ctx context.Context, p *service.Process) error {
	return func(ctx context.Context, p *service.Process) error {
		if err := cfg.Task.SetRole(*role); err != nil {
			return fmt.Errorf("%w: --role: %w", service.ErrUsage, err)
		}
		gdb, err := db.Open(cfg.DB)
		if err != nil {
			return err
		}
		pool, err := db.Pool(gdb)
		if err != nil {
			return err
		}
		p.OnStop("database", func(context.Context) error { return pool.Close() })
		leases, err := db.OpenSQL(cfg.DB, db.WithPool(leaseConns))
		if err != nil {
			return err
		}
		p.OnStop("pool of leases", func(context.Context) error { return leases.Close() })
		t, err := newTask(cfg, p, gdb, pool, lease.New(leases))
		if err != nil {
			return err
		}
		return t.Start(ctx, task.Service{
			Process: p, Tables: tables(), Event: event.CouponExpire, Group: "coupon_expire",
			OpenBus: func() (*eventbus.Bus, error) {
				return provider.Open(cfg.MQ, cfg.Base.Env, cfg.Base.Country, *zerolog.Ctx(ctx),
					eventbus.WithTracerProvider(p.TracerProvider()), eventbus.WithRegisterer(p.Registerer()), eventbus.WithDeadLetters(outbox.NewDeadLetterStore(pool)))
			},
		})
	}
}

func newTask(cfg *Config, p *service.Process, gdb *gorm.DB, pool *sql.DB, leases *lease.Store) (*task.Task, error) {
	fl, err := flags.New(pool, cfg.Flags, cfg.Base.Country, p.Registerer())
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(p.Registerer())
	if err != nil {
		return nil, err
	}
	e := &expirer{cfg: *cfg, store: store{gdb}, leases: leases, metrics: m}
	return task.New(task.Spec{
		Name: flags.CouponExpire, Country: cfg.Base.Country, Instance: lease.NewOwner(), Config: cfg.Task,
		DB: pool, Flags: fl, BusConfigured: cfg.MQ.Provider != "", Work: e, Poller: e,
		PollEvery: cfg.scanEvery(), OverdueBy: cfg.overdueBy(), Registerer: p.Registerer(),
	})
}
