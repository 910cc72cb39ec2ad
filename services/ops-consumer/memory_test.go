package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/feishufake"
)

func TestMemoryByTheClock(t *testing.T) {
	fake := startFeishu(t, feishufake.Options{})
	f, w := newFeishu(fake.Hook(), "", time.Second), newWebhook(fake.Plain(), time.Second)
	defer f.close()
	defer w.close()
	cfg := testConfig()
	cfg.Alert.MemoryAfter, cfg.Alert.MemoryRepeat = time.Minute, 30*time.Minute
	down := errors.New("connection refused")
	var answer error
	m := &memory{cfg: cfg, ping: func(context.Context) error { return answer }, beat: func() {},
		outlets: []outlet{{route: routeFeishu, send: f.send}, {route: routeSecond, send: w.send}}}
	start := time.Now()
	look := func(after time.Duration, err error, messages int) {
		t.Helper()
		answer = err
		m.look(t.Context(), start.Add(after))
		require.Len(t, fake.Messages(), messages, "after %s", after)
	}
	look(0, nil, 0)
	look(time.Second, down, 0)
	look(59*time.Second, down, 0)
	look(60*time.Second, nil, 0) // a blip
	look(61*time.Second, down, 0)
	look(120*time.Second, down, 0)
	fake.Behave(feishufake.Behaviour{Kind: feishufake.Internal, Times: 1})
	look(121*time.Second, down, 2) // Feishu failed, the second webhook took it
	look(20*time.Minute, down, 2)
	look(33*time.Minute, down, 4)
	look(34*time.Minute, nil, 6)
	look(35*time.Minute, nil, 6)
	shown := fake.Shown(ruleDatabase)
	require.Len(t, shown, 2)
	require.Contains(t, shown[1].Title, "resolved")
	require.Contains(t, shown[0].Text, "id-test")
	require.Contains(t, shown[0].Text, "ops-snapshot")
	require.Contains(t, shown[0].Text, "sweep-")
}

// MySQL is stopped for real: the alert comes from memory, and its end when it is back.
func TestMySQLUnreachable(t *testing.T) {
	b := newBench(t, testenv.PrivateMariaDB(t))
	fake := startFeishu(t, feishufake.Options{Secret: "s"})
	f := newFeishu(fake.Hook(), fake.Secret(), time.Second)
	defer f.close()
	m := &memory{cfg: b.cfg, ping: b.store.ping, beat: func() {}, outlets: []outlet{{route: routeFeishu, send: f.send}, {route: routeSecond}}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.run(ctx) }()
	require.NoError(t, b.s.Server.Kill())
	testenv.Eventually(t, 30*time.Second, "it is told", func() bool { return len(fake.Shown("[critical]", ruleDatabase)) == 1 })
	require.NoError(t, b.s.Server.Start(t.Context()))
	testenv.Eventually(t, 30*time.Second, "its end is told", func() bool { return len(fake.Shown("[resolved]", ruleDatabase)) == 1 })
	cancel()
	require.NoError(t, <-done)
	require.Len(t, fake.Messages(), 2)
}
