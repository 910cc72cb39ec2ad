package testenv

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisServer is a Redis for a test.
type RedisServer struct {
	Addr   string
	Server *Server
}

// Redis gives the test the Redis of this test process. Other tests use it too:
// every key carries the test's Namespace, and nobody flushes.
func Redis(t testing.TB) *RedisServer {
	t.Helper()
	server := sharedOf(t, KindRedis)
	return &RedisServer{Addr: server.Addr(), Server: server}
}

// PrivateRedis starts a Redis for this test alone, to be faulted by
// RedisServer.Server.
func PrivateRedis(t testing.TB, options ...Options) *RedisServer {
	t.Helper()
	server := private(t, KindRedis, options)
	return &RedisServer{Addr: server.Addr(), Server: server}
}

// Namespace returns a part for this test's key names that no other test has.
// On a server that is not ours, keys that carry it are removed after the test.
func (s *RedisServer) Namespace(t testing.TB) string {
	t.Helper()
	name := uniqueName(t.Name())
	t.Cleanup(func() {
		if s.Server.refusal == ErrExternal {
			s.unlink(t, "*"+name+"*")
		}
	})
	return name
}

// Client opens a plain client for the test's own looks and closes it afterwards.
func (s *RedisServer) Client(t testing.TB) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (s *RedisServer) unlink(t testing.TB, pattern string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	keys := client.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
			t.Errorf("testenv: remove key %s: %v", keys.Val(), err)
			return
		}
	}
	if err := keys.Err(); err != nil {
		t.Errorf("testenv: look for keys of the test: %v", err)
	}
}
