// Package task moves one polled task to events. It joins what the four consumers have
// in common: the flag, the event handler, the old poll, the health rows and the
// fallback; what the work is stays with the service.
//
// # Who works on a row
//
//	       event arrives                      poll tick
//	            │                                 │
//	flag gives the row to events?      flag gives the row to the poll?
//	 no: skip    yes: Work.Handle       yes: Poller.Poll    no: leave it,
//	            │                                 │         unless overdue
//	            └──────── the same effect ────────┘         and in fallback
//
// Package flags says how the two answers relate: for some time after a change both are
// yes for some rows, and never are both no. Where the process cannot know (its view of
// the flags is stale and the database is away) the handler asks for a retry and the
// poll does not run: both need the database for the work itself.
//
// The poll never depends on a broker. Without a configured bus it runs as if the flag
// were off.
//
// # Fallback
//
// With the flag on the poll is the safety net. It watches at its own cadence, and trips
// when rows that only the event path is to handle are overdue by OverdueBy, or when an
// instance failed FailureLimit times in a row and no instance succeeded meanwhile.
// Failures of a system outside (Outcome.Outside) do not count, and neither do rows
// that were rescheduled into the future: the push provider being down is nothing that
// a poll could mend.
//
// While the fallback holds the poll works on overdue rows, at its old cadence. It ends
// after a few calm looks in a row and a success of the event path, or without the
// latter when nothing was overdue for twice OverdueBy. The state is one row of
// mq_task_health that all poll processes share: each activation is one change of that
// row, one increment of the metric and one line in the log, by whoever changed it.
package task

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/flags"
)

// Roles say which side of the task a process runs.
const (
	RoleConsume = "consume"
	RolePoll    = "poll"
	RoleAll     = "all"
)

// Config is what all tasks have in common.
type Config struct {
	Role         string `env:"SEAHUB_TASK_ROLE" envDefault:"all" key:"seahub.task.role" oneof:"consume,poll,all" help:"which side of the task this process runs; production runs the poll in processes of its own"`
	FailureLimit int64  `env:"SEAHUB_TASK_FAILURE_LIMIT" envDefault:"5" key:"seahub.task.failure-limit" min:"1" max:"1000" help:"failures in a row of one instance, without a success of any, that start the fallback"`
}

// Consumes and Polls say which sides the role includes.
func (c Config) Consumes() bool { return c.Role != RolePoll }

// Polls says whether the role includes the poll.
func (c Config) Polls() bool { return c.Role != RoleConsume }

// Work is what an event asks for.
type Work interface {
	// RowID takes out of an event the id that the rollout goes by. An error means
	// that no attempt will ever read it.
	RowID(d eventbus.Delivery) (string, error)
	// Handle has the same effect as the poll has on that row.
	Handle(ctx context.Context, rowID string, d eventbus.Delivery) eventbus.Outcome
}

// Poller is the old poll.
type Poller interface {
	// Poll works once through the rows that are due and in scope.
	Poll(ctx context.Context, s Scope) (Result, error)
	// Overdue counts rows that have been due for longer than by, on the database's
	// clock, and that owned accepts. A row that was rescheduled counts from its new
	// due time, one that is being worked on from the end of its lease.
	Overdue(ctx context.Context, by time.Duration, owned func(id string, createdAt time.Time) bool) (Overdue, error)
}

// Scope says which rows a pass is about.
type Scope struct {
	// Owns is asked for each row, just before the work on it.
	Owns func(id string, createdAt time.Time) bool
	// OverdueBy restricts the pass to rows that have been due for longer; 0 does not.
	OverdueBy time.Duration
	// Fallback says that the pass steps in for the event path.
	Fallback bool
	// Beat tells the process's liveness check that a long pass goes on.
	Beat func()
}

// Result is what a pass did.
type Result struct {
	// Rows is on how many rows the pass worked.
	Rows int
}

// Overdue is what the event path left undone. Rows may be a lower bound.
type Overdue struct {
	Rows   int64
	Oldest time.Duration
}

