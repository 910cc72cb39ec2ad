package rocketmq

import "time"

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
		if !waits(idle, hangTimeout) {
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

// settle gives the client the time to do with the last results what they say.
func (m *member) settle() {
	time.Sleep(settleTime)
	if since := time.Since(time.Unix(0, m.lastRetry.Load())); since < sendBackTime {
		time.Sleep(min(maxSettleExtra, sendBackTime-since))
	}
}
