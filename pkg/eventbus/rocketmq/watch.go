package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

const (
	// unknownAfter is how long a broker may not know a member before that is made
	// anew. A heartbeat tells the broker only every 30 s; a connection that broke has
	// also left fetches behind that wait for 30 s.
	unknownAfter = 5 * time.Second
	// Every so many looks the watch asks for more than whether the member is known.
	looksPerProgress = 5
)

// watch looks at one member from outside.
type watch struct {
	m            *member
	queues       []remoting.Queue
	unknownSince time.Time
	looks        int
	progress     map[queueKey]position
	mixed        bool
	noRoute      bool
}

// position is how far the group was on a queue, and since when.
type position struct {
	committed int64
	since     time.Time
}

// serve lets the member work until ctx ends, a handler said Halt, or the member has to
// be replaced, and says why.
func (m *member) serve(ctx context.Context) cause {
	watching, stopWatching := context.WithCancel(ctx)
	bad := make(chan cause, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.watch(watching, bad)
	}()
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		m.flush(watching)
	}()
	defer func() { // bounded by the calls' own timeouts, which the context cuts
		stopWatching()
		<-done
		waits(flushed, flushPatience)
	}()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		m.r.sub.Beat()
		select {
		case <-ctx.Done():
			return cause{}
		case <-m.r.halted:
			return cause{}
		case c := <-bad:
			return c
		case <-beat.C:
		}
	}
}

// flush tells the broker the offsets more often than the client does, so that a killed
// process repeats little.
func (m *member) flush(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if m.dirty.Swap(false) {
			m.persist()
		}
	}
}

func (m *member) watch(ctx context.Context, bad chan<- cause) {
	w := &watch{m: m, progress: map[queueKey]position{}}
	every := min(m.r.d.cfg.WatchEvery, 200*time.Millisecond) // soon at first, to say that it works
	for ctx.Err() == nil {
		c := w.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if c.err != nil {
			bad <- c
			return
		}
		if m.isBalanced() {
			every = m.r.d.cfg.WatchEvery
		}
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

func (m *member) isBalanced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.balanced
}

// look asks once, reports what it means, and returns a cause when the member has to be
// replaced.
func (w *watch) look(ctx context.Context) cause {
	r := w.m.r
	queues, err := r.d.ask.Route(ctx, r.sub.Topic)
	switch {
	case err == nil:
		w.queues, w.noRoute = queues, false
		w.m.mu.Lock()
		w.m.queues = queues
		w.m.mu.Unlock()
	case ctx.Err() != nil:
		return cause{}
	case w.queues == nil || errors.Is(err, remoting.ErrTopicMissing):
		r.trouble(r.d.explain(ctx, err, r.sub.Topic, r.sub.Group))
		return cause{}
	case !w.noRoute:
		// Name servers are needed by those who start; who works goes on without.
		w.noRoute = true
		r.log.Warn().Err(err).Msg("name server does not answer, the subscription goes on with the brokers that it knows")
	}
	members, err := r.d.ask.MembersOn(ctx, w.queues, r.sub.Group)
	switch {
	case ctx.Err() != nil:
		return cause{}
	case errors.Is(err, remoting.ErrUnreachable):
		w.unknownSince = time.Time{}
		r.trouble(r.d.explain(ctx, err, r.sub.Topic, r.sub.Group))
		return cause{}
	case err != nil: // refused, on a managed cluster perhaps: then the rebalance must do
	case !w.m.isIn(members):
		return w.unknown()
	}
	w.unknownSince = time.Time{}
	if w.m.isBalanced() {
		r.served()
	}
	w.looks++
	if w.looks%looksPerProgress != 0 {
		return cause{}
	}
	w.compareTags(ctx)
	return w.checkProgress(ctx)
}

func (m *member) isIn(ids []string) bool {
	for _, id := range ids {
		if strings.HasSuffix(id, "@"+m.instance) {
			return true
		}
	}
	return false
}

func (w *watch) unknown() cause {
	if w.unknownSince.IsZero() {
		w.unknownSince = time.Now()
	}
	err := errors.New("the broker does not know this member: it restarted, or the connection broke")
	w.m.r.trouble(err)
	if time.Since(w.unknownSince) < unknownAfter {
		return cause{}
	}
	return cause{"unknown to the broker", err}
}

// compareTags tells when another member of the group wants something else.
func (w *watch) compareTags(ctx context.Context) {
	r := w.m.r
	s, err := r.d.ask.GroupSubscription(ctx, w.queues, r.sub.Group)
	if err != nil {
		return
	}
	mixed := len(s.Members) > 0 && r.differs(s.Tags)
	gauge := r.d.metrics.mixedTags.WithLabelValues(r.sub.Group)
	gauge.Set(0)
	if mixed {
		gauge.Set(1)
	}
	if mixed && !w.mixed {
		r.log.Error().Strs("members", s.Members).Str("theirs", describe(s.Tags[r.sub.Topic])).Str("ours", describe(r.tags)).
			Msg("members of the group subscribe to different tags: the broker filters events away from members that want them")
	}
	w.mixed = mixed
}

// checkProgress finds queues of this member that hold messages, on which it works at
// none, and whose offset does not move.
func (w *watch) checkProgress(ctx context.Context) cause {
	m := w.m
	mine := m.share()
	maps.DeleteFunc(w.progress, func(k queueKey, _ position) bool { _, ok := mine[k]; return !ok })
	for _, q := range w.queues {
		key := queueKey{q.Topic, q.Broker, q.ID}
		busy, ok := mine[key]
		if !ok {
			continue
		}
		committed, err := m.r.d.ask.GroupOffset(ctx, q, m.r.sub.Group)
		if err != nil {
			return cause{} // refused, or away for a moment
		}
		end, err := m.r.d.ask.MaxOffset(ctx, q)
		if err != nil {
			return cause{}
		}
		old, seen := w.progress[key]
		if !seen || busy || committed.N != old.committed || committed.N >= end {
			w.progress[key] = position{committed.N, time.Now()}
			continue
		}
		if waits := time.Since(old.since); waits > m.r.d.cfg.StuckAfter {
			return cause{"queue stands still", fmt.Errorf("queue %d of broker %s holds %d messages and has not moved for %s", q.ID, q.Broker, end-committed.N, waits.Round(time.Second))}
		}
	}
	return cause{}
}

// share is the queues of the topic that this member has, and whether it works on one
// of their messages. A member without a free slot works on all of them.
func (m *member) share() map[queueKey]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	full := len(m.r.slots) == 0
	out := map[queueKey]bool{}
	for _, keys := range m.shares {
		for _, k := range keys {
			out[k] = full || m.inHand[k] > 0
		}
	}
	return out
}

func waits(done <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
