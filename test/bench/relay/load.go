package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

// writers are how many business transactions may be open at a time.
const writers = 16

// load is transactions of one event each, begun on a schedule that does not wait for
// the ones before, and what was seen of each. Times count from the load's start.
type load struct {
	first int // number of the first event
	// commit is how long COMMIT took, whole the transaction with it, committed when it
	// had returned; all 0 for a transaction that was not begun.
	commit, whole, committed []time.Duration
	// readable is when the event could first be read from the broker, 0 if never.
	readable []time.Duration

	perSecond, writers int
	length             time.Duration
	// kindOf, unless nil, tells what kind of writer writes an event.
	kindOf func(i int) string
}

// newLoad plans a load.
func (b *bed) newLoad(perSecond int, length time.Duration) *load {
	n := int(length.Seconds() * float64(perSecond))
	l := &load{
		first: b.next, commit: make([]time.Duration, n), whole: make([]time.Duration, n),
		committed: make([]time.Duration, n), readable: make([]time.Duration, n),
		perSecond: perSecond, writers: writers, length: length,
	}
	b.next += n
	return l
}

// latencies are the times from COMMIT's return to the event's being readable. One that
// was readable before its writer knew of the commit took 0.
func (l *load) latencies() []time.Duration {
	var out []time.Duration
	for i, at := range l.readable {
		if at > 0 {
			out = append(out, max(0, at-l.committed[i]))
		}
	}
	return out
}

// apply writes perSecond events a second for a time. If they are relayed it returns
// when all of them can be read. during, if given, runs beside the writers.
func (b *bed) apply(ctx context.Context, perSecond int, length time.Duration, relayed bool, during func(ctx context.Context) error) (*load, error) {
	l := b.newLoad(perSecond, length)
	return l, b.run(ctx, l, relayed, during)
}

// run carries a load out.
func (b *bed) run(ctx context.Context, l *load, relayed bool, during func(ctx context.Context) error) error {
	n := len(l.commit)
	ctx, cancel := context.WithTimeoutCause(ctx, 2*l.length+2*time.Minute, errors.New("the load did not end in time"))
	defer cancel()

	began := time.Now()
	if !relayed {
		return b.write(ctx, l, began, during)
	}
	var unread atomic.Int64
	unread.Store(int64(n))
	following, stopFollowing := context.WithCancel(ctx)
	defer stopFollowing()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { // ends with following, and is waited for
		ended <- b.topic.follow(following, ready, func(key string, at time.Time) {
			i, ok := numberOf(key)
			if i -= l.first; ok && i >= 0 && i < n && l.readable[i] == 0 {
				l.readable[i] = at.Sub(began)
				unread.Add(-1)
			}
		})
	}()
	select {
	case <-ready:
	case err := <-ended:
		return err
	}
	err := b.write(ctx, l, began, during)
	if err == nil {
		err = await(ctx, time.Minute, "every event can be read", func(context.Context) (bool, error) { return unread.Load() == 0, nil })
	}
	stopFollowing()
	return errors.Join(err, <-ended)
}

// write runs the writers and what goes on during their work, to the end of both.
func (b *bed) write(ctx context.Context, l *load, began time.Time, during func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, l.writers+1)
	var next atomic.Int64
	start := time.Now()
	for w := range l.writers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(l.commit); i = int(next.Add(1)) - 1 {
				due := start.Add(time.Duration(i) * time.Second / time.Duration(l.perSecond))
				err := pause(ctx, time.Until(due))
				if err == nil {
					err = b.transaction(ctx, l, i, began)
				}
				if err != nil {
					errs[w] = err
					cancel() // the others need not go on
					return
				}
			}
		})
	}
	if during != nil {
		wg.Go(func() { errs[l.writers] = during(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// transaction is a business transaction: it appends one event by the same function as
// business code.
func (b *bed) transaction(ctx context.Context, l *load, i int, began time.Time) error {
	id := strconv.Itoa(l.first + i)
	head, tail := `{"pushId":"`+id+`","text":"`, `"}`
	e := event.Event{
		EventID: event.PushEventID(id), Type: event.PushDispatch, AggregateType: "push_task", AggregateID: id,
		Payload: []byte(head + strings.Repeat("x", max(0, b.BodyBytes-len(head)-len(tail))) + tail),
	}
	ctx = event.WithTrace(ctx, fmt.Sprintf("00-%032x-%016x-01", i+1, i+1), "req-"+id)
	start := time.Now()
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("write: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	if _, err := outbox.AppendSQL(ctx, tx, e); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if l.kindOf != nil {
		if err := change(ctx, tx, l.kindOf(i), e.EventID, i); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	before := time.Now()
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("write: commit: %w", err)
	}
	after := time.Now()
	l.commit[i], l.whole[i], l.committed[i] = after.Sub(before), after.Sub(start), after.Sub(began)
	return nil
}
