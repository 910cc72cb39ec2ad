package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/dev/books"
	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

const (
	feedWriters = 6
	feedTime    = 40 * time.Second
	// laterBy is how far ahead pushes of the later kind are due.
	laterBy = 6 * time.Second
	// Of the transactions, one in rollBackEach is rolled back and one in laterEach is
	// for a push that is due later.
	rollBackEach, laterEach = 20, 17
)

// errChangedMind is why a business transaction rolls back.
var errChangedMind = errors.New("the business changed its mind")

// feed plays the business: it writes pushes and their events, at an even pace.
type feed struct {
	db     *gorm.DB
	cast   *cast
	pushes int
	begun  atomic.Int64
	more   atomic.Int64

	mu   sync.Mutex
	plan books.Plan
}

func newFeed(s *stack.Stack, c *cast, pushes int) (*feed, error) {
	g, err := db.Open(db.Config{DSN: s.DSN, TimeZone: s.Env["SEAHUB_DB_TIME_ZONE"], MaxOpen: feedWriters,
		DialTimeout: 5 * time.Second, IOTimeout: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	return &feed{db: g, cast: c, pushes: pushes, plan: books.Plan{DeadTokens: c.dead}}, nil
}

func (f *feed) close() {
	if pool, err := f.db.DB(); err == nil {
		_ = pool.Close()
	}
}

// play begins one transaction after the other until all are done.
func (f *feed) play(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var wg sync.WaitGroup
	for range feedWriters {
		wg.Go(func() {
			for n := range numbers {
				if err := f.write(ctx, n); err != nil {
					cancel(err)
				}
			}
		})
	}
	pace := time.NewTicker(feedTime / time.Duration(f.pushes))
	defer pace.Stop()
	for n := 0; n < f.pushes && ctx.Err() == nil; n++ {
		select {
		case <-ctx.Done():
		case <-pace.C:
			numbers <- n
			f.begun.Add(1)
		}
	}
	close(numbers)
	wg.Wait()
	return context.Cause(ctx)
}

// write is one business transaction: the row and its event, together or not at all.
func (f *feed) write(ctx context.Context, n int) error {
	c := books.Commit{
		PushID: fmt.Sprintf("push-%05d", n),
		// 7919 is prime: the users come in no order, each as often as the others.
		UserID: f.cast.users[n*7919%len(f.cast.users)],
		Text:   fmt.Sprintf("Your order %05d is on its way", n),
		Later:  n%laterEach == laterEach-1,
	}
	rollBack := n%rollBackEach == rollBackEach-1
	err := db.InTx(ctx, f.db, func(tx *gorm.DB) error {
		if err := insertPush(ctx, tx, c); err != nil {
			return err
		}
		if rollBack {
			return errChangedMind
		}
		c.At = time.Now()
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case rollBack && errors.Is(err, errChangedMind):
		f.plan.RolledBack = append(f.plan.RolledBack, c.PushID)
	case err != nil:
		return fmt.Errorf("business transaction of %s: %w", c.PushID, err)
	default:
		f.plan.Committed = append(f.plan.Committed, c)
	}
	return nil
}

// insertPush is what a team writes in its own code.
func insertPush(ctx context.Context, tx *gorm.DB, c books.Commit) error {
	wait := time.Duration(0)
	if c.Later {
		wait = laterBy
	}
	err := tx.WithContext(ctx).Exec(`INSERT INTO push_messages (id, user_id, title, body, due_at, expires_at)
		VALUES (?, ?, 'Order', ?, NOW(3) + INTERVAL ? MICROSECOND, NOW(3) + INTERVAL 1 HOUR)`,
		c.PushID, c.UserID, c.Text, wait.Microseconds()).Error
	if err != nil {
		return fmt.Errorf("insert the push: %w", err)
	}
	e, err := event.PushDispatched(c.PushID)
	if err != nil {
		return err
	}
	if c.Later {
		_, err = outbox.AppendAfter(ctx, tx, wait, e)
	} else {
		_, err = outbox.Append(ctx, tx, e)
	}
	return err
}

// another commits one more push, beyond those that were to be written.
func (f *feed) another(ctx context.Context) error {
	const plain = rollBackEach * laterEach // its multiples are neither rolled back nor due later
	return f.write(ctx, (f.pushes/plain+int(f.more.Add(1)))*plain)
}

// share is how much of the feed has begun, from 0 to 1.
func (f *feed) share() float64 { return float64(f.begun.Load()) / float64(f.pushes) }

// done returns a copy of the plan so far.
func (f *feed) done() books.Plan {
	f.mu.Lock()
	defer f.mu.Unlock()
	return books.Plan{
		Committed:  append([]books.Commit(nil), f.plan.Committed...),
		RolledBack: append([]string(nil), f.plan.RolledBack...),
		DeadTokens: f.plan.DeadTokens,
	}
}
