package main

import (
	"context"
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
		fl, err := flags.New(pool, cfg.Flags, cfg.Base.Country, p.Registerer())
		if err != nil {
			return err
		}
		fcm, err := newFCM(cfg.FCMEndpoint, cfg.FCMKeyFile, cfg.FCMTimeout)
		if err != nil {
			return fmt.Errorf("%w: %w", service.ErrConfig, err)
		}
		p.OnStop("FCM client", func(context.Context) error { fcm.close(); return nil })
		d, t, err := newTask(cfg, p, gdb, fl, fcm)
		if err != nil {
			return err
		}
		return t.Start(ctx, task.Service{
			Process: p, Tables: tables(), Event: event.PushDispatch, Group: "push_dispatch",
			Loops: map[string]func(context.Context) error{"ledger": d.purgeLedger},
			OpenBus: func() (*eventbus.Bus, error) {
				return provider.Open(cfg.MQ, cfg.Base.Env, cfg.Base.Country, *zerolog.Ctx(ctx),
					eventbus.WithTracerProvider(p.TracerProvider()), eventbus.WithRegisterer(p.Registerer()), eventbus.WithDeadLetters(outbox.NewDeadLetterStore(pool)))
			},
		})
	}
}

func newTask(cfg *Config, p *service.Process, gdb *gorm.DB, fl *flags.Flags, fcm sender) (*dispatcher, *task.Task, error) {
	l := newLane(cfg.FCMRate)
	m, err := newMetrics(p.Registerer(), l)
	if err != nil {
		return nil, nil, err
	}
	pool, err := db.Pool(gdb)
	if err != nil {
		return nil, nil, err
	}
	d := &dispatcher{cfg: *cfg, store: store{gdb}, fcm: fcm, lane: l, metrics: m, instance: lease.NewOwner()}
	t, err := task.New(task.Spec{
		Name: flags.PushDispatch, Country: cfg.Base.Country, Instance: d.instance, Config: cfg.Task,
		DB: pool, Flags: fl, BusConfigured: cfg.MQ.Provider != "", Work: d, Poller: d,
		PollEvery: cfg.PollEvery, OverdueBy: cfg.OverdueBy, Registerer: p.Registerer(),
	})
	if err != nil {
		return nil, nil, err
	}
	d.eventOwns = t.EventOwns
	return d, t, nil
}