// Spec describes a task to New.
type Spec struct {
	Name    flags.Name
	Country string
	// Instance tells this process from all others, also from its own predecessors.
	Instance string
	Config   Config
	DB       *sql.DB
	Flags    *flags.Flags
	// BusConfigured says whether a broker is configured at all. A poll process needs
	// to know it although it never connects to one.
	BusConfigured bool
	Work          Work
	Poller        Poller
	// PollEvery is the pause between two passes, OverdueBy the bound of the fallback.
	PollEvery time.Duration
	OverdueBy time.Duration
	// Beat, when not nil, is called while the poll loop is alive.
	Beat       func()
	Registerer prometheus.Registerer
}

// Task is one task in one process. Its methods are safe for concurrent use.
type Task struct {
	spec    Spec
	store   *healthStore
	health  *recorder
	metrics *metrics

	fallback  atomic.Pointer[string] // the reason while it holds, as last seen
	toldNoBus atomic.Bool
	// busState asks the subscription, once there is one.
	busState atomic.Pointer[func() eventbus.State]
}

// ErrSpec: the task is wired wrongly.
var ErrSpec = errors.New("task is not usable as specified")

// New checks the specification and registers metrics; it starts nothing.
func New(spec Spec) (*Task, error) {
	var errs []error
	need := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	need(spec.DB != nil, "DB is missing")
	need(spec.Flags != nil, "Flags is missing")
	need(spec.Work != nil || !spec.Config.Consumes(), "Work is missing")
	need(spec.Poller != nil || !spec.Config.Polls(), "Poller is missing")
	need(spec.Instance != "" && len(spec.Instance) <= 128, "Instance is empty or longer than 128 bytes")
	need(spec.PollEvery > 0, "PollEvery is not positive")
	need(spec.OverdueBy > 0, "OverdueBy is not positive")
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrSpec, spec.Name, err)
	}
	if spec.Beat == nil {
		spec.Beat = func() {}
	}
	m, err := newMetrics(spec.Registerer, spec.Name)
	if err != nil {
		return nil, err
	}
	store := &healthStore{
		db: spec.DB, task: string(spec.Name), country: spec.Country, instance: spec.Instance, role: spec.Config.Role,
	}
	return &Task{spec: spec, store: store, health: &recorder{}, metrics: m}, nil
}

// EventOwns says whether the event path works on the row now. Whoever reschedules a
// row outside the event path then writes a delayed event with the new due time: the
// poll may have left the row for good.
func (t *Task) EventOwns(rowID string) bool {
	if !t.spec.BusConfigured {
		return false
	}
	state := t.spec.Flags.Get(t.spec.Name)
	return state.Stale() || state.EventOwns(rowID)
}

// pollOwns is EventOwns for the poll; in doubt both are true.
func (t *Task) pollOwns(rowID string, createdAt time.Time) bool {
	if !t.spec.BusConfigured {
		return true
	}
	state := t.spec.Flags.Get(t.spec.Name)
	return state.Stale() || state.PollOwns(rowID, createdAt)
}

// eventOnly picks the rows that the poll has left to the event path.
func (t *Task) eventOnly(rowID string, createdAt time.Time) bool {
	return !t.pollOwns(rowID, createdAt)
}

// Ready is for /readyz: a task that works in a lesser way says how, and stays ready.
// Flags that cannot be read mean that the database is away, and without it neither the
// poll nor the event path does anything.
func (t *Task) Ready() (ok bool, reason string) {
	state := t.spec.Flags.Get(t.spec.Name)
	switch {
	case state.Age() > flags.MaxAge:
		return false, fmt.Sprintf("the database has not answered for %s: neither the poll nor the event path can work", state.Age().Round(time.Second))
	case state.Enabled && !t.spec.BusConfigured:
		return true, "flag is on but no event bus is configured: the poll runs as if it were off"
	case t.fallback.Load() != nil:
		return true, "fallback: the poll works on overdue rows: " + *t.fallback.Load()
	}
	return true, ""
}
