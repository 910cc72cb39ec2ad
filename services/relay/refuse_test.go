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
	total := int64(0)
	published := func(what string) {
		testenv.Eventually(t, 2*soon, what+": all events are out", func() bool {
			return r.QueryInt(t, "SELECT COUNT(*) FROM outbox_event WHERE status = 'PUBLISHED'") == total
		})
	}
	write := func(prefix string) {
		ids := make([]string, 30)
		for i := range ids {
			ids[i] = fmt.Sprint(prefix, i)
		}
		r.append(t, ids...)
		total += int64(len(ids))
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
		write(strings.ToLower(fault.name))
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 30, r.QueryInt(t, `SELECT COUNT(*) FROM outbox_event WHERE status = 'PENDING'
			AND retry_count = 0 AND available_at IS NULL`), "%s: no row is touched", fault.name)
		fault.end()
		published(fault.name)
	}
	n, err := client.XLen(t.Context(), "beex:"+strings.TrimPrefix(r.env[1], "SEAHUB_ENV=")+":events").Result()
	require.NoError(t, err)
	t.Logf("%d duplicates", n-total)
	require.GreaterOrEqual(t, n, total)
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
