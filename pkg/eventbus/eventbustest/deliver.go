package eventbustest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus"
)

// An event that was published before its first consumer ever ran is delivered.
func publishBeforeFirstSubscriber(s *scene) {
	p := s.process()
	msgs := s.messages(10, tagA)
	p.publish(msgs...)
	var got seen
	p.subscribe(eventbus.Subscription{Group: s.group("early")}, got.done)
	s.eventually("every message that was published before is delivered", func() bool { return got.hasAll(msgs) })
}

// Every group gets every message; the members of a group share them.
func everyGroupGetsAll(s *scene) {
	const groups, members = 3, 3
	publisher := s.process()
	type group struct {
		all     seen
		members [members]seen
	}
	var gs [groups]group
	for m := range members {
		p := s.process() // one process holds one member of each group
		for g := range groups {
			p.subscribe(eventbus.Subscription{Group: s.group(fmt.Sprintf("share%d", g))},
				func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
					gs[g].all.add(d)
					time.Sleep(2 * time.Millisecond) // leave something for siblings
					return gs[g].members[m].done(ctx, d)
				}).connected()
		}
	}
	msgs := s.messages(300, tagA)
	for i := 0; i < len(msgs); i += 50 {
		publisher.publish(msgs[i : i+50]...)
	}
	for g := range groups {
		s.eventually(fmt.Sprintf("group %d has every message", g), func() bool { return gs[g].all.hasAll(msgs) })
	}
	s.calm()
	for g := range groups {
		s.once(fmt.Sprintf("group %d", g), gs[g].all.count(), len(msgs))
		for m := range members {
			if gs[g].members[m].count() == 0 {
				s.Errorf("member %d of group %d had nothing to do", m, g)
			}
		}
	}
}

// One tag, several tags, all tags.
func tags(s *scene) {
	p := s.process()
	var one, several, all seen
	p.subscribe(eventbus.Subscription{Group: s.group("one"), Tags: []string{tagA}}, one.done)
	p.subscribe(eventbus.Subscription{Group: s.group("several"), Tags: []string{tagB, tagA}}, several.done)
	p.subscribe(eventbus.Subscription{Group: s.group("all")}, all.done)
	a, b, c := s.messages(5, tagA), s.messages(5, tagB), s.messages(5, tagC)
	p.publish(a...)
	p.publish(b...)
	p.publish(c...)
	s.eventually("the group of one tag has it", func() bool { return one.hasAll(a) })
	s.eventually("the group of two tags has them", func() bool { return several.hasAll(a) && several.hasAll(b) })
	s.eventually("the group of all tags has all", func() bool { return all.hasAll(a) && all.hasAll(b) && all.hasAll(c) })
	s.calm()
	for _, g := range []struct {
		name string
		got  *seen
		want int
	}{{"one tag", &one, 5}, {"two tags", &several, 10}, {"all tags", &all, 15}} {
		if n := g.got.count(); n != g.want {
			s.Errorf("the group of %s had %d deliveries, want %d", g.name, n, g.want)
		}
	}
}

// What a group does not want is finished for it: no backlog, no age, no handler run.
func unmatchedTagsAreNoLag(s *scene) {
	p := s.process()
	var got seen
	group := s.group("picky")
	p.subscribe(eventbus.Subscription{Group: group, Tags: []string{tagA}}, got.done).connected()
	for range 4 {
		p.publish(s.messages(250, tagB)...)
	}
	p.publish(s.messages(1, tagA)...)
	s.eventually("the one wanted message is delivered", func() bool { return got.count() == 1 })
	s.noBacklog(p, group)
	if got.count() != 1 {
		s.Errorf("the handler ran %d times, one message was wanted", got.count())
	}
}

func (s *scene) noBacklog(p *process, group string) {
	s.Helper()
	var last string
	defer func() {
		if s.Failed() {
			s.Logf("group state was %s", last)
		}
	}()
	s.eventually("backlog, in flight, parked and oldest age of "+group+" are zero and known", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), s.h.Patience)
		defer cancel()
		g, err := p.Inspector().Group(ctx, s.topic, group)
		last = fmt.Sprintf("%+v, %v", g, err)
		return err == nil && g.Backlog.Known && g.Backlog.N == 0 && g.InFlight.N == 0 && g.Parked.N == 0 &&
			g.OldestAge.Known && g.OldestAge.D == 0
	})
}

