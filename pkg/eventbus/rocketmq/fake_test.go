package rocketmq_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/rmqfake"
)

const fakeTopic = "beex-id-events"

// fakeRig is a driver on a fake broker.
type fakeRig struct {
	fake    *rmqfake.Server
	driver  *rocketmq.Driver
	metrics *prometheus.Registry
}

func newFakeRig(t *testing.T, change ...func(*rocketmq.Config)) *fakeRig {
	t.Helper()
	namespace := ""
	cfg := rocketmq.Config{SendTimeout: 500 * time.Millisecond, CallTimeout: 500 * time.Millisecond, WatchEvery: 200 * time.Millisecond, SendWorkers: 8}
	for _, c := range change {
		c(&cfg)
	}
	if cfg.Namespace != "" {
		namespace = cfg.Namespace + "%"
	}
	fake, err := rmqfake.Start(rmqfake.Options{Topics: map[string]int{namespace + fakeTopic: 2}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	cfg.NameServers = []string{fake.Addr()}
	r := &fakeRig{fake: fake, metrics: prometheus.NewRegistry()}
	r.driver, err = rocketmq.New(cfg, rocketmq.Options{Country: "id", Logger: zerolog.Nop(), Registerer: r.metrics})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, r.driver.Close(ctx))
	})
	return r
}

func (r *fakeRig) send(t *testing.T, n int, limit time.Duration) (results []driver.Result, took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	msgs := make([]driver.Message, n)
	for i := range msgs {
		msgs[i] = driver.Message{Topic: fakeTopic, Tag: "PUSH_DISPATCH", Key: "push:1", Body: []byte(`{"id":9007199254740993}`)}
	}
	began := time.Now()
	results = r.driver.Send(ctx, msgs)
	require.Len(t, results, n)
	return results, time.Since(began)
}

func all(t *testing.T, results []driver.Result, want driver.Status) {
	t.Helper()
	for i, r := range results {
		require.Equal(t, want, r.Status, "message %d: %v", i, r.Err)
		if want != driver.Confirmed {
			require.Error(t, r.Err)
		}
	}
}

// slack is what a busy machine may add to a bound.
const slack = 3 * time.Second

// The three answers that say "stored, but": none of them is a confirmation, each is
// counted under its name.
func TestOnlySendOKConfirms(t *testing.T) {
	r := newFakeRig(t)
	results, _ := r.send(t, 1, slack)
	all(t, results, driver.Confirmed)
	for code, name := range map[int]string{
		rmqfake.CodeFlushDisk: "flush disk timeout", rmqfake.CodeFlushSlave: "flush slave timeout", rmqfake.CodeNoSlave: "slave not available",
	} {
		r.fake.Behave(rmqfake.Send, rmqfake.Stored(code))
		results, _ := r.send(t, 10, slack)
		all(t, results, driver.Unavailable)
		require.ErrorContains(t, results[0].Err, name)
	}
	require.Equal(t, 3, testutil.CollectAndCount(r.metrics, "seahub_rocketmq_unconfirmed_total"))
	require.Len(t, r.fake.Messages(fakeTopic), 31, "they are stored all the same: a repeat is a duplicate, not a loss")
}

// A storm of flow control: nothing is confirmed or refused for good, the broker is
// left alone for growing times, and it works again when the storm is over.
func TestFlowControlPausesAllSends(t *testing.T) {
	for name, storm := range map[string]rmqfake.Behaviour{"215": rmqfake.FlowControl, "busy": rmqfake.Busy} {
		t.Run(name, func(t *testing.T) {
			r := newFakeRig(t)
			results, _ := r.send(t, 1, slack)
			all(t, results, driver.Confirmed)
			r.fake.Behave(rmqfake.Send, storm)
			before := r.fake.Seen(rmqfake.Send)
			for range 40 {
				results, took := r.send(t, 50, slack)
				all(t, results, driver.Throttled)
				require.Less(t, took, slack)
				time.Sleep(20 * time.Millisecond)
			}
			require.Less(t, r.fake.Seen(rmqfake.Send)-before, 400, "of 2000 messages few were tried")
			r.fake.Behave(rmqfake.Send, rmqfake.Behaviour{})
			testenv.Eventually(t, 30*time.Second, "sends are confirmed again", func() bool {
				results, _ := r.send(t, 1, slack)
				return results[0].Status == driver.Confirmed
			})
		})
	}
}

