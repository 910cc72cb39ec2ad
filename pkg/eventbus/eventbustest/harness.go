// Package eventbustest is the conformance kit of the event bus: the delivery contract
// of package eventbus as scenarios that every driver passes on a real broker. A
// driver's test is a Harness and one call of Run.
//
// A scenario tells what broke in the words of the contract. It waits for what is
// promised, at most for the Harness's Patience, and asserts no speed.
package eventbustest

import (
	"testing"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus"
)

// Harness is what a driver's test gives to the kit.
type Harness struct {
	// Room makes a room for one scenario: names that nobody else uses. With its own
	// broker it may be stopped and frozen.
	Room func(t testing.TB, ownBroker bool) *Room
	// Patience is how long the kit waits for something promised: longer than a
	// take-over from a dead member and than a reconnect.
	Patience time.Duration
	// Lease is the driver's setting after which a silent member's messages go to
	// another one.
	Lease time.Duration
	// Cannot names scenarios that the broker cannot meet, each with the reason.
	Cannot map[string]string
	// Traits are where the broker differs within the contract.
	Traits Traits
	// Tune, when set, adjusts the bus's configuration in every scenario.
	Tune func(*eventbus.Config)
}

// Traits are what one broker does and another does not; handlers must not rely on
// either. The zero value is the strictest. docs/brokers.md has the table of them.
type Traits struct {
	// OnlyBacklog: the broker tells neither what is in flight nor what waits for a
	// retry; both are unknown.
	OnlyBacklog bool
	// RepeatsOnRebalance: what a member has in hand may be delivered to another one
	// as well when members come or go.
	RepeatsOnRebalance bool
	// KeepsShareUntilDrained: a member that stops holds its unstarted events until its
	// last handler has ended.
	KeepsShareUntilDrained bool
	// GoroutinesPerStart is how many the broker's client leaves asleep behind each
	// subscription that ended.
	GoroutinesPerStart int
}

// Room is one scenario's place on a broker.
type Room struct {
	Env, Country string
	// Open makes a driver as a new process would: connections of its own, by a link
	// that the scenario can break.
	Open func(t testing.TB) (eventbus.Parts, Link)
	// Group, when set, makes a consumer group on a broker where a person does that
	// beforehand; repeating it changes nothing.
	Group func(t testing.TB, group string)
	// Stored counts the messages that the broker has stored on the room's topic.
	Stored func(t testing.TB) int
	// Forget removes the room's topic and groups from the broker, as a restart
	// without data does.
	Forget func(t testing.TB)
	// ForgetGroup removes one group and leaves the topic. Nil: the broker has no groups
	// apart from their topics.
	ForgetGroup func(t testing.TB, group string)
	// Broker is set in a room with its own broker.
	Broker Broker
}

// Link is the way from one driver to its broker. A *Proxy is one.
type Link interface {
	// Drop breaks the connections that exist; new ones work.
	Drop()
	// Cut breaks them and refuses new ones, until Restore.
	Cut()
	// Stall lets connections be made and bytes be sent, and nothing come through,
	// until Restore.
	Stall()
	Restore()
}

// Broker is a broker that a scenario may treat badly.
type Broker interface {
	Stop(t testing.TB)
	Kill(t testing.TB)
	// Start starts it again on the same data.
	Start(t testing.TB)
	// Freeze makes it silent without closing anything; Thaw wakes it.
	Freeze(t testing.TB)
	Thaw(t testing.TB)
}

// Run runs every scenario against the driver.
func Run(t *testing.T, h Harness) {
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			if why, cannot := h.Cannot[sc.name]; cannot {
				t.Skipf("the broker cannot do this: %s", why)
			}
			if !sc.alone {
				t.Parallel()
			}
			sc.run(newScene(t, h, sc.ownBroker))
		})
	}
}

type scenario struct {
	name      string
	ownBroker bool
	run       func(s *scene)
	// alone: it counts what the whole process has.
	alone bool
}

func scenarios() []scenario {
	return []scenario{
		{name: "PublishBeforeFirstSubscriber", run: publishBeforeFirstSubscriber},
		{name: "EveryGroupGetsAllMembersShare", run: everyGroupGetsAll},
		{name: "Tags", run: tags},
		{name: "UnmatchedTagsAreNoLag", run: unmatchedTagsAreNoLag},
		{name: "ContentUnchanged", run: contentUnchanged},
		{name: "ResultPerMessage", run: resultPerMessage},
		{name: "DuplicatePublish", run: duplicatePublish},
		{name: "RetriesGrow", run: retriesGrow},
		{name: "RetryAfter", run: retryAfter},
		{name: "AttemptsExhausted", run: attemptsExhausted},
		{name: "DeadLetterStoreFails", run: deadLetterStoreFails},
		{name: "SkipAndDead", run: skipAndDead},
		{name: "PanicAndPoison", run: panicAndPoison},
		{name: "HungHandler", run: hungHandler},
		{name: "DeadlineReachesHandler", run: deadlineReachesHandler},
		{name: "HandlerLongerThanLease", run: handlerLongerThanLease},
		{name: "PoliteStop", run: politeStop},
		{name: "StopIdleBusyTwice", run: stopIdleBusyTwice},
		{name: "StopWhileUnreachable", run: stopWhileUnreachable},
		{name: "DrainTimeIsOver", run: drainTimeIsOver},
		{name: "MemberDiesSilently", run: memberDiesSilently},
		{name: "MembersComeAndGo", run: membersComeAndGo},
		{name: "StartStopLeaksNothing", run: startStopLeaksNothing, alone: true},
		{name: "ForeignEventHalts", run: foreignEventHalts},
		{name: "OneSubscriptionPerGroup", run: oneSubscriptionPerGroup},
		{name: "Backlog", run: backlog},
		{name: "ConnectionDropped", run: connectionDropped},
		{name: "TopicForgotten", run: topicForgotten},
		{name: "ForgottenInMidLoad", run: forgottenInMidLoad},
		{name: "PublishAfterClose", run: publishAfterClose},
		{name: "PublishUnreachable", run: publishUnreachable},
		{name: "SubscribeBeforeBroker", run: subscribeBeforeBroker},
		{name: "BrokerRestarted", ownBroker: true, run: brokerRestarted},
		{name: "BrokerFrozen", ownBroker: true, run: brokerFrozen},
	}
}
