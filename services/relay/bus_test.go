package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func TestBusShowsTopicsGroupsAndMembers(t *testing.T) {
	r := newRig(t)
	c := r.redis.Client(t)
	stream := "beex:" + strings.TrimPrefix(r.env[1], "SEAHUB_ENV=") + ":events"
	require.NoError(t, c.XGroupCreateMkStream(t.Context(), stream, "GID_id_push_dispatch", "0").Err())
	require.NoError(t, c.XGroupCreateMkStream(t.Context(), stream, "GID_id_of_nobody", "0").Err())
	for range 3 {
		require.NoError(t, c.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: []any{"tag", "PUSH_DISPATCH", "key", "k", "body", "{}", "headers", ""}}).Err())
	}
	require.NoError(t, c.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "GID_id_push_dispatch", Consumer: "m", Streams: []string{stream, ">"}, Count: 1, Block: -1}).Err())
	out, code := r.command(t, "bus", "--json")
	require.Zero(t, code)
	var view busView
	decode(t, out, &view)
	require.Len(t, view.Topics, 1)
	require.Equal(t, "beex-id-events", view.Topics[0].Topic)
	groups := map[string]groupView{}
	for _, g := range view.Topics[0].Groups {
		groups[g.Group] = g
	}
	require.Len(t, groups, 5, "four known ones and one that only the broker knows")
	push := groups["GID_id_push_dispatch"]
	require.EqualValues(t, 3, *push.Backlog)
	require.EqualValues(t, 1, *push.InFlight)
	require.Zero(t, *push.Parked)
	require.NotNil(t, push.OldestAgeSeconds)
	require.EqualValues(t, 3, *groups["GID_id_of_nobody"].Backlog)
	require.Nil(t, groups["GID_id_coupon_expire"].Backlog, "a group that is not there has no backlog of 0")
	require.Contains(t, groups["GID_id_coupon_expire"].Error, "not on the broker")
	out, code = r.command(t, "bus", "--group", "GID_id_push_dispatch")
	require.Zero(t, code)
	require.NotContains(t, out, "GID_id_of_nobody")
	require.Contains(t, out, "GID_id_push_dispatch")
	r.env = append(r.env, "SEAHUB_REDIS_ADDRESSES=127.0.0.1:1")
	_, code = r.command(t, "bus", "--timeout", "2s")
	require.Equal(t, 1, code, "a broker that is away is no empty table")
}

// partly is a broker that tells some things only.
type partly struct{}

func (partly) Topics(context.Context) ([]string, error) { return []string{"beex-id-events"}, nil }
func (partly) Group(_ context.Context, _, group string) (driver.GroupState, error) {
	if group == "GID_id_ops_snapshot" {
		return driver.GroupState{}, errors.New("the broker of this queue is away")
	}
	return driver.GroupState{InFlight: driver.KnownCount(2), Members: []string{"a"}}, nil
}

func TestWhatTheBrokerDoesNotTellIsUnknownAndNotZero(t *testing.T) {
	view, err := lookAtBus(t.Context(), partly{}, "id", "")
	require.NoError(t, err)
	var text, asJSON bytes.Buffer
	require.NoError(t, printBus(&text, view))
	require.Equal(t, 3*3+4, strings.Count(text.String(), "unknown"), text.String())
	require.Contains(t, text.String(), "the broker of this queue is away")
	require.NoError(t, printJSON(&asJSON, view))
	require.Contains(t, asJSON.String(), `"backlog": null`)
	require.NotContains(t, asJSON.String(), `"backlog": 0`)
}

func TestOpenDeadLettersAreAGauge(t *testing.T) {
	r := newRig(t)
	_, code := r.command(t, "migrate")
	require.Zero(t, code)
	store := outbox.NewDeadLetterStore(r.DB)
	reg := prometheus.NewRegistry()
	w, err := newDeadWatch(r.DB, reg)
	require.NoError(t, err)
	w.every = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx)
	}()
	value := func() (v float64, known bool) {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			return f.GetMetric()[0].GetGauge().GetValue(), true
		}
		return 0, false
	}
	is := func(want float64) func() bool {
		return func() bool { v, known := value(); return known && v == want }
	}
	for _, id := range []string{"push:1", "push:2"} {
		require.NoError(t, store.StoreDeadLetter(ctx, event.DeadLetter{Group: "GID_id_push_dispatch", Tag: "PUSH_DISPATCH", EventID: id, Body: []byte("{}")}))
	}
	testenv.Eventually(t, soon, "both show", is(2))
	r.Exec(t, "UPDATE mq_dead_letter SET status = 'DISCARDED'")
	testenv.Eventually(t, soon, "none is left, and that is known", is(0))
	r.Exec(t, "RENAME TABLE mq_dead_letter TO aside")
	testenv.Eventually(t, soon, "what is unknown is absent", func() bool { _, known := value(); return !known })
	cancel()
	<-done
}
