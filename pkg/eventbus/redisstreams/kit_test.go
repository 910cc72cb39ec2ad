package redisstreams_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/eventbustest"
	"github.com/seahub/seahub-mq/pkg/eventbus/redisstreams"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const lease = time.Second

// quick makes everything fast that a test waits for.
func quick(addr string) redisstreams.Config {
	return redisstreams.Config{
		Addresses: []string{addr}, Mode: "single",
		DialTimeout: time.Second, Timeout: time.Second, Block: 500 * time.Millisecond,
		Lease: lease, CrashSlack: 5, Retention: time.Hour, MaxLen: 1_000_000, TrimEvery: time.Second,
	}
}

// room is a scenario's place on a server.
type room struct {
	server  *testenv.RedisServer
	env     string
	country string
}

func newRoom(t testing.TB, server *testenv.RedisServer) room {
	return room{server: server, env: strings.ToLower(server.Namespace(t)), country: "id"}
}

func (r room) stream() string { return "beex:" + r.env + ":events" }
func (r room) topic() string  { return eventbus.Topic(r.country) }

func (r room) driver(t testing.TB, cfg redisstreams.Config, reg ...prometheus.Registerer) *redisstreams.Driver {
	t.Helper()
	o := redisstreams.Options{Env: r.env, Country: r.country, Logger: zerolog.Nop()}
	if len(reg) > 0 {
		o.Registerer = reg[0]
	}
	d, err := redisstreams.New(cfg, o)
	if err != nil {
		t.Fatalf("make the driver: %v", err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	return d
}

func TestConformance(t *testing.T) {
	for n := range testenv.Scale(1, 10) {
		// Of its own: parallel scenarios begin when the test around them returns.
		t.Run(fmt.Sprint("round ", n+1), conformance)
	}
}

func conformance(t *testing.T) {
	eventbustest.Run(t, eventbustest.Harness{
		Lease:    lease,
		Patience: 20 * time.Second,
		Room: func(t testing.TB, ownBroker bool) *eventbustest.Room {
			var r room
			out := &eventbustest.Room{}
			if ownBroker {
				r = newRoom(t, testenv.PrivateRedis(t))
				out.Broker = broker{r.server.Server}
			} else {
				r = newRoom(t, testenv.Redis(t))
			}
			out.Env, out.Country = r.env, r.country
			client := r.server.Client(t)
			out.Open = func(t testing.TB) (eventbus.Parts, eventbustest.Link) {
				proxy := eventbustest.NewProxy(t, r.server.Addr)
				d := r.driver(t, quick(proxy.Addr()))
				return eventbus.Parts{Sender: d, Receiver: d, Inspector: d, Provisioner: d}, proxy
			}
			out.Stored = func(t testing.TB) int {
				n, err := client.XLen(context.Background(), r.stream()).Result()
				if err != nil {
					t.Fatalf("count the stream: %v", err)
				}
				return int(n)
			}
			out.Forget = func(t testing.TB) {
				if err := client.Del(context.Background(), r.stream()).Err(); err != nil {
					t.Fatalf("delete the stream: %v", err)
				}
			}
			out.ForgetGroup = func(t testing.TB, group string) {
				if err := client.XGroupDestroy(context.Background(), r.stream(), group).Err(); err != nil {
					t.Fatalf("delete the group: %v", err)
				}
			}
			return out
		},
	})
}

// broker treats the scenario's own server badly.
type broker struct{ server *testenv.Server }

func (b broker) must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b broker) Stop(t testing.TB)   { b.must(t, b.server.Stop(context.Background())) }
func (b broker) Kill(t testing.TB)   { b.must(t, b.server.Kill()) }
func (b broker) Start(t testing.TB)  { b.must(t, b.server.Start(context.Background())) }
func (b broker) Freeze(t testing.TB) { b.must(t, b.server.Freeze()) }
func (b broker) Thaw(t testing.TB)   { b.must(t, b.server.Thaw()) }
