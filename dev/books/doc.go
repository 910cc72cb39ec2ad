// Package books judges a run by evidence that the code under test does not write: what
// the feeder did (Plan), what the business tables say (Tables) and what the outside
// services were asked for (Record). It holds what was promised against what happened,
// push by push, coupon by coupon, product by product and alert by alert, and reports
// every difference with its ids.
//
// It imports no room of the project: a fault in one cannot hide itself here.
package books

import "time"

// Plan is what the feeder did, kept in its own memory.
type Plan struct {
	Committed  []Commit
	RolledBack []string // push ids
	// DeadTokens are those that the provider answers UNREGISTERED.
	DeadTokens []string

	Country   string
	Coupons   []Coupon
	Campaigns []Campaign
	MustTell  []MustTell
}

// Record is what the outside services recorded: the push provider's requests, the calls
// of the campaign platform, and what people read in the chat.
type Record struct {
	Requests []Request
	Calls    []Call
	Told     []Told
}

// Commit is one push whose business transaction committed.
type Commit struct {
	PushID string
	UserID string
	// Text is what the user is to read.
	Text string
	// At is the moment just before COMMIT was sent.
	At time.Time
	// Later says that the push was to be sent some time after its commit.
	Later bool
}

// Request is one request for a device as the provider recorded it.
type Request struct {
	At    time.Time
	Token string
	// CollapseIDs are all keys in the request that decide which notification on the
	// device replaces which.
	CollapseIDs []string
	Text        string
	// Accepted says that the device gets the notification, whatever the caller heard.
	Accepted bool
	// Unheard says that the caller got no answer, or one that leaves the outcome open.
	Unheard bool
}

// Tables is what the database says after the run.
type Tables struct {
	Pushes      []PushRow
	Devices     []DeviceRow
	Events      []EventRow
	Delayed     []string // event ids that still wait for their time
	DeadLetters []string // event ids
	Fallbacks   []Fallback

	Coupons     []CouponRow
	Expirations []Expiration
	Products    []ProductRow
}

// PushRow is a row of push_messages.
type PushRow struct{ ID, UserID, Status string }

// DeviceRow is a row of user_devices.
type DeviceRow struct {
	ID, UserID, Token string
	Active            bool
}

// EventRow is a row of outbox_event.
type EventRow struct{ EventID, AggregateID, Status string }

// Fallback is what one instance of a task says of its fallback.
type Fallback struct {
	Task, Instance string
	Runs           int64
	Now            bool
}