// Body, key and headers arrive as they were sent, whatever they hold.
func contentUnchanged(s *scene) {
	p := s.process()
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	big := make([]byte, 1<<20)
	_, _ = rand.Read(big)
	msgs := []eventbus.Message{
		{Topic: s.topic, Tag: tagA, Key: "content:plain", Body: []byte(`{"id":9007199254740993,"sku":"1234567890123456789","price":100.00,"rate":1e2}`)}, // what Java's publisher sends
		{Topic: s.topic, Tag: tagA, Key: "content:binary", Body: binary},
		{Topic: s.topic, Tag: tagA, Key: "content:big", Body: big},
		{Topic: s.topic, Tag: tagA, Key: "content:größe-优惠券-🎟", Body: []byte("0"), Headers: map[string]string{
			"aggregate-id": "id:4711", eventbus.HeaderCountry: s.room.Country, eventbus.HeaderEnv: s.room.Env,
			eventbus.HeaderCreatedAt: time.Now().UTC().Format(time.RFC3339Nano), "größe": "优惠券 🎟: \"{}\" 7:x", "long": strings.Repeat("x", 4000)}},
	}
	p.publish(msgs...)
	var got seen
	p.subscribe(eventbus.Subscription{Group: s.group("content")}, got.done)
	s.eventually("all are delivered", func() bool { return got.hasAll(msgs) })
	byKey := map[string]arrival{}
	for _, a := range got.list() {
		byKey[a.Key] = a
	}
	for _, m := range msgs {
		a := byKey[m.Key]
		if !bytes.Equal(a.Body, m.Body) {
			s.Errorf("%s: body changed: %d bytes sent, %d received", m.Key, len(m.Body), len(a.Body))
		}
		if a.Tag != m.Tag || a.Topic != m.Topic || a.Attempt != 1 {
			s.Errorf("%s: got tag %q, topic %q, attempt %d", m.Key, a.Tag, a.Topic, a.Attempt)
		}
		for name, want := range m.Headers {
			if a.Headers[name] != want {
				s.Errorf("%s: header %q changed from %q to %q", m.Key, name, want, a.Headers[name])
			}
		}
		if a.Group != s.group("content") {
			s.Errorf("%s: delivered for group %q", m.Key, a.Group)
		}
	}
	if age := time.Since(byKey["content:plain"].PublishedAt); age < -time.Minute || age > 10*time.Minute {
		s.Errorf("PublishedAt is %s ago", age)
	}
}

// One refused message in a batch takes none of the others with it, and results come
// in the order of the messages.
func resultPerMessage(s *scene) {
	p := s.process()
	msgs := s.messages(7, tagA)
	msgs[1].Body = make([]byte, 8<<20)
	msgs[3].Tag = ""
	msgs[5].Topic = "beex-nowhere-events"
	before := s.room.Stored(s)
	ctx, cancel := context.WithTimeout(context.Background(), s.h.Patience)
	defer cancel()
	results := p.Publisher().PublishBatch(ctx, msgs)
	if len(results) != len(msgs) {
		s.Fatalf("%d results for %d messages", len(results), len(msgs))
	}
	ids := map[string]bool{}
	for i, r := range results {
		if i%2 == 1 {
			if r.Status != eventbus.Refused || r.Err == nil {
				s.Errorf("message %d can never be published, but its result is %s, %v", i, r.Status, r.Err)
			}
			continue
		}
		if r.Status != eventbus.Confirmed || r.BrokerID == "" {
			s.Errorf("message %d: %s %q %v", i, r.Status, r.BrokerID, r.Err)
		}
		ids[r.BrokerID] = true
	}
	if len(ids) != 4 {
		s.Errorf("four messages have %d broker ids", len(ids))
	}
	if n := s.room.Stored(s) - before; n != 4 {
		s.Errorf("the broker stored %d messages, four were confirmed", n)
	}
	if p.Publisher().PublishBatch(ctx, nil) != nil {
		s.Errorf("an empty batch has results")
	}
	if err := p.Publisher().Publish(ctx, s.topic, tagA, "single", []byte("{}")); err != nil {
		s.Errorf("Publish: %v", err)
	}
}

