package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/eventbus/redisstreams"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// consume subscribes with a handler whose effect is a row that only its first run
// makes, until the returned function is called.
func (r *rig) consume(t *testing.T) (stop func()) {
	t.Helper()
	env := strings.TrimPrefix(r.env[1], "SEAHUB_ENV=")
	bus, err := provider.Open(provider.Config{
		Provider: provider.RedisStreams,
		Redis: redisstreams.Config{
			Addresses: []string{r.redis.Addr}, Mode: "single", Block: time.Second, Lease: 2 * time.Second,
			DialTimeout: time.Second, Timeout: time.Second, Retention: time.Hour, MaxLen: 1_000_000, TrimEvery: time.Minute,
		},
	}, env, "id", zerolog.Nop(), eventbus.WithDeadLetters(outbox.NewDeadLetterStore(r.DB)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- bus.Subscribe(ctx, eventbus.Subscription{
			Topic: eventbus.Topic("id"), Group: eventbus.Group("id", "push_dispatch"), Tags: []string{string(event.PushDispatch)},
		}, eventbus.HandlerFunc(func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
			if _, err := r.DB.ExecContext(ctx, "INSERT INTO runs (event_id) VALUES (?)", d.Key); err != nil {
				return eventbus.Retry(err)
			}
			if _, err := r.DB.ExecContext(ctx, "INSERT IGNORE INTO effects (event_id, at) VALUES (?, NOW(6))", d.Key); err != nil {
				return eventbus.Retry(err)
			}
			return eventbus.Done()
		}))
	}()
	return func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, bus.Close(context.Background()))
	}
}

// A failover or a restart may lose events that are PUBLISHED already. Publishing the
// time in question again brings them all, and changes nothing for those that had
// arrived.
func TestRequeueOfATimeRepairsWhatTheBrokerLost(t *testing.T) {
	r := newRig(t)
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	r.Exec(t, "CREATE TABLE effects (event_id VARCHAR(64) PRIMARY KEY, at DATETIME(6) NOT NULL)")
	r.Exec(t, "CREATE TABLE runs (id BIGINT AUTO_INCREMENT PRIMARY KEY, event_id VARCHAR(64) NOT NULL)")
	ids := func(from, n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint(from+i))
		}
		return out
	}
	published := func(n int64) {
		t.Helper()
		testenv.Eventually(t, soon, "all are published", func() bool {
			return r.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'PUBLISHED'") == n
		})
	}
	effects := func() int64 { return r.QueryInt(t, "SELECT COUNT(*) FROM effects") }
	begin := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	relay := r.run(t)
	stop := r.consume(t)
	r.append(t, ids(0, 40)...)
	testenv.Eventually(t, soon, "the first are in effect", func() bool { return effects() == 40 })
	stop()
	before := r.QueryInt(t, "SELECT CAST(SUM(CRC32(CONCAT(event_id, at))) AS SIGNED) FROM effects")

	r.append(t, ids(40, 40)...)
	published(80)
	stream := "beex:" + strings.TrimPrefix(r.env[1], "SEAHUB_ENV=") + ":events"
	require.NoError(t, r.redis.Client(t).Del(t.Context(), stream).Err()) // what a failover may do
	stop = r.consume(t)
	r.append(t, "last")
	testenv.Eventually(t, soon, "the path works again", func() bool { return effects() == 41 })

	end := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
	out, code := r.command(t, "requeue", "--status", "PUBLISHED", "--from", begin, "--to", end, "--dry-run")
	require.Zero(t, code)
	require.Contains(t, out, "81 events")
	require.EqualValues(t, 41, effects())
	_, code = r.command(t, "requeue", "--status", "PUBLISHED", "--from", begin, "--to", end, "--rate", "500", "--reason", "redis lost its stream")
	require.Zero(t, code)
	testenv.Eventually(t, soon, "what was lost is in effect", func() bool { return effects() == 81 })
	published(81)
	testenv.Eventually(t, soon, "the others came again", func() bool {
		return r.QueryInt(t, "SELECT COUNT(*) FROM (SELECT event_id FROM runs GROUP BY event_id HAVING COUNT(*) > 1) twice") == 41
	})
	require.Equal(t, before, r.QueryInt(t, "SELECT CAST(SUM(CRC32(CONCAT(event_id, at))) AS SIGNED) FROM effects WHERE event_id IN (SELECT event_id FROM (SELECT event_id FROM runs GROUP BY event_id HAVING COUNT(*) > 1) twice) AND event_id <> 'push:last'"),
		"a repetition changed an effect")
	require.Zero(t, r.QueryInt(t, "SELECT COUNT(*) FROM mq_dead_letter"))
	stop()
	require.NoError(t, relay.Stop(t.Context()))
}

// A relay whose Redis may evict streams publishes nothing, spends no attempt, and says
// why; with the setting repaired it goes on.
func TestNothingIsPublishedWhereItMayBeEvicted(t *testing.T) {
	r := newRig(t)
	private := testenv.PrivateRedis(t, testenv.Options{Args: []string{"--maxmemory-policy", "allkeys-lru"}})
	r.env = append(r.env, "SEAHUB_REDIS_ADDRESSES="+private.Addr)
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	r.append(t, "1", "2")
	relay := r.run(t)
	testenv.Eventually(t, soon, "the relay says why", func() bool { return strings.Contains(relay.LogTail(), "maxmemory-policy") })
	require.EqualValues(t, 2, r.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'PENDING' AND retry_count = 0"))
	out, code := r.command(t, "bus")
	require.Zero(t, code)
	require.Contains(t, out, "warning: nothing is published", "relay bus says it too")
	require.NoError(t, private.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	testenv.Eventually(t, soon, "both are published", func() bool {
		return r.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'PUBLISHED'") == 2
	})
	require.NoError(t, relay.Stop(t.Context()))
}