// Silence of the broker, or of the name server, ends at the caller's deadline; a stop
// does not wait for longer than the driver's own bound.
func TestSilenceIsBounded(t *testing.T) {
	for name, code := range map[string]int{"broker": rmqfake.Send, "name server": rmqfake.Route} {
		t.Run(name, func(t *testing.T) {
			r := newFakeRig(t)
			r.fake.Behave(code, rmqfake.Behaviour{Silent: true})
			results, took := r.send(t, 100, 300*time.Millisecond)
			all(t, results, driver.Unavailable)
			require.Less(t, took, 300*time.Millisecond+slack)
			results, took = r.send(t, 4, time.Minute)
			all(t, results, driver.Unavailable)
			require.Less(t, took, 10*time.Second, "the driver's own bound")
			r.fake.Behave(code, rmqfake.Behaviour{})
			testenv.Eventually(t, 30*time.Second, "sends are confirmed again", func() bool {
				results, _ := r.send(t, 1, slack)
				return results[0].Status == driver.Confirmed
			})
		})
	}
}

// An address that swallows connection requests.
func TestBlackHoleIsBounded(t *testing.T) {
	hole := blackHole(t)
	d, err := rocketmq.New(rocketmq.Config{NameServers: []string{hole}, SendTimeout: time.Second, CallTimeout: time.Second}, rocketmq.Options{Country: "id", Logger: zerolog.Nop()})
	require.NoError(t, err)
	r := &fakeRig{driver: d}
	results, took := r.send(t, 200, 300*time.Millisecond)
	all(t, results, driver.Unavailable)
	require.Less(t, took, 300*time.Millisecond+slack)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, d.Close(ctx))
}

func blackHole(t *testing.T) string {
	t.Helper()
	addr, end, err := rmqfake.BlackHole()
	require.NoError(t, err)
	t.Cleanup(end)
	return addr
}

// With a namespace the client changes a message while it sends it; a message that is
// sent again goes to the same topic.
func TestARepeatedSendGoesToTheSameTopic(t *testing.T) {
	r := newFakeRig(t, func(c *rocketmq.Config) { c.Namespace = "MQ_INST_1" })
	r.fake.Behave(rmqfake.Send, rmqfake.Behaviour{Code: rmqfake.CodeError, Remark: "store failed", Times: 1})
	msgs := []driver.Message{{Topic: fakeTopic, Tag: "PUSH_DISPATCH", Key: "push:1", Body: []byte("{}")}}
	require.Equal(t, driver.Failed, r.driver.Send(t.Context(), msgs)[0].Status)
	require.Equal(t, driver.Confirmed, r.driver.Send(t.Context(), msgs)[0].Status)
	require.Equal(t, fakeTopic, msgs[0].Topic)
	require.Len(t, r.fake.Messages("MQ_INST_1%"+fakeTopic), 1)

	got := make(chan driver.Delivery, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- r.driver.Run(ctx, driver.Subscription{Topic: fakeTopic, Group: "GID_id_push_dispatch", DrainTimeout: time.Second},
			func(_ context.Context, d driver.Delivery) driver.Outcome {
				got <- d
				return driver.Outcome{Verdict: driver.Done}
			})
	}()
	select {
	case d := <-got:
		require.Equal(t, fakeTopic, d.Topic, "handlers see no namespace")
	case <-time.After(30 * time.Second):
		t.Error("nothing was delivered")
	}
	cancel()
	require.NoError(t, <-done)
}

