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
	cfg.Block = 5 * time.Second
	d := r.driver(t, cfg)
	busy, end := make(chan struct{}), make(chan struct{})
	stop := r.start(t, d, driver.Subscription{Concurrency: 1}, func(_ context.Context, d driver.Delivery) driver.Outcome {
		if d.Attempt == 2 {
			close(busy)
			<-end
			return driver.Outcome{Verdict: driver.Done}
		}
		return driver.Outcome{Verdict: driver.Retry, After: 100 * time.Millisecond}
	})
	// While the read waits for a new message the retry takes the only worker.
	r.publish(t, d, 1, "A")
	<-busy
	r.publish(t, d, 1, "B")
	testenv.Eventually(t, patience, "the new message was taken into hand", func() bool { return r.state(t, d).InFlight.N == 2 })
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
		if d.Tag != "B" || d.Attempt != 1 {
			t.Errorf("got %s at attempt %d, want B at its first", d.Tag, d.Attempt)
		}
	case <-time.After(patience):
		t.Error("what no worker had started did not come back with the stop")
	}
	close(end)
	<-stopped
}
