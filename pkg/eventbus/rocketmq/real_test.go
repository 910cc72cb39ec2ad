package rocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq"
	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// subscriber is one Run under way.
type subscriber struct {
	stop context.CancelFunc
	done chan error

	mu        sync.Mutex
	connected bool
	trouble   string
	beats     int
}

func subscribe(t *testing.T, d *rocketmq.Driver, topic, group string, tags []string, handle driver.Handle, change ...func(*driver.Subscription)) *subscriber {
	t.Helper()
	ctx, cancel := context.WithCancel(logs.of(t).WithContext(context.Background()))
	s := &subscriber{stop: cancel, done: make(chan error, 1)}
	sub := driver.Subscription{
		Topic: topic, Group: group, Tags: tags, Concurrency: 4, HandlerTimeout: 10 * time.Second, DrainTimeout: 5 * time.Second,
		MinRetry: time.Second, MaxRetry: time.Second,
		Beat: func() { s.mu.Lock(); s.beats++; s.mu.Unlock() },
		Connected: func(ok bool, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.connected = ok
			if err != nil {
				s.trouble = err.Error()
			}
		},
	}
	for _, f := range change {
		f(&sub)
	}
	go func() { s.done <- d.Run(ctx, sub, handle) }()
	t.Cleanup(func() { s.end(t) })
	return s
}

func (s *subscriber) end(t *testing.T) {
	s.stop()
	select {
	case err := <-s.done:
		s.done <- err
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Error("Run did not return")
	}
}

func (s *subscriber) state() (connected bool, trouble string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected, s.trouble
}

// fits tells whether a text has all of the parts.
func fits(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

func done(context.Context, driver.Delivery) driver.Outcome {
	return driver.Outcome{Verdict: driver.Done}
}

// saidWithin is how soon after its start a subscription says what is wrong.
const saidWithin = 10 * time.Second

// The client starts without an error whatever is wrong; the driver says what it is, each
// fault in words of its own.
func TestAStartSaysWhatIsWrong(t *testing.T) {
	c := testenv.RocketMQ(t)
	r := newRoom(t, c)
	group := eventbus.Group(r.country, "push_dispatch")
	r.group(t, group)
	good := r.quick(c.Addr())
	with := func(change func(*rocketmq.Config)) rocketmq.Config {
		cfg := good
		change(&cfg)
		return cfg
	}
	account := func(a remoting.Account) func(*rocketmq.Config) {
		return func(c *rocketmq.Config) { c.AccessKey, c.SecretKey = a.AccessKey, a.SecretKey }
	}
	const wrongSecret = "secret-of-another"
	other := &room{cluster: c, country: country(t)}
	subscribe(t, r.driver(t, good), r.topic(), group, []string{"KIT_A"}, done)
	cases := map[string]struct {
		cfg          rocketmq.Config
		topic, group string
		tags         []string
		want         []string
	}{
		"name server":         {cfg: with(func(c *rocketmq.Config) { c.NameServers = []string{"127.0.0.1:1"} }), want: []string{"cannot be reached", "SEAHUB_ROCKETMQ_NAME_SERVERS", "127.0.0.1:1"}},
		"topic":               {cfg: good, topic: other.topic(), want: []string{other.topic(), "does not exist", "relay topics", "SEAHUB_ROCKETMQ_NAMESPACE"}},
		"group":               {cfg: good, group: "GID_nobody", want: []string{"consumer group GID_nobody does not exist", "relay topics"}},
		"secret key":          {cfg: with(func(c *rocketmq.Config) { c.SecretKey = wrongSecret }), want: []string{"does not accept the key", "SEAHUB_ROCKETMQ_SECRET_KEY"}},
		"access key":          {cfg: with(func(c *rocketmq.Config) { c.AccessKey = "nobody" }), want: []string{"does not accept the key", "SEAHUB_ROCKETMQ_ACCESS_KEY"}},
		"no key":              {cfg: with(account(remoting.Account{})), want: []string{"does not accept the key"}},
		"permission":          {cfg: with(account(c.Stranger)), want: []string{"has no permission", group}},
		"namespace":           {cfg: with(func(c *rocketmq.Config) { c.Namespace = "MQ_INST_1" }), want: []string{"wrong namespace", "SEAHUB_ROCKETMQ_NAMESPACE"}},
		"second subscription": {cfg: good, tags: []string{"KIT_B"}, want: []string{"another subscription", "KIT_A", "KIT_B", "a group of its own"}},
	}
	// A broker tells no difference between a key that is unknown, wrong or not there.
	isKey := map[string]bool{"secret key": true, "access key": true, "no key": true}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			home, topic, g, tags := r, r.topic(), group, []string{"KIT_A"}
			if tc.topic != "" {
				home, topic = other, tc.topic
			}
			if tc.group != "" {
				g = tc.group
			}
			if tc.tags != nil {
				tags = tc.tags
			}
			if name == "second subscription" { // the first one is at work
				testenv.Eventually(t, time.Minute, "the group has a member", func() bool {
					m, err := c.Client(t).Members(t.Context(), topic, g)
					return err == nil && len(m) > 0
				})
			}
			began := time.Now()
			s := subscribe(t, home.driver(t, tc.cfg), topic, g, tags, done)
			said := ""
			testenv.Eventually(t, saidWithin, "it says what is wrong", func() bool {
				_, said = s.state()
				return said != ""
			})
			t.Logf("after %s: %s", time.Since(began).Round(time.Millisecond), said)
			require.True(t, fits(said, tc.want), "it says %s, without one of %q", said, tc.want)
			for fault, its := range cases {
				if fault != name && !(isKey[fault] && isKey[name]) {
					require.False(t, fits(said, its.want), "it says what is said of %s: %s", fault, said)
				}
			}
			for _, secret := range []string{wrongSecret, good.SecretKey, c.Stranger.SecretKey} {
				require.NotContains(t, said, secret)
			}
			connected, _ := s.state()
			require.False(t, connected)
			s.end(t)
			require.Positive(t, s.beats)
		})
	}
}

