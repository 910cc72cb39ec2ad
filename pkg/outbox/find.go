package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/event"
)

// Sighting is one place in which an event is, or was left by somebody.
type Sighting struct {
	// Table names the place, State what it is there: a status, or DELAYED, DISCARDED.
	Table string     `json:"table"`
	State string     `json:"state"`
	Type  event.Type `json:"type"`
	// Aggregate and AggregateID name the business row; a dead letter does not tell.
	Aggregate   string `json:"aggregate,omitempty"`
	AggregateID string `json:"aggregate_id,omitempty"`
	// Group is the one that gave up on it, for a dead letter.
	Group    string    `json:"group,omitempty"`
	Attempts int       `json:"attempts"`
	Written  time.Time `json:"written"`
	// Published, Next and Requeued are nil where that has not happened or is not so:
	// Next is when it is due or tried again.
	Published *time.Time `json:"published,omitempty"`
	Next      *time.Time `json:"next,omitempty"`
	Requeued  *time.Time `json:"requeued,omitempty"`
	Why       string     `json:"why,omitempty"`
}

// Find looks for an event everywhere. An event that is nowhere was never committed, or
// its row was purged after the retention.
func (s *Store) Find(ctx context.Context, eventID string) ([]Sighting, error) {
	found, err := s.find(ctx, eventID)
	if err != nil {
		return nil, fmt.Errorf("find event: %w", err)
	}
	return found, nil
}
