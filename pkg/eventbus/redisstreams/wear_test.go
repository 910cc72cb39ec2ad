package redisstreams_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/eventbus/eventbustest"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// What is unfinished and no longer in the stream is counted as lost, once, and leaves
// nothing behind: neither a parked message nor one that a dead member held.
func TestVanishedMessagesAreCountedOnceAndLeaveNothing(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	reg := prometheus.NewRegistry()
	d := r.driver(t, quick(r.server.Addr), reg)
	c := r.server.Client(t)
	stop := r.start(t, r.driver(t, quick(r.server.Addr)), driver.Subscription{}, func(context.Context, driver.Delivery) driver.Outcome {
		return driver.Outcome{Verdict: driver.Retry, After: 2 * time.Second}
	})
	r.publish(t, d, 4, "A")
	testenv.Eventually(t, patience, "four are parked", func() bool { s := r.state(t, d); return s.Parked.N == 4 && s.InFlight.N == 0 })
	stop()
	r.publish(t, d, 3, "B")
	read, err := c.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: group, Consumer: "ghost", Streams: []string{r.stream(), ">"}, Count: 3, Block: -1}).Result()
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.XRange(t.Context(), r.stream(), "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	if n := c.XDel(t.Context(), r.stream(), all[0].ID, all[1].ID, read[0].Messages[0].ID).Val(); n != 3 {
		t.Fatalf("%d entries deleted", n)
	}
	var handled atomic.Int64
	r.start(t, d, driver.Subscription{}, func(_ context.Context, got driver.Delivery) driver.Outcome {
		if got.Key == "" || len(got.Body) == 0 {
			t.Error("a handler got a message without content")
		}
		handled.Add(1)
		return driver.Outcome{Verdict: driver.Done}
	})
	testenv.Eventually(t, patience, "the four that are left are handled", func() bool { return handled.Load() == 4 })
	testenv.Eventually(t, patience, "backlog is zero", func() bool { s := r.state(t, d); return s.Backlog.N == 0 && s.Parked.N == 0 })
	time.Sleep(2 * lease)
	if v := metric(t, reg, "seahub_redis_vanished_total"); v != 3 {
		t.Errorf("%v messages count as vanished, three are", v)
	}
}

// A publish that got no answer in time has not been repeated behind the caller's back:
// when the server goes on, it stores each message once.
func TestAPublishWithoutAnAnswerIsSentOnce(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.PrivateRedis(t))
	d := r.driver(t, quick(r.server.Addr))
	r.publish(t, d, 1, "A") // the connection is there
	must(t, r.server.Server.Freeze())
	msgs := make([]driver.Message, 100)
	for i := range msgs {
		msgs[i] = driver.Message{Topic: r.topic(), Tag: "A", Key: fmt.Sprint("k", i), Body: []byte("{}")}
	}
	for _, res := range d.Send(t.Context(), msgs) {
		if res.Status != driver.Unavailable {
			t.Errorf("no answer, and the result is %s", res.Status)
		}
	}
	must(t, r.server.Server.Thaw())
	c := r.server.Client(t)
	testenv.Eventually(t, patience, "the server has taken them", func() bool { return c.XLen(t.Context(), r.stream()).Val() > 1 })
	time.Sleep(time.Second)
	if n := c.XLen(t.Context(), r.stream()).Val(); n != 101 {
		t.Errorf("%d entries, 101 were sent once", n)
	}
}

// The same when the connection breaks after the server has stored the messages and
// before it could say so.
func TestAPublishWhoseAnswerIsLostIsSentOnce(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	var deaf atomic.Bool
	d := r.driver(t, quick(answerless(t, r.server.Addr, &deaf)))
	r.publish(t, d, 1, "A") // the connection is there
	deaf.Store(true)
	msg := driver.Message{Topic: r.topic(), Tag: "A", Key: "once", Body: []byte("{}")}
	if res := d.Send(t.Context(), []driver.Message{msg})[0]; res.Status != driver.Unavailable {
		t.Errorf("the answer was lost, and the result is %s", res.Status)
	}
	time.Sleep(300 * time.Millisecond) // longer than a client waits before it tries again
	if n := r.server.Client(t).XLen(t.Context(), r.stream()).Val(); n != 2 {
		t.Errorf("%d entries, 2 were sent once", n)
	}
}

// answerless is a way to a server that, once, forwards what is sent while deaf is set and
// breaks the connection instead of forwarding the answer.
func answerless(t *testing.T, server string, deaf *atomic.Bool) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(up, client); _ = up.Close() }()
			go func() { // both end with either connection
				defer func() { _, _ = client.Close(), up.Close() }()
				for b := make([]byte, 1<<16); ; {
					n, err := up.Read(b)
					if err != nil || deaf.CompareAndSwap(true, false) {
						return
					}
					if _, err := client.Write(b[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// In one pipeline each message has its own result: one whose key is of a wrong kind
// takes no other with it.
func TestEachMessageOfAPipelineHasItsOwnResult(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	d := r.driver(t, quick(r.server.Addr))
	c := r.server.Client(t)
	if err := c.Set(t.Context(), "beex:"+r.env+":broken", "not a stream", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	msgs := make([]driver.Message, 100)
	for i := range msgs {
		msgs[i] = driver.Message{Topic: r.topic(), Tag: "A", Key: fmt.Sprint("k", i), Body: []byte("{}")}
	}
	msgs[40].Topic = "beex-id-broken"
	for i, res := range d.Send(t.Context(), msgs) {
		if (res.Status == driver.Confirmed) == (i == 40) {
			t.Errorf("message %d: %s, %v", i, res.Status, res.Err)
		}
	}
	if n := c.XLen(t.Context(), r.stream()).Val(); n != 99 {
		t.Errorf("%d entries are stored", n)
	}
}

// A subscription with nothing to do is quiet and stays so over broken connections; the
// next message arrives all the same.
func TestAnIdleSubscriptionIsQuiet(t *testing.T) {
	t.Parallel()
	r := newRoom(t, testenv.Redis(t))
	proxy := eventbustest.NewProxy(t, r.server.Addr)
	reg := prometheus.NewRegistry()
	d := r.driver(t, quick(proxy.Addr()), reg)
	got := make(chan string, 100)
	var changes atomic.Int64
	var up atomic.Bool
	r.start(t, d, driver.Subscription{Connected: func(ok bool, _ error) {
		if up.Swap(ok) != ok {
			changes.Add(1)
		}
	}}, func(_ context.Context, d driver.Delivery) driver.Outcome {
		got <- d.Key
		return driver.Outcome{Verdict: driver.Done}
	})
	testenv.Eventually(t, patience, "it is served", up.Load)
	time.Sleep(4 * 500 * time.Millisecond) // several reads end empty
	if v := metric(t, reg, "seahub_redis_errors_total"); v != 0 || changes.Load() != 1 {
		t.Errorf("%v errors and %d changes of state while nothing happened", v, changes.Load())
	}
	for range 10 {
		proxy.Drop()
		testenv.Eventually(t, patience, "it is served again", up.Load)
		time.Sleep(50 * time.Millisecond)
	}
	direct := r.driver(t, quick(r.server.Addr))
	for range 2 {
		r.publish(t, direct, 1, "A")
		select {
		case <-got:
		case <-time.After(patience):
			t.Fatal("a message to an idle subscription did not arrive")
		}
	}
}

// forgetData removes what a server that is down has written.
func forgetData(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"appendonlydir", "dump.rdb"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}