// A topic that was deleted and made again is served by the members that were there.
func TestATopicThatIsMadeAgainIsServed(t *testing.T) {
	t.Parallel()
	c := testenv.RocketMQ(t)
	r := newRoom(t, c)
	group := eventbus.Group(r.country, "push_dispatch")
	d := r.driver(t, r.quick(c.Addr()))
	require.NoError(t, d.Ensure(t.Context(), r.topic(), []string{group}))
	require.NoError(t, d.Ensure(t.Context(), r.topic(), []string{group}), "repeating it changes nothing")
	route, err := c.Client(t).Route(t.Context(), r.topic())
	require.NoError(t, err)
	require.Len(t, route, queues, "what exists keeps its number of queues")
	var got atomic.Int32
	s := subscribe(t, d, r.topic(), group, nil, func(ctx context.Context, del driver.Delivery) driver.Outcome {
		got.Add(1)
		return done(ctx, del)
	})
	testenv.Eventually(t, time.Minute, "it is served", func() bool { ok, _ := s.state(); return ok })
	client := c.Client(t)
	testenv.Eventually(t, 2*time.Minute, "the topic is deleted", func() bool {
		// A broker that registers at this moment brings it back: then once more.
		c.AdminTool(t, "deleteTopic", "-n", c.Addr(), "-c", "testenv", "-t", r.topic())
		_, err := client.Route(t.Context(), r.topic())
		return errors.Is(err, remoting.ErrTopicMissing)
	})
	testenv.Eventually(t, time.Minute, "it says that the topic is gone", func() bool {
		ok, why := s.state()
		return !ok && strings.Contains(why, "does not exist")
	})
	msg := []driver.Message{{Topic: r.topic(), Tag: "KIT_A", Key: "again", Body: []byte("{}")}}
	require.NotEqual(t, driver.Refused, d.Send(t.Context(), msg)[0].Status, "a missing topic is an outage, no fault of the event")
	c.MakeTopic(t, r.topic(), queues)
	testenv.Eventually(t, 2*time.Minute, "an event is delivered again", func() bool {
		_ = d.Send(t.Context(), msg)
		time.Sleep(200 * time.Millisecond)
		return got.Load() > 0
	})
}

