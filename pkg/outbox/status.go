package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/lease"
)

// Store is the operator's side: it looks, requeues, discards and purges. Safe for
// concurrent use.
type Store struct{ db *sql.DB }

// NewStore makes a Store on a pool from db.OpenSQL.
func NewStore(pool *sql.DB) *Store { return &Store{db: pool} }

// Counting stops there: beyond it a figure only says "at least". Gauges are read every
// few seconds and need no more than the order of magnitude.
const (
	statusCap = 100_000
	gaugeCap  = 10_000
)

// Count is a number of rows. AtLeast says that counting stopped at N.
type Count struct {
	N       int64 `json:"n"`
	AtLeast bool  `json:"at_least"`
}

func (c Count) String() string {
	if c.AtLeast {
		return fmt.Sprintf("≥ %d", c.N)
	}
	return fmt.Sprint(c.N)
}

// Queue is the state of the tables.
type Queue struct {
	Pending Count `json:"pending"`
	// OldestPending is the age of the oldest PENDING event, 0 if there is none.
	OldestPending time.Duration `json:"oldest_pending_ns"`
	// BackedOff are PENDING events that wait for their next attempt.
	BackedOff Count `json:"backed_off"`
	Failed    Count `json:"failed"`
	Delayed   Count `json:"delayed"`
	// NextDelayed is how long until the next delayed event is due, 0 if none waits or
	// one is due.
	NextDelayed time.Duration `json:"next_delayed_ns"`
	DeadLetters Count         `json:"open_dead_letters"`
}

// Status is what an operator looks at first.
type Status struct {
	Queue
	// PublishedLastMinute counts by the database's clock.
	PublishedLastMinute Count        `json:"published_last_minute"`
	OldestPublished     *time.Time   `json:"oldest_published"`
	Leases              []lease.Info `json:"leases"`
	Zone                Zone         `json:"zone"`
	// HistoryList is the server's history list length, nil where it does not tell. It
	// grows while an old snapshot is open somewhere, and marked rows then stay in the
	// index that the relay reads.
	HistoryList *int64 `json:"history_list_length"`
}

// Status reads the figures. Counting is capped, so that it is cheap on any table.
func (s *Store) Status(ctx context.Context) (Status, error) {
	var st Status
	var err error
	if st.Queue, err = s.queue(ctx, statusCap); err != nil {
		return st, err
	}
	if st.PublishedLastMinute, err = s.count(ctx, sqlPublishedLastMinute, statusCap); err != nil {
		return st, err
	}
	if st.OldestPublished, err = s.oldestPublished(ctx); err != nil {
		return st, err
	}
	if st.Leases, err = lease.New(s.db).List(ctx, LeasePrefix); err != nil {
		return st, err
	}
	if st.HistoryList, err = s.historyList(ctx); err != nil {
		return st, err
	}
	st.Zone, err = s.CheckZone(ctx)
	return st, err
}

func (s *Store) queue(ctx context.Context, most int64) (Queue, error) {
	var q Queue
	var err error
	for _, c := range []struct {
		into  *Count
		query string
	}{
		{&q.Pending, sqlPending}, {&q.BackedOff, sqlBackedOff}, {&q.Failed, sqlFailed},
		{&q.Delayed, sqlDelayed}, {&q.DeadLetters, sqlOpenDeadLetters},
	} {
		if *c.into, err = s.count(ctx, c.query, most); err != nil {
			return q, err
		}
	}
	if q.OldestPending, err = s.duration(ctx, sqlOldestPending); err != nil {
		return q, err
	}
	q.NextDelayed, err = s.duration(ctx, sqlNextDelayed)
	return q, err
}

// count runs a query that counts up to its limit, the only parameter.
func (s *Store) count(ctx context.Context, query string, most int64) (Count, error) {
	var c Count
	if err := s.db.QueryRowContext(ctx, query, most).Scan(&c.N); err != nil {
		return c, fmt.Errorf("count: %w", err)
	}
	c.AtLeast = c.N >= most
	return c, nil
}

// duration runs a query for microseconds; no row and a negative value are 0.
func (s *Store) duration(ctx context.Context, query string) (time.Duration, error) {
	var us int64
	err := s.db.QueryRowContext(ctx, query).Scan(&us)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("read an age: %w", err)
	}
	return max(0, time.Duration(us)*time.Microsecond), nil
}
