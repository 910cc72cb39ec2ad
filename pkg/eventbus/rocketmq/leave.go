package rocketmq

import (
	"context"
	"slices"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

// leave ends a member politely: it takes nothing new, lets callbacks finish within the
// drain time, tells the broker what is done, and only then ends the client, whose
// Shutdown waits for nobody and ignores results that come after it.
func (m *member) leave() {
	defer m.forget()
	m.client.Suspend()
	m.mu.Lock()
	m.draining = true
	m.mu.Unlock()
	idle := make(chan struct{})
	go func() { // ends with the last callback
		defer close(idle)
		m.running.Wait()
	}()
	if !waits(idle, m.r.sub.DrainTimeout) {
		m.stopHandling()
		// None is left that may still store a dead letter: with its outcome unheard the
		// event would be delivered, and die, once more.
		if !waits(idle, m.r.sub.HandlerTimeout) {
			m.r.log.Error().Msg("callbacks ignore the end of their context; their events will be redelivered")
		}
	}
	m.settle()
	m.quiet()
	ended := make(chan struct{})
	go func() { // bounded by the client's own timeouts
		defer close(ended)
		if err := m.client.Shutdown(); err != nil {
			m.r.log.Warn().Err(err).Msg("shut the consumer down")
		}
		close(m.gone)
	}()
	if !waits(ended, stopTimeout) {
		m.r.log.Warn().Msg("the consumer could not tell the broker that it leaves; its last events will be redelivered")
	}
}

// settle gives the client the time to do with the last results what they say, and the
// broker the time to hear of it: what Shutdown itself tells it of the offsets is lost,
// often, with the connection that is closed right behind.
func (m *member) settle() {
	time.Sleep(settleTime)
	if since := time.Since(time.Unix(0, m.lastRetry.Load())); since < sendBackTime {
		time.Sleep(min(maxSettleExtra, sendBackTime-since))
	}
	m.persist()
	time.Sleep(settleTime)
	// A broker that is slow to hear of offsets is slow to answer, too.
	if q := m.someQueue(); q != nil {
		ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
		defer cancel()
		_, _ = m.r.d.ask.GroupOffset(ctx, *q, m.r.sub.Group)
	}
}

// persist has the client tell the broker how far it is, one-way: an error says nothing
// that the watch does not.
func (m *member) persist() {
	if store, ok := m.client.(interface{ PersistConsumerOffset() error }); ok {
		_ = store.PersistConsumerOffset()
	}
}

// someQueue is a queue of this member, nil if the watch has found none yet.
func (m *member) someQueue() *remoting.Queue {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, q := range m.queues {
		if slices.Contains(m.shares[q.Topic], queueKey{q.Topic, q.Broker, q.ID}) {
			return &m.queues[i]
		}
	}
	return nil
}
