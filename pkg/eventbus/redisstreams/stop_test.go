package redisstreams_test

import (
	"context"
	"testing"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// A message that a member has taken but no worker has started goes back with the
// stop, not with the lease.
func TestStopGivesBackWhatWaitsForAWorker(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	cfg := quick(r.server.Addr)
	cfg.Lease = time.Minute // nothing here may come back by the lease
	d := r.driver(t, cfg)
	busy, end := make(chan struct{}), make(chan struct{})
	stop := r.start(t, d, driver.Subscription{Concurrency: 1}, func(_ context.Context, d driver.Delivery) driver.Outcome {
		if d.Tag == "B" {
			close(busy)
			<-end
			return driver.Outcome{Verdict: driver.Done}
		}
		return driver.Outcome{Verdict: driver.Retry, After: 300 * time.Millisecond}
	})
	r.publish(t, d, 1, "A")
	testenv.Eventually(t, patience, "the first waits for its retry", func() bool { return r.state(t, d).Parked.N == 1 })
	r.publish(t, d, 1, "B")
	<-busy // the only worker is taken
	testenv.Eventually(t, patience, "the retry is due and was taken into hand", func() bool { return r.state(t, d).InFlight.N == 2 })
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	got := make(chan driver.Delivery, 2)
	r.start(t, r.driver(t, cfg), driver.Subscription{}, func(_ context.Context, d driver.Delivery) driver.Outcome {
		got <- d
		return driver.Outcome{Verdict: driver.Done}
	})
	select {
	case d := <-got:
		if d.Tag != "A" || d.Attempt != 2 {
			t.Errorf("got %s at attempt %d, want A at its second", d.Tag, d.Attempt)
		}
	case <-time.After(patience):
		t.Error("what no worker had started did not come back with the stop")
	}
	close(end)
	<-stopped
}
