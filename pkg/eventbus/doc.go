// Package eventbus is how services publish and consume events, on whatever broker the
// deployment has. This comment is the contract; package eventbustest holds a scenario
// for each sentence of it, which every driver passes.
//
// # What is promised
//
// At least once. An event whose publish was Confirmed is delivered to every consumer
// group that wants its tag, again and again until a handler ends it, as long as the
// broker keeps it. A group that is created later starts at the oldest event that is
// still there. The same event may come more than once, also at the same time on two
// members: after a crash, after a lost answer, after a lease ran out. Handlers are
// idempotent, and recognise an event by its key, which is the event_id; the broker's
// own id may change.
//
// Every group gets every event, the members of a group share them. A group names the
// same tags on every member. Events with other tags are finished for the group without
// a handler and are no backlog.
//
// # What is not promised
//
// Order: a retried event comes after later ones, and members work side by side. Nor is
// there a transaction across publish and database; that is the outbox's business.
//
// # Publishing
//
// PublishBatch answers for each message. Confirmed: stored. Refused: can never be
// published, and the broker was not asked. Failed: this message failed, the broker
// answers. Throttled: slower. Unavailable: no answer by the deadline, or the broker
// cannot take anything; the message may or may not be stored. The bus repeats nothing:
// the relay does, by these statuses.
//
// # Outcomes
//
//	Done     the effect is in place. Acknowledged.
//	Skip     there is nothing to do. Acknowledged, counted apart.
//	Retry    another attempt after a wait that doubles from MinRetry to MaxRetry, with
//	         jitter of up to half; RetryAfter sets the least wait. Other events pass.
//	Dead     no attempt can succeed: dead letter, then acknowledged.
//	Halt     the subscription stops; the event stays as if it had not been delivered.
//
// The zero Outcome is Retry. A panic is Retry, with an error that names the panic's
// type and never its text. A handler that misses its deadline is Retry; one that does
// not return HandlerGrace after it, or up to a second later, is abandoned: others
// are handled in its place, what it returns one day is ignored, and the metric
// seahub_consumer_hung_handlers counts it. When too many hang, nothing more is started.
//
// # Attempts and dead letters
//
// Delivery.Attempt counts handler runs of the group. A run that fails spends an
// attempt. An event that is given back unstarted, or whose run is cut short by a stop,
// has spent none. A member that dies leaves a delivery without an outcome; a driver
// may forgive a few of those and counts the others, so that an event which kills its
// process does not do so for ever.
//
// When attempt MaxAttempts fails the event becomes a dead letter right away. Dead
// letters go to the DeadLetters store (mq_dead_letter), before the acknowledgement; if
// the store fails the event stays with the broker and storing is tried again later,
// without another run of the handler. A letter may be stored twice, never not at all.
// The broker's own dead-letter queue is not used.
//
// # Deadlines and stop
//
// Each run gets a context that ends after HandlerTimeout, or when another member has
// taken the event over (a lost lease), or when the drain is over. When Subscribe's
// context ends, fetching stops at once, events that no handler has started go back at
// once, and running handlers have DrainTimeout to finish; then their context ends.
// Subscribe returns after the last. A member that dies is noticed by its silence, and
// its events go to siblings.
//
// # A broker that is away
//
// Nothing fails at start because a broker is away. Subscribe waits with back-off, State
// and the metrics tell, publishing answers Unavailable by its deadline. A topic or
// group that vanished is made again from its start. What the broker lost with it is
// published again from the outbox by a person; settings of the broker by which it can
// lose events are in Bus.Warnings and, with Ready, in the readiness answer.
//
// # Events of another deployment
//
// A header country or env that is not this deployment's proves that a producer or this
// consumer talks to the wrong broker. The subscription halts: State is not ready,
// seahub_consumer_halted is 1, nothing is acknowledged and nothing is dead-lettered.
//
// # Backlog and age
//
// Backlog is what a group has still to finish: unread, in flight and parked for a
// retry, events with unwanted tags included until they are read. OldestAge is the age
// of the oldest of them since it was stored, 0 when there is none. Each figure may be
// unknown, when the broker does not answer or cannot tell; unknown is not zero, and an
// unknown figure has no metric.
package eventbus
