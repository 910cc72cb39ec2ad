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

const (
	// sweepConns are the sweep's own connections: figures, their outcome, two senders and
	// the watch on the database. leaseConns renew leases, which must not queue behind them.
	sweepConns = 6
	leaseConns = 3
	// loopLimit is how long a loop of this service may be silent.
	loopLimit = 3 * time.Minute
)

// pools are the service's ways to the database.
type pools struct {
	main   *gorm.DB
	sweep  *sql.DB
	leases *sql.DB
}

func openPools(cfg *Config, p *service.Process) (pools, error) {
	var all pools
	var err error
	if all.main, err = db.Open(cfg.DB); err != nil {
		return all, err
	}
	pool, err := db.Pool(all.main)
	if err != nil {
		return all, err
	}
	p.OnStop("database", func(context.Context) error { return pool.Close() })
	if all.sweep, err = db.OpenSQL(cfg.DB, db.WithPool(sweepConns)); err != nil {
		return all, err
	}
	p.OnStop("pool of the sweep", func(context.Context) error { return all.sweep.Close() })
	if all.leases, err = db.OpenSQL(cfg.DB, db.WithPool(leaseConns)); err != nil {
		return all, err
	}
	p.OnStop("pool of leases", func(context.Context) error { return all.leases.Close() })
	return all, nil
}

// wire joins the rooms; nothing here dials.
func wire(cfg *Config, role *string) func(ctx context.Context, p *service.Process) error {
	return func(ctx context.Context, p *service.Process) error {
		if err := cfg.Task.SetRole(*role); err != nil {
			return fmt.Errorf("%w: --role: %w", service.ErrUsage, err)
		}
		all, err := openPools(cfg, p)
		if err != nil {
			return err
		}
		st, err := newStore(all.main, all.sweep, cfg.Base.Country)
		if err != nil {
			return err
		}
		m, err := newMetrics(p.Registerer())
		if err != nil {
			return err
		}
		pool, err := db.Pool(all.main)
		if err != nil {
			return err
		}
		fl, err := flags.New(pool, cfg.Flags, cfg.Base.Country, p.Registerer())
		if err != nil {
			return err
		}
		s := &sweeper{cfg: *cfg, store: st, leases: lease.New(all.leases), flags: fl, metrics: m}
		if s.rules, err = loadRules(cfg.Thresholds.byName()); err != nil {
			return err
		}
		t, err := task.New(task.Spec{
			Name: flags.OpsSnapshot, Country: cfg.Base.Country, Instance: lease.NewOwner(), Config: cfg.Task,
			DB: pool, Flags: fl, BusConfigured: cfg.MQ.Provider != "", Work: newCounter(st, cfg.Sweep, m), Poller: s,
			PollEvery: cfg.Sweep.Every, OverdueBy: time.Hour, Registerer: p.Registerer(),
		})
		if err != nil {
			return err
		}
		p.Ready("sweep", s.Ready)
		loops := map[string]func(context.Context) error{}
		if cfg.Task.Polls() {
			if loops, err = tellers(ctx, cfg, p, s); err != nil {
				return err
			}
		}
		return t.Start(ctx, task.Service{
			Process: p, Tables: tables(), Event: event.OpsCounter, Group: "ops_snapshot", Loops: loops,
			OpenBus: func() (*eventbus.Bus, error) {
				return provider.Open(cfg.MQ, cfg.Base.Env, cfg.Base.Country, *zerolog.Ctx(ctx),
					eventbus.WithTracerProvider(p.TracerProvider()), eventbus.WithRegisterer(p.Registerer()), eventbus.WithDeadLetters(outbox.NewDeadLetterStore(pool)))
			},
		})
	}
}

func newStore(main *gorm.DB, sweep *sql.DB, country string) (store, error) {
	g, err := db.Gorm(sweep)
	if err != nil {
		return store{}, err
	}
	return store{db: main, sweep: g, pool: sweep, country: country}, nil
}

// tellers are the loops that send, beside the one that watches the database, which must
// not wait for a schema. The receiver of Prometheus' alerts goes with them.
func tellers(ctx context.Context, cfg *Config, p *service.Process, s *sweeper) (map[string]func(context.Context) error, error) {
	outlets := []outlet{{route: routeFeishu}, {route: routeSecond}}
	if cfg.Alert.FeishuHook != "" {
		f := newFeishu(cfg.Alert.FeishuHook, cfg.Alert.FeishuSecret, cfg.Alert.SendTimeout)
		p.OnStop("Feishu client", func(context.Context) error { f.close(); return nil })
		b, err := budget.New(s.store.pool, feishuBudget("feishu:"+cfg.Base.Country))
		if err != nil {
			return nil, err
		}
		outlets[0].send, outlets[0].budget = f.send, b
	} else {
		const none = "no Feishu bot is configured (SEAHUB_FEISHU_HOOK, seahub.feishu.hook): alerts go to the log only"
		zerolog.Ctx(ctx).Warn().Msg(none)
		p.Ready("feishu", func() (bool, string) { return true, none })
	}
	if cfg.Alert.SecondHook != "" {
		w := newWebhook(cfg.Alert.SecondHook, cfg.Alert.SendTimeout)
		p.OnStop("second webhook's client", func(context.Context) error { w.close(); return nil })
		outlets[1].send = w.send
	}
	guard := &memory{cfg: *cfg, ping: s.store.ping, outlets: outlets, beat: p.Heartbeat("database watch", loopLimit)}
	p.Go("database watch", guard.run)
	p.Handle("POST /alertmanager", &receiver{cfg: *cfg, store: s.store})
	loops := map[string]func(context.Context) error{}
	for _, o := range outlets {
		snd := &sender{cfg: cfg.Alert, store: s.store, leases: s.leases, out: o, metrics: s.metrics}
		loops["sender "+o.route] = func(ctx context.Context) error {
			// Only now: while the loop waits for the schema nobody beats for it.
			snd.beat = p.Heartbeat("sender "+o.route, loopLimit+cfg.Alert.SendBackoffMax)
			return snd.run(ctx)
		}
	}
	return loops, nil
}
