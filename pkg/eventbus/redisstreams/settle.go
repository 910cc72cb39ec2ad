package redisstreams

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// settlement is an outcome on its way to the server: acknowledge, or park with this
// counter for this long.
type settlement struct {
	fl    *flight
	ack   bool
	count int64
	wait  time.Duration
}

// maxSettle bounds one round of settlements.
const maxSettle = 512

// gather is how long an outcome waits for others: one command tells the server of all.
const gather = time.Millisecond

// outcomes is the queue of settlements. Putting never blocks: while the server does not
// answer, workers and the fetch loop must go on to notice it and to stop. Its length
// is bounded by how much fetch takes into hand.
type outcomes struct {
	mu     sync.Mutex
	ready  sync.Cond
	items  []settlement
	spare  []settlement // what was taken before, to be used again
	closed bool
}

func newOutcomes() *outcomes {
	o := &outcomes{}
	o.ready.L = &o.mu
	return o
}

func (o *outcomes) put(s settlement) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.items = append(o.items, s)
	o.ready.Signal()
}

// close lets take return what is left and then nothing.
func (o *outcomes) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.ready.Signal()
}

// take waits for settlements and returns them, until the next call; none after close.
func (o *outcomes) take() []settlement {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.items) == 0 && !o.closed {
		o.ready.Wait()
	}
	if len(o.items) < maxSettle && !o.closed {
		o.mu.Unlock()
		time.Sleep(gather)
		o.mu.Lock()
	}
	batch := o.items
	clear(o.spare) // flights must not live on in it
	o.items, o.spare = o.spare[:0], batch
	return batch
}

// settle tells the server what became of the messages, as many at once as have come
// together while the last round was under way. It ends when the queue is closed and
// everything is told, or when ctx ends; what is untold then is redelivered.
func (m *member) settle(ctx context.Context) {
	again := backoff.Policy{Base: 50 * time.Millisecond, Max: time.Second}
	for all := m.outcomes.take(); len(all) > 0; all = m.outcomes.take() {
		for batch := range slices.Chunk(all, maxSettle) {
			for failures := 1; !m.tell(ctx, batch); failures++ {
				if !backoff.Sleep(ctx, again.Delay(failures)) {
					return
				}
			}
		}
	}
}

// tell runs one round; false means try again.
func (m *member) tell(ctx context.Context, batch []settlement) bool {
	if !m.verify(ctx, batch) {
		return false
	}
	acks, parks := m.flights.sort(batch)
	acked := m.tellAcks(ctx, acks)
	parked := m.tellParks(ctx, parks)
	return acked && parked
}

func (m *member) tellAcks(ctx context.Context, acks []settlement) bool {
	if len(acks) == 0 {
		return true
	}
	ids := make([]string, len(acks))
	for i, s := range acks {
		ids[i] = s.fl.id
	}
	if err := m.d.cmd.XAck(ctx, m.keys.stream, m.sub.Group, ids...).Err(); err != nil {
		m.failed("ack", err)
		return false
	}
	m.flights.drop(acks)
	return true
}

func (m *member) tellParks(ctx context.Context, parks []settlement) bool {
	if len(parks) == 0 {
		return true
	}
	items := make([]parking, len(parks))
	for i, s := range parks {
		items[i] = parking{s.fl.id, s.count, s.wait}
	}
	err := m.park(ctx, items)
	if err != nil && !missingGroup(err) {
		m.failed("park", err)
		return false
	}
	// Without the group there is nothing to park: it is made again at the start of
	// the stream and hands everything out anew.
	m.flights.drop(parks)
	return true
}

// verify asks for the ownership of messages whose lease may have run out while this
// process was frozen or cut off: XACK would acknowledge for whoever has them now.
func (m *member) verify(ctx context.Context, batch []settlement) bool {
	stale := m.flights.stale(batch, time.Now().Add(-m.d.cfg.Lease*2/3))
	return m.renew(ctx, stale) == nil
}

// parking is one message to park.
type parking struct {
	id    string
	count int64
	wait  time.Duration
}

// park puts messages that this member owns on the group's schedule.
func (m *member) park(ctx context.Context, items []parking) error {
	for chunk := range slices.Chunk(items, maxSettle) {
		args := make([]any, 0, 3+3*len(chunk))
		args = append(args, m.sub.Group, m.name, parkingName)
		for _, p := range chunk {
			args = append(args, p.id, p.count, p.wait.Milliseconds())
		}
		err := m.d.scripts.park.Run(ctx, m.d.cmd, []string{m.keys.stream, m.keys.due(m.sub.Group)}, args...).Err()
		if err != nil && err != redis.Nil {
			return err
		}
	}
	select {
	case m.due <- struct{}{}:
	default:
	}
	return nil
}
