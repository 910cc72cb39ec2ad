// Package lease decides who works, by rows of mq_lease.
//
// # Protocol
//
// A lease is a row: name, owner, fence, locked_until. Whoever inserts the row, or
// updates one whose locked_until has passed, holds the lease until locked_until; the
// database's clock decides. Each acquisition, and nothing else, raises fence by one,
// so a write that carries an older fence can be told from the holder's.
//
//	free ──Acquire──▶ held ──Renew──▶ held (later end)
//	  ▲                │ │
//	  │    Release ────┘ └──── locked_until passes ──▶ free, the old holder has ErrLost
//
// Owners are unique per acquisition (host, pid, random part), so that a process can
// neither renew nor free what another one on its host holds.
//
// # Trust
//
// A holder counts its time from before the statement that gave it the lease, on its
// monotonic clock, and stops a margin before the end: its own clock cannot make it
// believe longer than the database does. A process that is frozen does not notice
// that its lease ends; whatever must be exclusive even then needs the fence, a row
// lock or a CAS in the write itself. A lease is about efficiency.
//
// # Failure
//
// A renewal that fails is tried again until the margin; then, or as soon as the row
// names another owner, the work's context ends with ErrLost as its cause. A holder
// that dies is replaced after its time to live. A row that is deleted by hand is the
// loss of the lease.
package lease

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/seahub/seahub-mq/pkg/db"
)

// Errors that callers test.
var (
	// ErrHeld: somebody else has the lease now.
	ErrHeld = errors.New("lease is held by another")
	// ErrLost: the lease was ours and is not any more.
	ErrLost = errors.New("lease is lost")
)

// Lease is one acquisition.
type Lease struct {
	Name  string
	Owner string
	Fence int64
	// until is when the holder stops trusting it, on the monotonic clock.
	until time.Time
	ttl   time.Duration
}

// ValidFor reports whether the lease will still be trusted after d.
func (l Lease) ValidFor(d time.Duration) bool { return time.Until(l.until) > d }

// Store speaks to mq_lease. Give it a pool of its own where the work may use up
// another one: renewals must not queue behind the work. Safe for concurrent use.
type Store struct{ db *sql.DB }

// New makes a Store on a pool from db.OpenSQL.
func New(pool *sql.DB) *Store { return &Store{db: pool} }

// NewOwner names this process and this acquisition: host/pid/random.
func NewOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if len(host) > 80 {
		host = host[:80]
	}
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}

// margin is the part of the time to live in which a holder no longer trusts its lease.
func margin(ttl time.Duration) time.Duration { return ttl / 5 }

// Acquire takes the lease for ttl (whole milliseconds, at least 1 s) or returns
// ErrHeld. owner must be new for each acquisition (NewOwner).
func (s *Store) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Lease, error) {
	if ttl < time.Second {
		return Lease{}, fmt.Errorf("lease %s: a time to live of %s is too short, at least 1s", name, ttl)
	}
	began := time.Now()
	taken, err := s.take(ctx, name, owner, ttl)
	if err != nil {
		return Lease{}, fmt.Errorf("acquire lease %s: %w", name, err)
	}
	if !taken {
		return Lease{}, fmt.Errorf("%w: %s", ErrHeld, name)
	}
	var fence int64
	err = s.db.QueryRowContext(ctx, sqlFence, name, owner).Scan(&fence)
	if errors.Is(err, sql.ErrNoRows) {
		return Lease{}, fmt.Errorf("%w: %s was taken over at once", ErrLost, name)
	}
	if err != nil {
		return Lease{}, fmt.Errorf("acquire lease %s: read its fence: %w", name, err)
	}
	return Lease{Name: name, Owner: owner, Fence: fence, until: began.Add(ttl - margin(ttl)), ttl: ttl}, nil
}

// take updates a free row, or inserts the first one.
func (s *Store) take(ctx context.Context, name, owner string, ttl time.Duration) (bool, error) {
	us := ttl.Microseconds()
	n, err := s.exec(ctx, sqlTake, owner, us, name)
	if err != nil || n == 1 {
		return n == 1, err
	}
	_, err = s.exec(ctx, sqlInsert, name, owner, us)
	if db.IsDuplicate(err) {
		return false, nil
	}
	return err == nil, err
}

// Renew prolongs the lease by its time to live from now on, or returns ErrLost.
func (s *Store) Renew(ctx context.Context, l Lease) (Lease, error) {
	began := time.Now()
	n, err := s.exec(ctx, sqlRenew, l.ttl.Microseconds(), l.Name, l.Owner, l.Fence)
	if err != nil {
		return l, fmt.Errorf("renew lease %s: %w", l.Name, err)
	}
	if n != 1 {
		return l, fmt.Errorf("%w: %s", ErrLost, l.Name)
	}
	l.until = began.Add(l.ttl - margin(l.ttl))
	return l, nil
}

// Release frees the lease at once. Releasing a lost one is ErrLost and frees nothing.
func (s *Store) Release(ctx context.Context, l Lease) error {
	n, err := s.exec(ctx, sqlRelease, l.Name, l.Owner, l.Fence)
	if err != nil {
		return fmt.Errorf("release lease %s: %w", l.Name, err)
	}
	if n != 1 {
		return fmt.Errorf("%w: %s", ErrLost, l.Name)
	}
	return nil
}

func (s *Store) exec(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := s.db.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}
