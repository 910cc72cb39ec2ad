package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/budget"
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

// leaseConns are the connections of the pool that renews leases: renewals must not
// queue behind the work.
const leaseConns = 3

// sessions end on the server when this process is silent in the middle of a transaction
// for a part of the lease: a frozen process holds the lock of its campaign's row, and
// nobody could take the campaign over.
func sessions(cfg Config) db.Option {
	silence := min(max(cfg.Lease/3, time.Second), 10*time.Second)
	return db.WithSessionTimeouts(silence, silence, silence)
}

// wire joins the rooms; nothing here dials.
func wire(cfg *Config, role *string) func(ctx context.Context, p *service.Process) error {
	return func(ctx context.Context, p *service.Process) error {
		if err := cfg.Task.SetRole(*role); err != nil {
			return fmt.Errorf("%w: --role: %w", service.ErrUsage, err)
		}
		gdb, err := db.Open(cfg.DB, sessions(*cfg))
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
		parts, err := newParts(*cfg, p, gdb, pool, lease.New(leases))
		if err != nil {
			return err
		}
		p.OnStop("clients", func(context.Context) error { parts.close(); return nil })
		if cfg.LinkTestAddress != "" {
			zerolog.Ctx(ctx).Warn().Str("address", cfg.LinkTestAddress).Msg("share links are fetched from a test address: not for production")
		}
		t, err := newTask(cfg, p, pool, parts)
		if err != nil {
			return err
		}
		return t.Start(ctx, task.Service{
			Process: p, Tables: tables(), Event: event.CampaignProductSync, Group: "campaign_sync",
			Loops: map[string]func(context.Context) error{"gauges": parts.poller.gauges(parts.budgets...)},
			OpenBus: func() (*eventbus.Bus, error) {
				return provider.Open(cfg.MQ, cfg.Base.Env, cfg.Base.Country, *zerolog.Ctx(ctx),
					eventbus.WithTracerProvider(p.TracerProvider()), eventbus.WithRegisterer(p.Registerer()), eventbus.WithDeadLetters(outbox.NewDeadLetterStore(pool)))
			},
		})
	}
}

// parts is the service without its process.
type parts struct {
	poller  *poller
	client  *client
	budgets []*budget.Budget
}

func (p *parts) close() {
	p.client.http.CloseIdleConnections()
	p.poller.looks.close()
}

func newParts(cfg Config, p task.Process, gdb *gorm.DB, pool *sql.DB, leases *lease.Store) (*parts, error) {
	m, err := newMetrics(p.Registerer())
	if err != nil {
		return nil, err
	}
	calls, err := apiBudget(pool, cfg)
	if err != nil {
		return nil, err
	}
	links, err := linkBudget(pool, cfg)
	if err != nil {
		return nil, err
	}
	st := store{db: gdb, country: cfg.Base.Country, appKey: cfg.AppKey}
	api := newClient(cfg, st, leases, calls, m.request)
	s := &syncer{
		cfg: cfg, store: st, api: api, looks: newLinkChecker(cfg), linkPace: links, metrics: m,
		instance: lease.NewOwner(), eventOwns: func(string) bool { return false },
	}
	return &parts{poller: &poller{syncer: s, locks: leases}, client: api, budgets: []*budget.Budget{calls, links}}, nil
}

func newTask(cfg *Config, p *service.Process, pool *sql.DB, parts *parts) (*task.Task, error) {
	fl, err := flags.New(pool, cfg.Flags, cfg.Base.Country, p.Registerer())
	if err != nil {
		return nil, err
	}
	t, err := task.New(task.Spec{
		Name: flags.CampaignSync, Country: cfg.Base.Country, Instance: parts.poller.instance, Config: cfg.Task,
		DB: pool, Flags: fl, BusConfigured: cfg.MQ.Provider != "", Work: parts.poller, Poller: parts.poller,
		PollEvery: cfg.PollEvery, OverdueBy: cfg.OverdueBy, Registerer: p.Registerer(),
	})
	if err != nil {
		return nil, err
	}
	parts.poller.eventOwns = t.EventOwns
	return t, nil
}
