package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/rmqfake"
)

// What a real broker does not do on command, met by the shipped relay: it must neither
// take an event for published that is not, nor give one up, nor stand still itself.

// relayOnFake starts a relay whose name server is at addr.
func (w *world) relayOnFake(instance, addr string) *stack.Service {
	w.t.Helper()
	return w.service("relay", instance, map[string]string{
		"SEAHUB_MQ_PROVIDER": "rocketmq", "SEAHUB_ROCKETMQ_NAME_SERVERS": addr,
		"SEAHUB_ROCKETMQ_SEND_TIMEOUT": "1s", "SEAHUB_ROCKETMQ_CALL_TIMEOUT": "1s",
	})
}

func startFake(t *testing.T) *rmqfake.Server {
	t.Helper()
	fake, err := rmqfake.Start(rmqfake.Options{Topics: map[string]int{eventbus.Topic("id"): 4}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	return fake
}

const relayLease = "name = 'outbox-relay:0'"

// awaitLease waits until a relay holds the lease and returns its fence.
func (w *world) awaitLease() int {
	w.t.Helper()
	testenv.Eventually(w.t, soon, "the relay has the lease", func() bool {
		return w.count("SELECT COUNT(*) FROM mq_lease WHERE "+relayLease+" AND locked_until > NOW(3)") == 1
	})
	return w.count("SELECT fence FROM mq_lease WHERE " + relayLease)
}

// calmFor watches for a while that the relay keeps its lease and answers its probe.
func (w *world) calmFor(d time.Duration, relay *stack.Service, fence int) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		require.Equal(w.t, 1, w.count("SELECT COUNT(*) FROM mq_lease WHERE "+relayLease+" AND locked_until > NOW(3) AND fence = ?", fence), "the lease was lost")
		status, body, err := relay.Get(w.t.Context(), "/livez")
		require.NoError(w.t, err)
		require.Equal(w.t, 200, status, body)
	}
}

func (w *world) eventsWith(status string) int {
	w.t.Helper()
	return w.count("SELECT COUNT(*) FROM outbox_event WHERE status = ?", status)
}

func (w *world) noneGivenUp() {
	w.t.Helper()
	require.Zero(w.t, w.count("SELECT COUNT(*) FROM outbox_event WHERE status = 'FAILED' OR retry_count > 0"))
}

// allStored demands every committed push in the fake's log.
func (w *world) allStored(fake *rmqfake.Server) {
	w.t.Helper()
	stored := map[string]bool{}
	for _, m := range fake.Messages(eventbus.Topic("id")) {
		_, rest, _ := strings.Cut(m.Properties, "KEYS\x01")
		key, _, _ := strings.Cut(rest, "\x02")
		key, _, _ = strings.Cut(key, " ")
		stored[key] = true
	}
	for _, id := range w.all() {
		require.Contains(w.t, stored, "push:"+id)
	}
}

func TestABrokerThatMisbehavesCostsTheRelayNothingButTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fake := startFake(t)
	relay := w.relayOnFake("relay-1", fake.Addr())
	fence := w.awaitLease()
	w.pushes(5)
	w.published(soon)
	for _, storm := range []struct {
		name      string
		behaviour rmqfake.Behaviour
	}{
		{"flow control", rmqfake.FlowControl},
		{"busy", rmqfake.Busy},
		{"the disk has not confirmed", rmqfake.Stored(rmqfake.CodeFlushDisk)},
		{"the replica has not confirmed", rmqfake.Stored(rmqfake.CodeFlushSlave)},
		{"there is no replica", rmqfake.Stored(rmqfake.CodeNoSlave)},
		{"silent", rmqfake.Behaviour{Silent: true}},
		{"silent, but it stores", rmqfake.Behaviour{Silent: true, Carried: true}},
		{"it drops connections", rmqfake.Behaviour{Drop: true}},
		{"flow control for some", rmqfake.Behaviour{Code: rmqfake.CodeFlowControl, Times: 7}},
	} {
		done, tried := w.eventsWith("PUBLISHED"), fake.Seen(rmqfake.Send)
		fake.Behave(rmqfake.Send, storm.behaviour)
		w.pushes(20)
		testenv.Eventually(t, soon, storm.name+": the relay meets it", func() bool { return fake.Seen(rmqfake.Send) > tried })
		w.calmFor(2*time.Second, relay, fence)
		if storm.behaviour.Times == 0 {
			require.Equal(t, done, w.eventsWith("PUBLISHED"), "%s: none is confirmed", storm.name)
		}
		w.noneGivenUp()
		fake.Behave(rmqfake.Send, rmqfake.Behaviour{})
		w.published(3 * soon)
		w.noneGivenUp()
	}
	w.allStored(fake)
	require.Equal(t, fence, w.count("SELECT fence FROM mq_lease WHERE "+relayLease))
}

// A relay that starts into it, and is stopped in the middle of it.
func TestNothingThatIsSilentHoldsAStopUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fake := startFake(t)
	hole, fill, err := rmqfake.BlackHole()
	require.NoError(t, err)
	t.Cleanup(fill)
	for _, silence := range []struct {
		name       string
		nameServer string
		begin, end func()
	}{
		{"a silent broker", fake.Addr(),
			func() { fake.Behave(rmqfake.Send, rmqfake.Behaviour{Silent: true}) },
			func() { fake.Behave(rmqfake.Send, rmqfake.Behaviour{}) }},
		{"a silent name server", fake.Addr(),
			func() { fake.Behave(rmqfake.Route, rmqfake.Behaviour{Silent: true}) },
			func() { fake.Behave(rmqfake.Route, rmqfake.Behaviour{}) }},
		{"no way to the broker", fake.Addr(), func() { fake.Advertise(hole) }, func() { fake.Advertise(fake.BrokerAddr()) }},
		{"no way to the name server", hole, func() {}, func() {}},
	} {
		silence.begin()
		done := w.eventsWith("PUBLISHED")
		w.pushes(20)
		relay := w.relayOnFake("stopped", silence.nameServer)
		w.calmFor(3*time.Second, relay, w.awaitLease())
		require.Equal(t, done, w.eventsWith("PUBLISHED"), "%s: none is confirmed", silence.name)
		testenv.Eventually(t, soon, silence.name+": it tells", func() bool {
			status, body, err := relay.Get(t.Context(), "/readyz")
			return err == nil && status != 0 && strings.Contains(body, "publish")
		})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		require.NoError(t, relay.Stop(ctx), silence.name)
		cancel()
		took := time.Since(began)
		t.Logf("%s: stopped in %s", silence.name, took.Round(time.Millisecond))
		require.Less(t, took, 3*5*time.Second, "%s: three times SEAHUB_DRAIN_TIMEOUT", silence.name)
		require.Zero(t, relay.ExitCode(), silence.name)
		require.Zero(t, w.count("SELECT COUNT(*) FROM mq_lease WHERE "+relayLease+" AND locked_until > NOW(3)"), "%s: the lease is free", silence.name)
		w.noneGivenUp()
		silence.end()
	}
	w.relayOnFake("relay-2", fake.Addr())
	w.published(3 * soon)
	w.noneGivenUp()
	w.allStored(fake)
}