// A message that is published twice is delivered twice, with the same key: consumers
// recognise it, the bus does not hide it.
func duplicatePublish(s *scene) {
	p := s.process()
	m := s.messages(1, tagA)[0]
	p.publish(m, m)
	var got seen
	p.subscribe(eventbus.Subscription{Group: s.group("dup")}, got.done)
	s.eventually("both copies are delivered", func() bool { return got.keys()[m.Key] == 2 })
}

// While nobody consumes, the backlog shows what waits and for how long; after
// everything is done both are zero.
func backlog(s *scene) {
	p := s.process()
	group := s.group("backlog")
	var got seen
	// The group exists once it was subscribed; then its members go away.
	p.subscribe(eventbus.Subscription{Group: group}, got.done).connected().end()
	started := time.Now()
	p.publish(s.messages(20, tagA)...)
	ctx, cancel := context.WithTimeout(context.Background(), s.h.Patience)
	defer cancel()
	time.Sleep(50 * time.Millisecond)
	g, err := p.Inspector().Group(ctx, s.topic, group)
	if err != nil {
		s.Fatalf("inspect: %v", err)
	}
	if !g.Backlog.Known || g.Backlog.N != 20 {
		s.Errorf("20 messages wait, backlog is %+v", g.Backlog)
	}
	if most := time.Since(started) + time.Second; !g.OldestAge.Known || g.OldestAge.D <= 0 || g.OldestAge.D > most {
		s.Errorf("the oldest message waits for less than %s, oldest age is %+v", most, g.OldestAge)
	}
	topics, err := p.Inspector().Topics(ctx)
	if err != nil || len(topics) != 1 || topics[0] != s.topic {
		s.Errorf("topics are %v, %v; want %s", topics, err, s.topic)
	}

	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	p.subscribe(eventbus.Subscription{Group: group}, func(ctx context.Context, d eventbus.Delivery) eventbus.Outcome {
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return got.done(ctx, d)
	})
	s.eventually("handlers run and show as in flight, of this process and of the group", func() bool {
		st := p.State(group)
		shown := st.InFlight.Known && st.InFlight.N >= 4
		if s.h.Traits.OnlyBacklog {
			shown = !st.InFlight.Known && !st.Parked.Known
		}
		return st.InHand == 4 && shown && st.Backlog.N == 20
	})
	if g, err = p.Inspector().Group(ctx, s.topic, group); err != nil || len(g.Members) != 1 {
		s.Errorf("members are %v, %v; one is at work", g.Members, err)
	}
	release()
	s.eventually("all are done", func() bool { return got.count() == 20 })
	s.noBacklog(p, group)
	s.metricsSayZeroThenNothing(p)
}

// metricsSayZeroThenNothing: what is known to be zero is exported as zero; what nobody
// knows must not look like it.
func (s *scene) metricsSayZeroThenNothing(p *process) {
	s.Helper()
	s.eventually("the metrics say so too", func() bool {
		want := map[string]float64{"seahub_bus_backlog": 0, "seahub_bus_oldest_age_seconds": 0}
		if !s.h.Traits.OnlyBacklog {
			want["seahub_bus_in_flight"], want["seahub_bus_parked"] = 0, 0
		}
		return maps.Equal(p.gauges(s), want)
	})
	p.link.Cut()
	s.eventually("with the broker away the figures are absent", func() bool { return len(p.gauges(s)) == 0 })
}

// gauges are the exported figures of the broker.
func (p *process) gauges(s *scene) map[string]float64 {
	families, err := p.metrics.Gather()
	if err != nil {
		s.Fatalf("gather metrics: %v", err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "seahub_bus_") {
			out[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return out
}