// A broker that refuses to take a failed event back: it is not lost when the process
// ends then.
func TestAnEventThatCannotBeSentBackIsNotLost(t *testing.T) {
	r := newFakeRig(t)
	results, _ := r.send(t, 1, slack)
	all(t, results, driver.Confirmed)
	r.fake.Behave(rmqfake.SendBack, rmqfake.Behaviour{Code: rmqfake.CodeError, Remark: "refused"})
	var runs atomic.Int32
	run := func(verdict driver.Verdict) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- r.driver.Run(ctx, driver.Subscription{Topic: fakeTopic, Group: "GID_id_push_dispatch", DrainTimeout: time.Second},
				func(context.Context, driver.Delivery) driver.Outcome {
					runs.Add(1)
					// The fallback of the client, a plain send, is refused as well.
					r.fake.Behave(rmqfake.Send, rmqfake.Behaviour{Code: rmqfake.CodeError, Remark: "refused"})
					return driver.Outcome{Verdict: verdict}
				})
		}()
		return func() {
			cancel()
			require.NoError(t, <-done)
		}
	}
	stop := run(driver.Retry)
	testenv.Eventually(t, 30*time.Second, "the handler failed", func() bool { return runs.Load() > 0 })
	stop()
	r.fake.Behave(rmqfake.SendBack, rmqfake.Behaviour{})
	r.fake.Behave(rmqfake.Send, rmqfake.Behaviour{})
	before := runs.Load()
	stop = run(driver.Done)
	defer stop()
	testenv.Eventually(t, 30*time.Second, "the next process gets the event", func() bool { return runs.Load() > before })
}

// A broker that says of every group that nobody consumes, as one that has just started
// does, costs seconds and no event.
func TestNoMembersIsOvercome(t *testing.T) {
	r := newFakeRig(t)
	var got atomic.Int32
	var connected atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- r.driver.Run(ctx, driver.Subscription{Topic: fakeTopic, Group: "GID_id_push_dispatch", DrainTimeout: time.Second,
			Connected: func(ok bool, _ error) { connected.Store(ok) }},
			func(context.Context, driver.Delivery) driver.Outcome {
				got.Add(1)
				return driver.Outcome{Verdict: driver.Done}
			})
	}()
	defer func() {
		cancel()
		require.NoError(t, <-done)
	}()
	testenv.Eventually(t, 30*time.Second, "it is served", connected.Load)
	r.fake.Behave(rmqfake.Members, rmqfake.NoMembers)
	testenv.Eventually(t, 30*time.Second, "the subscription says that it is not served", func() bool { return !connected.Load() })
	r.fake.Behave(rmqfake.Members, rmqfake.Behaviour{})
	results, _ := r.send(t, 10, slack)
	all(t, results, driver.Confirmed)
	testenv.Eventually(t, time.Minute, "all are delivered", func() bool { return got.Load() >= 10 })
}

// Ten starts and stops in one process, without and with a broker: no panic, and it
// works after each (the pinned client has the fixes for both).
func TestStartsAndStopsInOneProcess(t *testing.T) {
	r := newFakeRig(t)
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := r.driver.Run(ctx, driver.Subscription{Topic: fakeTopic, Group: "GID_id_push_dispatch", DrainTimeout: time.Second},
			func(context.Context, driver.Delivery) driver.Outcome { return driver.Outcome{Verdict: driver.Done} })
		cancel()
		require.NoError(t, err)
	}
	results, _ := r.send(t, 1, slack)
	all(t, results, driver.Confirmed)
}

// A name server may be given by its name, with or without the scheme that the client
// wants, and is looked up anew with each connection.
func TestNameServersMayBeNames(t *testing.T) {
	r := newFakeRig(t)
	_, port, err := net.SplitHostPort(r.fake.Addr())
	require.NoError(t, err)
	for _, server := range []string{"localhost:" + port, "http://localhost:" + port} {
		d, err := rocketmq.New(rocketmq.Config{NameServers: []string{"127.0.0.1:1", server}}, rocketmq.Options{Country: "id", Logger: zerolog.Nop()})
		require.NoError(t, err)
		results, _ := (&fakeRig{driver: d}).send(t, 1, 30*time.Second)
		all(t, results, driver.Confirmed)
		require.NoError(t, d.Close(t.Context()))
	}
}
