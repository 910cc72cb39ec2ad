package redisstreams

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

func handFlights(t *testing.T) (f *flights, deliver func() *flight) {
	t.Helper()
	f = newFlights(2, newOutcomes(), func() {}) // the test is the worker
	return f, func() *flight {
		t.Helper()
		page := make([]flight, 1)
		page[0].id = "1-0"
		page[0].Init(t.Context(), time.Time{})
		f.add(page)
		return f.next(true)
	}
}

// A parked message may come due and be handed out again before the member has seen the
// answer to its park: it is a delivery like any other, and what is told of the first one
// no longer touches it.
func TestAMessageHandedOutAnewIsStarted(t *testing.T) {
	for name, end := range map[string]func(f *flights, fl *flight) []settlement{
		"parked": func(f *flights, fl *flight) []settlement {
			f.finish(fl, settlement{fl: fl}, false)
			return f.outcomes.take()
		},
		"lost": func(f *flights, fl *flight) []settlement {
			f.lose([]string{fl.id}, errors.New("taken"))
			return []settlement{{fl: fl}}
		},
	} {
		f, deliver := handFlights(t)
		first := deliver()
		told := end(f, first)
		second := deliver()
		if second == nil || second == first {
			t.Fatalf("%s: the second delivery was not started", name)
		}
		if acks, parks := f.sort(told); len(acks)+len(parks) != 0 {
			t.Errorf("%s: the server is told of a delivery that is over", name)
		}
		if f.drop(told); !f.has("1-0") {
			t.Errorf("%s: the second delivery was forgotten with the first", name)
		}
		f.finish(second, settlement{fl: second, ack: true}, false)
		if acks, _ := f.sort([]settlement{{fl: second, ack: true}}); len(acks) != 1 {
			t.Errorf("%s: the outcome of the second delivery is not told", name)
		}
	}
}

// While its callback runs a message is not started twice.
func TestAMessageInHandIsNotStartedTwice(t *testing.T) {
	_, deliver := handFlights(t)
	deliver()
	if again := deliver(); again != nil {
		t.Error("it was started again")
	}
}

// An answer to a renewal may be older than what the server has handed out since: a
// message that was given up for it, and is this member's all the same, is no member's to
// take over and would stay in hand for ever.
func TestAMessageThatWasGivenUpByMistakeGoesBack(t *testing.T) {
	server := testenv.Redis(t)
	env := strings.ToLower(server.Namespace(t))
	d, err := New(Config{Addresses: []string{server.Addr}}, Options{Env: env, Country: "id", Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	k, err := d.names.of("beex-id-events")
	if err != nil {
		t.Fatal(err)
	}
	const group = "GID_id_test"
	if _, err := d.ensureGroup(t.Context(), k, group); err != nil {
		t.Fatal(err)
	}
	d.Send(t.Context(), []driver.Message{{Topic: "beex-id-events", Tag: "A", Key: "k", Body: []byte("{}")}})
	log := zerolog.Nop()
	m := &member{d: d, keys: k, name: "this", sub: driver.Subscription{Group: group}, log: &log, due: make(chan struct{}, 1)}
	f := newFlights(1, newOutcomes(), func() {})
	m.flights = f
	read, err := d.cmd.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: group, Consumer: m.name, Streams: []string{k.stream, ">"}, Count: 1, Block: -1}).Result()
	if err != nil {
		t.Fatal(err)
	}
	page := make([]flight, 1)
	page[0].id, page[0].count = read[0].Messages[0].ID, 1
	page[0].Init(t.Context(), time.Time{})
	f.add(page)
	f.next(true)

	m.lose([]string{page[0].id})
	if err := (&fetcher{member: m, ensured: true}).prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := d.cmd.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: k.stream, Group: group, Start: "-", End: "+", Count: 10}).Result()
	if err != nil || len(p) != 1 || p[0].Consumer != parkingName || p[0].RetryCount != 0 {
		t.Errorf("pending is %+v, %v: want it parked, no attempt spent", p, err)
	}
}
