package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/flags"
)

// heartbeatLimit is how long a loop may be silent before the process counts as hung:
// longer than any of its bounded waits.
const heartbeatLimit = 2 * time.Minute

// noBus is what /readyz says of a process that would consume, had it something to
// consume from.
const noBus = "no event bus is configured: set SEAHUB_MQ_PROVIDER (seahub.mq.provider) to redis-streams or rocketmq"

// Process is the life of a service as this package sees it: *service.Process.
type Process interface {
	Registerer() prometheus.Registerer
	Go(name string, run func(ctx context.Context) error)
	Heartbeat(name string, maxAge time.Duration) (beat func())
	Ready(name string, check func() (ok bool, reason string))
	OnStop(name string, f func(ctx context.Context) error)
}

// Service is what Start needs to know beyond the task.
type Service struct {
	Process Process
	// Tables are the service's. Loops wait for them, and readiness names what lacks.
	Tables []Table
	// Event is what the consume side receives, in the consumer group
	// GID_<country>_<Group>.
	Event event.Type
	Group string
	// OpenBus opens the event bus. It is called once, by a process that consumes and
	// whose Spec.BusConfigured is true.
	OpenBus func() (*eventbus.Bus, error)
	// Loops are further ones of the service, by name, in every role.
	Loops map[string]func(ctx context.Context) error
}

// ErrRole: a role that does not exist.
var ErrRole = errors.New("no such role")

// SetRole overrides the configured role; an empty one changes nothing.
func (c *Config) SetRole(role string) error {
	if role == "" {
		return nil
	}
	if !slices.Contains([]string{RoleConsume, RolePoll, RoleAll}, role) {
		return fmt.Errorf("%w: %q; there are consume, poll and all", ErrRole, role)
	}
	c.Role = role
	return nil
}

// Start gives the process the loops of its role: flags, health, poll, subscription.
// Nothing here dials, and each loop waits for the schema. Call it once, with
// everything that the work needs in place.
func (t *Task) Start(ctx context.Context, s Service) error {
	p := s.Process
	schema := newGate(t.spec.DB, slices.Clone(s.Tables))
	p.Ready("schema", schema.ready)
	p.Ready("task", t.Ready)
	p.Go("schema", schema.watch)
	flagBeat := p.Heartbeat("flags", heartbeatLimit)
	p.Go("flags", func(ctx context.Context) error { return t.spec.Flags.Run(ctx, flagBeat) })
	p.Go("flag seen", schema.then(func() {}, func(ctx context.Context) error {
		return t.spec.Flags.Announce(ctx, flags.Self{Flag: t.spec.Name, Instance: t.spec.Instance, Role: t.spec.Config.Role})
	}))
	p.Go("health", schema.then(func() {}, t.RunHealth))
	for name, run := range s.Loops {
		p.Go(name, schema.then(func() {}, run))
	}
	if t.spec.Config.Polls() {
		t.spec.Beat = p.Heartbeat("poll", heartbeatLimit+t.spec.PollEvery)
		p.Go("poll", schema.then(t.spec.Beat, t.RunPoll))
	}
	if t.spec.Config.Consumes() {
		return t.subscribe(ctx, s, schema)
	}
	return nil
}

// subscribe starts the consume side, if there is a bus at all. Without one it has
// nothing to do, and says so.
func (t *Task) subscribe(ctx context.Context, s Service, schema *gate) error {
	p := s.Process
	if !t.spec.BusConfigured {
		zerolog.Ctx(ctx).Warn().Msg(noBus)
		p.Ready("bus", func() (bool, string) { return true, noBus })
		return nil
	}
	bus, err := s.OpenBus()
	if err != nil {
		return err
	}
	p.OnStop("event bus", bus.Close)
	beat := p.Heartbeat("subscription", heartbeatLimit)
	sub := eventbus.Subscription{
		Topic: eventbus.Topic(t.spec.Country), Group: eventbus.Group(t.spec.Country, s.Group), Tags: []string{string(s.Event)}, Beat: beat,
	}
	look := func() eventbus.State { return bus.State(sub.Group) }
	t.busState.Store(&look)
	p.Ready("bus", func() (bool, string) {
		state := bus.State(sub.Group)
		ok, reason := state.Ready()
		// With the flag off, or a poll in this process, the work is done all the same.
		inLesserWay := !state.Halted && (!t.spec.Flags.Get(t.spec.Name).Enabled || t.spec.Config.Polls())
		return ok || inLesserWay, reason
	})
	p.Go("subscription", schema.then(beat, func(ctx context.Context) error { return bus.Subscribe(ctx, sub, t.Handler()) }))
	return nil
}
