package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/service"
)

// heartbeatLimit is how long the relay's loop may be silent: longer than a pass and a
// statement on a silent database together.
const heartbeatLimit = 2 * time.Minute

// wire joins the rooms; nothing here dials.
func wire(cfg *Config) func(ctx context.Context, p *service.Process) error {
	return func(ctx context.Context, p *service.Process) error {
		giveMemory(cfg.Relay.BatchBytes)
		useOneProcessor()
		bus, err := openBus(ctx, cfg, eventbus.WithRegisterer(p.Registerer()), eventbus.WithTracerProvider(p.TracerProvider()))
		if errors.Is(err, provider.ErrNotConfigured) {
			return idle(ctx, cfg, p, err)
		}
		if err != nil {
			return err
		}
		p.OnStop("event bus", bus.Close)
		main, err := db.OpenSQL(cfg.DB)
		if err != nil {
			return err
		}
		p.OnStop("database", func(context.Context) error { return main.Close() })
		own, err := outbox.OpenPool(cfg.DB, cfg.Relay)
		if err != nil {
			return err
		}
		p.OnStop("relay's database pool", func(context.Context) error { return own.Close() })
		beat := p.Heartbeat("relay", heartbeatLimit)
		relay, err := outbox.NewRelay(cfg.Relay, outbox.Deps{
			Pool: own, Leases: lease.New(main), Metrics: p.Registerer(), Beat: beat,
			Publisher: publisher{bus: bus.Publisher(), env: cfg.Base.Env, country: cfg.Base.Country},
		})
		if err != nil {
			return err
		}
		r := newReport(main, cfg.Base.Country)
		dead, err := newDeadWatch(main, p.Registerer())
		if err != nil {
			return err
		}
		start := newStart(main, beat)
		p.Ready("start", start.ready)
		p.Ready("relay", relay.Ready)
		p.Ready("broker settings", func() (bool, string) { return true, strings.Join(bus.Warnings(), "; ") })
		p.Go("dead letter count", func(ctx context.Context) error {
			dead.run(ctx)
			return nil
		})
		p.Go("relay", func(ctx context.Context) error {
			if err := start.wait(ctx); err != nil || ctx.Err() != nil {
				return err
			}
			return relay.Run(ctx)
		})
		p.Go("report", func(ctx context.Context) error { return r.run(ctx, relay.Snapshot, bus.Inspector()) })
		return nil
	}
}

// openBus opens the event bus of the configuration.
func openBus(ctx context.Context, cfg *Config, opts ...eventbus.Option) (*eventbus.Bus, error) {
	return provider.Open(cfg.MQ, cfg.Base.Env, cfg.Base.Country, *zerolog.Ctx(ctx), opts...)
}

// idle is a relay without a broker: it stays up, claims nothing and says why. Events
// wait in outbox_event until there is one.
func idle(ctx context.Context, cfg *Config, p *service.Process, why error) error {
	pool, err := db.OpenSQL(cfg.DB, db.WithPool(2))
	if err != nil {
		return err
	}
	p.OnStop("database", func(context.Context) error { return pool.Close() })
	zerolog.Ctx(ctx).Warn().Msg("relay publishes nothing: " + why.Error())
	p.Ready("bus", func() (bool, string) { return true, why.Error() })
	r := newReport(pool, cfg.Base.Country)
	p.Go("idle", func(ctx context.Context) error { return r.runIdle(ctx, why.Error()) })
	return nil
}

// pool opens the pool of an operator's command.
func (t *tools) pool() (*sql.DB, error) {
	pool, err := db.OpenSQL(t.cfg.DB, db.WithPool(4))
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return pool, nil
}
