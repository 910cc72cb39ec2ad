package outbox

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/event"
)

// The states of a dead letter.
const (
	DeadOpen      = "OPEN"
	DeadReplayed  = "REPLAYED"
	DeadDiscarded = "DISCARDED"
)

// replayTimeout bounds one replay, the broker's part included.
const replayTimeout = 10 * time.Second

// DeadLetterStore keeps events that a consumer group gave up on until a person decides.
// Safe for concurrent use.
type DeadLetterStore struct{ db *sql.DB }

// NewDeadLetterStore makes a DeadLetterStore on a pool from db.OpenSQL.
func NewDeadLetterStore(pool *sql.DB) *DeadLetterStore { return &DeadLetterStore{db: pool} }

// DeadLetterRow is a stored dead letter. Body and Headers are filled by Get only.
type DeadLetterRow struct {
	ID        int64             `json:"id"`
	Group     string            `json:"group"`
	Topic     string            `json:"topic"`
	Tag       string            `json:"tag"`
	EventID   string            `json:"event_id"`
	Attempts  int               `json:"attempts"`
	Reason    string            `json:"reason"`
	LastError string            `json:"last_error"`
	Status    string            `json:"status"`
	Deaths    int               `json:"deaths"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
	Body      []byte            `json:"-"`
	Headers   map[string]string `json:"headers,omitempty"`
}

// StoreDeadLetter keeps dl as OPEN. The same event of the same group is one row however
// often it dies: the row counts its deaths, takes the latest reason and is open again,
// also after a replay or a discard.
func (s *DeadLetterStore) StoreDeadLetter(ctx context.Context, dl event.DeadLetter) error {
	if err := s.upsert(ctx, dedupKey(dl), dl); err != nil {
		return fmt.Errorf("store dead letter of %s: %w", dl.Group, err)
	}
	return nil
}

// dedupKey names event and group; a message without a key is named by its body. The
// separator cannot occur in a group's name.
func dedupKey(dl event.DeadLetter) string {
	h := sha256.New()
	h.Write([]byte(dl.Group))
	if dl.EventID != "" {
		h.Write([]byte{0})
		h.Write([]byte(dl.EventID))
	} else {
		h.Write([]byte{1})
		h.Write(dl.Body)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// DeadLetterFilter selects dead letters; empty fields select all.
type DeadLetterFilter struct {
	Status string
	Group  string
	Tag    string
	// After is the id that the page begins behind.
	After int64
	Limit int
}

// List reads dead letters in the order of their ids, without bodies.
func (s *DeadLetterStore) List(ctx context.Context, f DeadLetterFilter) ([]DeadLetterRow, error) {
	rows, err := s.list(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return rows, nil
}

// Count counts what a filter selects; After and Limit do not matter.
func (s *DeadLetterStore) Count(ctx context.Context, f DeadLetterFilter) (int64, error) {
	n, err := s.count(ctx, f)
	if err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, nil
}

// OpenByGroup counts the OPEN dead letters of each group that has any.
func (s *DeadLetterStore) OpenByGroup(ctx context.Context) (map[string]int64, error) {
	n, err := s.openByGroup(ctx)
	if err != nil {
		return nil, fmt.Errorf("count open dead letters: %w", err)
	}
	return n, nil
}

// Get reads one dead letter whole.
func (s *DeadLetterStore) Get(ctx context.Context, id int64) (DeadLetterRow, error) {
	return get(ctx, s.db, id, "")
}

// ReplayFunc sends a dead letter's event to its topic again.
type ReplayFunc func(ctx context.Context, dl event.DeadLetter) Outcome

// Replay publishes an OPEN dead letter again, with its stored body, key and headers, and
// marks it after the broker's confirmation. The row is locked meanwhile, so two replays
// at a time send it once. Every group that takes the tag receives it; they recognise
// what they have done by its event_id.
func (s *DeadLetterStore) Replay(ctx context.Context, id int64, act Act, send ReplayFunc) error {
	if err := act.check(); err != nil {
		return fmt.Errorf("replay dead letter %d: %w", id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	err := s.resolve(ctx, id, DeadReplayed, act, func(r DeadLetterRow) error {
		o := send(ctx, event.DeadLetter{
			Group: r.Group, Topic: r.Topic, Tag: r.Tag, EventID: r.EventID, Body: r.Body,
			Headers: r.Headers, Attempts: r.Attempts, Reason: r.Reason, LastError: r.LastError,
		})
		if o.Class != Confirmed {
			return fmt.Errorf("%w (%s): %w", ErrNotConfirmed, o.Class, orUnknown(o.Err))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("replay dead letter %d: %w", id, err)
	}
	return nil
}

// Discard closes an OPEN dead letter for good. The row stays, with who and why.
func (s *DeadLetterStore) Discard(ctx context.Context, id int64, act Act) error {
	if err := act.check(); err != nil {
		return fmt.Errorf("discard dead letter %d: %w", id, err)
	}
	if err := s.resolve(ctx, id, DeadDiscarded, act, func(DeadLetterRow) error { return nil }); err != nil {
		return fmt.Errorf("discard dead letter %d: %w", id, err)
	}
	return nil
}

func orUnknown(err error) error {
	if err == nil {
		return fmt.Errorf("no reason given")
	}
	return err
}
