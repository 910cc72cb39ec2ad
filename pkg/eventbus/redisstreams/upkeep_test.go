package redisstreams_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/eventbus/redisstreams"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// The stream is trimmed behind the slowest group, never into it.
func TestTrimStopsAtTheSlowestGroup(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	cfg := quick(r.server.Addr)
	cfg.Retention, cfg.TrimEvery = time.Millisecond, 300*time.Millisecond
	reg := prometheus.NewRegistry()
	d := r.driver(t, cfg, reg)
	c := r.server.Client(t)
	if err := d.Ensure(t.Context(), r.topic(), []string{group, "GID_id_slow"}); err != nil {
		t.Fatal(err)
	}
	r.publish(t, d, 1000, "A")
	r.start(t, d, driver.Subscription{}, ack)
	testenv.Eventually(t, patience, "the quick group is done", func() bool { s := r.state(t, d); return s.Backlog.Known && s.Backlog.N == 0 })
	time.Sleep(2 * time.Second)
	if n := c.XLen(t.Context(), r.stream()).Val(); n != 1000 {
		t.Fatalf("%d of 1000 messages are left, the slow group has read none", n)
	}
	if err := c.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "GID_id_slow", Consumer: "x", Streams: []string{r.stream(), ">"}, Count: 700, Block: -1, NoAck: true}).Err(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, patience, "what both have finished is trimmed", func() bool { return c.XLen(t.Context(), r.stream()).Val() < 450 })
	if n := c.XLen(t.Context(), r.stream()).Val(); n < 300 {
		t.Errorf("%d messages are left, the slow group has 300 to read", n)
	}
	if metric(t, reg, "seahub_redis_trimmed_total") == 0 {
		t.Error("trimming is not counted")
	}
}

// The memory fuse cuts whatever is unread, and its alert metric says so; backlog does
// not go on counting what is gone.
func TestMemoryFuseCutsAndTells(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	cfg := quick(r.server.Addr)
	cfg.MaxLen, cfg.TrimEvery = 1000, 300*time.Millisecond
	reg := prometheus.NewRegistry()
	d := r.driver(t, cfg, reg)
	c := r.server.Client(t)
	if err := d.Ensure(t.Context(), r.topic(), []string{"GID_id_never"}); err != nil {
		t.Fatal(err)
	}
	r.publish(t, d, 3000, "A")
	r.start(t, d, driver.Subscription{}, ack)
	testenv.Eventually(t, patience, "the stream is cut", func() bool { return c.XLen(t.Context(), r.stream()).Val() < 1200 })
	testenv.Eventually(t, patience, "the cut is counted", func() bool { return metric(t, reg, "seahub_redis_trimmed_total") >= 1800 })
	testenv.Eventually(t, patience, "backlog is zero in the end", func() bool { s := r.state(t, d); return s.Backlog.Known && s.Backlog.N == 0 })
}

// A group that falls behind while Redis does not know its lag must not be silent, nor
// be taken for one that has nothing to do.
func TestBacklogThatRedisDoesNotKnowIsCounted(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	d := r.driver(t, quick(r.server.Addr))
	c := r.server.Client(t)
	if _, err := d.Group(t.Context(), r.topic(), group); !errors.Is(err, redisstreams.ErrNoGroup) {
		t.Errorf("a group that is not there: %v", err)
	}
	r.publish(t, d, 5, "A")
	ids, err := c.XRange(t.Context(), r.stream(), "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	// A group in the middle of the stream: Redis cannot count from there.
	if err := c.XGroupCreate(t.Context(), r.stream(), group, ids[1].ID).Err(); err != nil {
		t.Fatal(err)
	}
	s := r.state(t, d)
	if s.Backlog != driver.KnownCount(3) {
		t.Errorf("backlog is %+v", s.Backlog)
	}
	r.publish(t, d, 2000, "A")
	if b := r.state(t, d).Backlog; !b.Known || b.N < 1000 {
		t.Errorf("of 2003 messages are told %+v", b)
	}
	if !s.OldestAge.Known || !s.InFlight.Known {
		t.Errorf("what is known is not told: %+v", s)
	}
}

// Members of one group with different tags acknowledge what their siblings want: that
// shows.
func TestMembersWithDifferentTagsShow(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	reg := prometheus.NewRegistry()
	d1, d2 := r.driver(t, quick(r.server.Addr), reg), r.driver(t, quick(r.server.Addr))
	r.start(t, d1, driver.Subscription{Tags: []string{"A", "B"}}, ack)
	stop := r.start(t, d2, driver.Subscription{Tags: []string{"B"}}, ack)
	testenv.Eventually(t, patience, "the gauge is 1", func() bool { return metric(t, reg, "seahub_redis_group_mixed_tags") == 1 })
	stop()
	testenv.Eventually(t, patience, "the gauge is 0 again", func() bool { return metric(t, reg, "seahub_redis_group_mixed_tags") == 0 })
}

// Unwanted tags cost an acknowledgement and leave nothing behind.
func TestManyUnmatchedLeaveNoBacklog(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	reg := prometheus.NewRegistry()
	d := r.driver(t, quick(r.server.Addr), reg)
	thousands := testenv.Scale(20, 200)
	for range thousands {
		r.publish(t, d, 1000, "UNWANTED")
	}
	r.start(t, d, driver.Subscription{Tags: []string{"A"}}, func(context.Context, driver.Delivery) driver.Outcome {
		t.Error("the handler saw an unwanted message")
		return driver.Outcome{Verdict: driver.Done}
	})
	testenv.Eventually(t, 4*patience, "backlog is zero", func() bool {
		s, err := d.Group(t.Context(), r.topic(), group)
		return err == nil && s.Backlog.Known && s.Backlog.N == 0 && s.OldestAge.D == 0
	})
	testenv.Eventually(t, patience, "they are counted", func() bool { return metric(t, reg, "seahub_redis_unmatched_total") == float64(1000*thousands) })
}

// A subscription that can never be right is an error, not an endless loop.
func TestImpossibleTopicIsAnError(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	d := r.driver(t, quick(r.server.Addr))
	err := d.Run(t.Context(), driver.Subscription{Topic: "beex-my-events", Group: group}, ack)
	if !errors.Is(err, driver.ErrHalted) {
		t.Errorf("Run returned %v", err)
	}
	if err := d.Ensure(t.Context(), "beex-my-events", []string{group}); err == nil {
		t.Error("the topic of another country was made")
	}
}
