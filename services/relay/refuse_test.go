package main

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// Redis refuses: no memory, a replica, still loading. No row is touched, and all events
// are out soon after it takes them again.
func TestARedisThatRefusesTouchesNoEvent(t *testing.T) {
	r := newRig(t)
	private := testenv.PrivateRedis(t)
	for i, e := range r.env {
		if strings.HasPrefix(e, "SEAHUB_REDIS_ADDRESSES=") {
			r.env[i] = "SEAHUB_REDIS_ADDRESSES=" + private.Addr
		}
	}
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	r.run(t)
	client := private.Client(t)
	each := testenv.Scale(1000, 20_000)
	total := 0
	published := func(what string) {
		testenv.Eventually(t, 3*soon, what+": all events are out", func() bool {
			return r.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'PUBLISHED'") == int64(total)
		})
		sent := r.sent(t, private)
		for i := range each {
			require.Contains(t, sent, fmt.Sprint("push:", what, i), "%s: none is lost", what)
		}
		copies := 0
		for _, n := range sent {
			copies += n
		}
		t.Logf("%s: %d came twice so far", what, copies-len(sent))
		require.Len(t, sent, total)
		require.LessOrEqual(t, copies-len(sent), 500, "a stop in mid-batch has one batch sent again, a refusal none")
	}
	write := func(prefix string) {
		r.write(t, prefix, each)
		total += each
	}
	write("before")
	published("before")
	do := func(args ...any) { require.NoError(t, client.Do(t.Context(), args...).Err(), args) }
	var loading *loadingRedis
	for _, fault := range []struct {
		name     string
		set, end func()
	}{
		{"OOM", func() { do("CONFIG", "SET", "maxmemory", "1") }, func() { do("CONFIG", "SET", "maxmemory", "0") }},
		{"READONLY", func() { do("REPLICAOF", "127.0.0.1", "1") }, func() { do("REPLICAOF", "NO", "ONE") }},
		{"LOADING", func() {
			require.NoError(t, private.Server.Stop(t.Context()))
			loading = newLoadingRedis(t, private.Addr)
		}, func() {
			loading.close()
			require.NoError(t, private.Server.Start(t.Context()))
		}},
	} {
		fault.set()
		write(fault.name)
		time.Sleep(2 * time.Second)
		require.EqualValues(t, each, r.QueryInt(t, `SELECT COUNT(*) FROM outbox_event WHERE status = 'PENDING'
			AND retry_count = 0 AND available_at IS NULL`), "%s: no row is touched", fault.name)
		fault.end()
		published(fault.name)
	}
}

// write commits n events by four writers.
func (r *rig) write(t *testing.T, prefix string, n int) {
	t.Helper()
	g, err := db.Open(db.Config{DSN: r.DSN, TimeZone: "+00:00", MaxOpen: 4, DialTimeout: time.Second, IOTimeout: 10 * time.Second})
	require.NoError(t, err)
	pool, err := db.Pool(g)
	require.NoError(t, err)
	defer func() { _ = pool.Close() }()
	var wg sync.WaitGroup
	for writer := range 4 {
		wg.Go(func() {
			for i := writer; i < n; i += 4 {
				err := db.InTx(t.Context(), g, func(tx *gorm.DB) error {
					e, err := event.PushDispatched(fmt.Sprint(prefix, i))
					if err == nil {
						_, err = outbox.Append(t.Context(), tx, e)
					}
					return err
				})
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// sent counts the entries of the stream by event_id.
func (r *rig) sent(t *testing.T, server *testenv.RedisServer) map[string]int {
	t.Helper()
	entries, err := server.Client(t).XRange(t.Context(), "beex:"+strings.TrimPrefix(r.env[1], "SEAHUB_ENV=")+":events", "-", "+").Result()
	require.NoError(t, err)
	perEvent := map[string]int{}
	for _, e := range entries {
		perEvent[fmt.Sprint(e.Values["key"])]++
	}
	return perEvent
}

// loadingRedis answers every command as a server that reads its data.
type loadingRedis struct {
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

func newLoadingRedis(t *testing.T, addr string) *loadingRedis {
	t.Helper()
	var l loadingRedis
	testenv.Eventually(t, soon, "the address is free", func() bool {
		var err error
		l.listener, err = net.Listen("tcp", addr)
		return err == nil
	})
	l.wg.Go(func() {
		for {
			c, err := l.listener.Accept()
			if err != nil {
				return
			}
			l.mu.Lock()
			l.conns = append(l.conns, c)
			l.mu.Unlock()
			l.wg.Go(func() {
				buf := make([]byte, 1<<20)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					commands := bytes.Count(append([]byte("\n"), buf[:n]...), []byte("\n*"))
					if _, err := c.Write(bytes.Repeat([]byte("-LOADING Redis is loading the dataset in memory\r\n"), commands)); err != nil {
						return
					}
				}
			})
		}
	})
	return &l
}

func (l *loadingRedis) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}
