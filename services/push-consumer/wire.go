package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/service"
	"github.com/seahub/seahub-mq/pkg/task"
)

// heartbeatLimit is how long a loop may be silent before the process counts as hung:
// longer than any of its bounded waits.
const heartbeatLimit = 2 * time.Minute

// wire joins the rooms; nothing here dials.
func wire(cfg *Config, role *string) func(ctx context.Context, p *service.Process) error {
	return func(ctx context.Context, p *service.Process) error {
		if err := overrideRole(cfg, *role); err != nil {
			return err
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
		pollBeat := func() {}
		if cfg.Task.Polls() {
			pollBeat = p.Heartbeat("poll", heartbeatLimit+cfg.PollEvery)
		}
		d, t, err := newTask(cfg, p, gdb, fl, fcm, pollBeat)
		if err != nil {
			return err
		}
		schema := newGate(d.store)
		p.Ready("schema", schema.ready)
		p.Ready("task", t.Ready)
		p.Go("schema", schema.watch)
		flagBeat := p.Heartbeat("flags", heartbeatLimit)
		p.Go("flags", func(ctx context.Context) error { return fl.Run(ctx, flagBeat) })
		p.Go("health", schema.then(func() {}, t.RunHealth))
		if cfg.Task.Polls() {
			p.Go("poll", schema.then(pollBeat, t.RunPoll))
		}
		if cfg.Task.Consumes() {
			on := func() bool { return fl.Get(flags.PushDispatch).Enabled }
			return consume(ctx, cfg, p, t.Handler(), on, schema, outbox.NewDeadLetterStore(pool))
		}
		return nil
	}
}

func overrideRole(cfg *Config, role string) error {
	switch role {
	case "":
	case task.RoleConsume, task.RolePoll, task.RoleAll:
		cfg.Task.Role = role
	default:
		return fmt.Errorf("%w: --role %q: allowed are consume, poll and all", service.ErrUsage, role)
	}
	return nil
}

func newTask(cfg *Config, p *service.Process, gdb *gorm.DB, fl *flags.Flags, fcm sender, pollBeat func()) (*dispatcher, *task.Task, error) {
	l := newLane(cfg.FCMRate)
	m, err := newMetrics(p.Registerer(), l)
	if err != nil {
		return nil, nil, err
	}
	pool, err := db.Pool(gdb)
	if err != nil {
		return nil, nil, err
	}
	d := &dispatcher{cfg: *cfg, store: store{gdb}, fcm: fcm, lane: l, metrics: m, instance: instanceName()}
	t, err := task.New(task.Spec{
		Name: flags.PushDispatch, Country: cfg.Base.Country, Instance: d.instance, Config: cfg.Task,
		DB: pool, Flags: fl, BusConfigured: cfg.MQ.Provider != "", Work: d, Poller: d,
		PollEvery: cfg.PollEvery, OverdueBy: cfg.OverdueBy, Beat: pollBeat, Registerer: p.Registerer(),
	})
	if err != nil {
		return nil, nil, err
	}
	d.eventOwns = t.EventOwns
	return d, t, nil
}

// consume subscribes, if there is a bus at all. Without one this side has nothing to
// do, and says so.
func consume(ctx context.Context, cfg *Config, p *service.Process, handler eventbus.Handler, flagOn func() bool, schema *gate, letters eventbus.DeadLetters) error {
	bus, err := provider.Open(cfg.MQ, cfg.Base.Env, cfg.Base.Country, *zerolog.Ctx(ctx),
		eventbus.WithRegisterer(p.Registerer()), eventbus.WithDeadLetters(letters))
	if errors.Is(err, provider.ErrNotConfigured) {
		zerolog.Ctx(ctx).Warn().Msg(err.Error())
		p.Ready("bus", func() (bool, string) { return true, err.Error() })
		return nil
	}
	if err != nil {
		return err
	}
	p.OnStop("event bus", bus.Close)
	group := eventbus.Group(cfg.Base.Country, "push_dispatch")
	p.Ready("bus", func() (bool, string) {
		state := bus.State(group)
		ok, reason := state.Ready()
		// With the flag off, or a poll in this process, the pushes go out all the same.
		inLesserWay := !state.Halted && (!flagOn() || cfg.Task.Polls())
		return ok || inLesserWay, reason
	})
	beat := p.Heartbeat("subscription", heartbeatLimit)
	sub := eventbus.Subscription{
		Topic: eventbus.Topic(cfg.Base.Country), Group: group, Tags: []string{string(event.PushDispatch)}, Beat: beat,
	}
	p.Go("subscription", schema.then(beat, func(ctx context.Context) error { return bus.Subscribe(ctx, sub, handler) }))
	return nil
}

// instanceName tells this process from all others, also from its own predecessor in
// the same pod.
func instanceName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	const longest = 64
	var random [4]byte
	_, _ = rand.Read(random[:]) // documented never to fail
	return fmt.Sprintf("%s/%d/%s", host[:min(len(host), longest)], os.Getpid(), hex.EncodeToString(random[:]))
}