// The accounts of least rights are enough for what each side does.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	c := testenv.RocketMQ(t)
	r := newRoom(t, c)
	group := eventbus.Group(r.country, "push_dispatch")
	r.group(t, group)
	as := func(a remoting.Account) *rocketmq.Driver {
		cfg := r.quick(c.Addr())
		cfg.AccessKey, cfg.SecretKey = a.AccessKey, a.SecretKey
		return r.driver(t, cfg)
	}
	msg := []driver.Message{{Topic: r.topic(), Tag: "KIT_A", Key: "k", Body: []byte("{}")}}
	got := make(chan struct{}, 8)
	consumer := as(c.Consumer)
	subscribe(t, consumer, r.topic(), group, nil, func(context.Context, driver.Delivery) driver.Outcome {
		got <- struct{}{}
		return driver.Outcome{Verdict: driver.Done}
	})
	res := as(c.Publisher).Send(t.Context(), msg)[0]
	require.Equal(t, driver.Confirmed, res.Status, "%v", res.Err)
	select {
	case <-got:
	case <-time.After(time.Minute):
		t.Fatal("nothing was delivered")
	}
	res = consumer.Send(t.Context(), msg)[0]
	require.Equal(t, driver.Unavailable, res.Status)
	require.ErrorContains(t, res.Err, "SEAHUB_ROCKETMQ_ACCESS_KEY")
	require.NotContains(t, res.Err.Error(), c.Consumer.AccessKey, "errors hold no keys")
	require.Error(t, consumer.Ensure(t.Context(), "beex-"+r.country+"-new", nil))
}

// While members of a group and several publishers are at work the broker is killed and
// started again, and the name server is away for a while. Nothing that was confirmed is
// missing afterwards, and the log tells of it in a few lines without a message's body.
// Prints how long it took to recover.
func TestOutagesUnderLoadLoseNothing(t *testing.T) {
	t.Parallel()
	away := 5 * time.Second
	if testenv.Soaking() {
		away = time.Minute
	}
	c := testenv.PrivateRocketMQ(t)
	r := newRoom(t, c)
	group := eventbus.Group(r.country, "push_dispatch")
	r.group(t, group)
	var mu sync.Mutex
	got, confirmed := map[string]int{}, map[string]bool{}
	var newest atomic.Int64
	const members = 3
	for range members {
		subscribe(t, r.driver(t, r.quick(c.Addr())), r.topic(), group, nil, func(_ context.Context, d driver.Delivery) driver.Outcome {
			mu.Lock()
			got[d.Key]++
			mu.Unlock()
			newest.Store(time.Now().UnixNano())
			return driver.Outcome{Verdict: driver.Done}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var publishers sync.WaitGroup
	var lastConfirm atomic.Int64
	for p := range 3 {
		d := r.driver(t, r.quick(c.Addr()))
		publishers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				var msgs []driver.Message
				for i := range 4 {
					msgs = append(msgs, driver.Message{Topic: r.topic(), Tag: "KIT_A", Key: fmt.Sprintf("p%d-%d-%d", p, n, i), Body: []byte(markedBody)})
				}
				call, end := context.WithTimeout(ctx, 2*time.Second)
				for i, res := range d.Send(call, msgs) {
					if res.Status == driver.Confirmed {
						lastConfirm.Store(time.Now().UnixNano())
						mu.Lock()
						confirmed[msgs[i].Key] = true
						mu.Unlock()
					}
				}
				end()
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	flows := func(what string) {
		t.Helper()
		from := time.Now()
		testenv.Eventually(t, 2*time.Minute, what+": sends are confirmed", func() bool { return lastConfirm.Load() > from.UnixNano() })
		sent := time.Since(from)
		testenv.Eventually(t, 2*time.Minute, what+": events are delivered", func() bool { return newest.Load() > from.UnixNano() })
		t.Logf("%s: confirmed again after %s, delivered again after %s", what, sent.Round(time.Millisecond), time.Since(from).Round(time.Millisecond))
	}
	flows("start")
	outages, mark := time.Now(), logs.mark()
	require.NoError(t, c.Broker.Kill())
	time.Sleep(time.Second)
	require.NoError(t, c.Broker.Start(t.Context()))
	flows("broker killed")
	require.NoError(t, c.NameServer.Stop(t.Context()))
	time.Sleep(away)
	flows("name server away")
	require.NoError(t, c.NameServer.Start(t.Context()))
	flows("name server back")
	logs.bounded(t, mark, outages, members)
	cancel()
	publishers.Wait()
	testenv.Eventually(t, 2*time.Minute, "all that was confirmed is delivered", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for key := range confirmed {
			if got[key] == 0 {
				return false
			}
		}
		return true
	})
	mu.Lock()
	defer mu.Unlock()
	repeats := 0
	for _, n := range got {
		repeats += n - 1
	}
	t.Logf("%d confirmed, %d delivered, %d of them again", len(confirmed), len(got), repeats)
}
