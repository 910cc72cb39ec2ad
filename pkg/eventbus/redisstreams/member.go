package redisstreams

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// parkingName is the reserved consumer of every group whose pending list holds the
// messages that wait for a retry.
const parkingName = "parked"

// stopTimeout bounds what a stop does after the last callback returned: tell the
// server the last outcomes, give the rest back, remove the member's name.
const stopTimeout = 5 * time.Second

// member is one Run: one consumer of one group.
//
// Its goroutines: fetch reads new messages, retake hands out what came due and what
// dead members left, up to Concurrency workers run the callback, settle tells the server
// the outcomes, keep renews leases and does the housekeeping. Run owns all of them but
// a worker whose callback hangs.
type member struct {
	d      *Driver
	sub    driver.Subscription
	keys   keys
	name   string
	tags   map[string]struct{} // nil: all
	handle driver.Handle
	log    *zerolog.Logger
	read   redis.UniversalClient
	readID atomic.Int64 // the server's id of the reading connection, 0 unknown

	// handling is what the callbacks' contexts are made of. It ends with the drain time.
	handling context.Context
	flights  *flights
	outcomes *outcomes
	// due wakes retake: something was parked here.
	due chan struct{}
	// suspect is set when an answer that may have handed out messages was lost.
	suspect atomic.Bool
	// claimMu is held from a claiming command until its messages are in flights.
	claimMu sync.Mutex

	halted    chan struct{} // closed by the first Halt
	haltOnce  sync.Once
	haltCause error
}

// Run implements driver.Receiver.
func (d *Driver) Run(ctx context.Context, sub driver.Subscription, handle driver.Handle) error {
	k, err := d.names.of(sub.Topic)
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrHalted, err)
	}
	if d.closed.Load() {
		return fmt.Errorf("receive %s: %w", sub.Group, driver.ErrClosed)
	}
	sub = withDefaults(sub)
	m := &member{
		d: d, sub: sub, keys: k, name: memberName(), tags: tagSet(sub.Tags), handle: handle,
		log: zerolog.Ctx(ctx), outcomes: newOutcomes(),
		due: make(chan struct{}, 1), halted: make(chan struct{}),
	}
	m.flights = newFlights(sub.Concurrency, m.outcomes, m.runWork)
	m.read, err = readClient(d.cfg, m.readID.Store)
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrHalted, err)
	}
	defer func() { _ = m.read.Close() }() // closed twice is an error without meaning
	return m.run(ctx)
}

func withDefaults(sub driver.Subscription) driver.Subscription {
	sub.Concurrency = max(1, sub.Concurrency)
	if sub.MinRetry <= 0 {
		sub.MinRetry = time.Second
	}
	sub.MaxRetry = max(sub.MaxRetry, sub.MinRetry)
	if sub.HandlerTimeout <= 0 {
		sub.HandlerTimeout = time.Minute
	}
	if sub.Beat == nil {
		sub.Beat = func() {}
	}
	if sub.Connected == nil {
		sub.Connected = func(bool, error) {}
	}
	return sub
}

func tagSet(tags []string) map[string]struct{} {
	if len(tags) == 0 {
		return nil
	}
	set := make(map[string]struct{}, len(tags))
	for _, t := range tags {
		set[t] = struct{}{}
	}
	return set
}

// memberName is unique for every Run: two members under one name would share a
// pending list and take each other's messages for their own.
func memberName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}

// tagsKey is the wanted tags as one word, to compare members by.
func (m *member) tagsKey() string {
	tags := slices.Clone(m.sub.Tags)
	slices.Sort(tags)
	return strings.Join(tags, ",")
}

// run goes through the phases of a subscription's life: serve, stop taking, drain,
// tell the rest.
func (m *member) run(ctx context.Context) error {
	taking, stopTaking := context.WithCancel(ctx)
	defer stopTaking()
	// Outlives ctx: outcomes are told and leases renewed until the drain is over.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	handling, stopHandling := context.WithCancel(serving)
	defer stopHandling()
	m.handling = handling

	var takers, settler, keeper sync.WaitGroup
	fetched := make(chan struct{})
	takers.Go(func() {
		defer close(fetched)
		m.fetch(taking)
	})
	takers.Go(func() { m.retake(taking) })
	settler.Go(func() { m.settle(serving) })
	keeper.Go(func() { m.keep(serving) })

	select {
	case <-ctx.Done():
	case <-m.halted:
	}
	stopTaking()
	m.flights.close()
	m.endRead(serving, fetched)
	takers.Wait()

	released := make(chan struct{})
	go func() { // bounded by stopTimeout; waited for below
		defer close(released)
		m.releaseUnseen(serving)
	}()
	drained := time.AfterFunc(m.sub.DrainTimeout, stopHandling)
	<-m.flights.idle
	drained.Stop()
	<-released

	m.outcomes.close()
	late := time.AfterFunc(stopTimeout, stopServing)
	settler.Wait()
	late.Stop()
	stopServing()
	keeper.Wait()
	m.leave(context.WithoutCancel(ctx))
	m.sub.Connected(false, nil)

	select {
	case <-m.halted:
		return fmt.Errorf("%w: %w", driver.ErrHalted, m.haltCause)
	default:
		return nil
	}
}

// endRead ends the read that is under way. The server is asked to answer it: a
// connection that is just closed may still be served a message which nobody sees, and
// which only the lease would bring back. Closing is what is left when the server does
// not answer.
func (m *member) endRead(ctx context.Context, fetched <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, m.d.cfg.Block)
	defer cancel()
	_, cluster := m.d.cmd.(*redis.ClusterClient) // ids are of one node, and which is not known here
	for {
		if id := m.readID.Load(); id != 0 && !cluster {
			// Asked again, since the read may be on its way to the server.
			if err := m.d.cmd.ClientUnblock(ctx, id).Err(); err != nil {
				m.failed("unblock", err)
			}
		}
		select {
		case <-fetched:
			return
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			_ = m.read.Close()
			<-fetched
			return
		}
	}
}

func (m *member) halt(out driver.Outcome) {
	m.haltOnce.Do(func() {
		m.haltCause = errors.New(out.Reason)
		if out.Err != nil {
			m.haltCause = fmt.Errorf("%s: %w", out.Reason, out.Err)
		}
		close(m.halted)
	})
}

// runWork is one worker.
func (m *member) runWork() {
	for fl := m.flights.next(true); fl != nil; fl = m.flights.next(false) {
		d, err := fl.delivery(m.sub.Topic, m.sub.Group, m.d.cfg.CrashSlack)
		if err != nil {
			m.log.Warn().Err(err).Str("broker_id", fl.id).Msg("message delivered with the headers that could be read")
		}
		if !m.finish(fl, m.handle(fl, d), false) {
			return // it was written off meanwhile, and replaced
		}
	}
}

// finish takes the outcome of a callback; false when it has one already.
func (m *member) finish(fl *flight, out driver.Outcome, abandoned bool) bool {
	ok := m.flights.finish(fl, m.settlement(fl, out), abandoned)
	fl.End(nil)
	return ok
}

// settlement decides what the server is to be told.
func (m *member) settlement(fl *flight, out driver.Outcome) settlement {
	switch out.Verdict {
	case driver.Done, driver.Skip, driver.Dead:
		return settlement{fl: fl, ack: true}
	case driver.Halt:
		m.halt(out)
		return settlement{fl: fl, count: undelivered(fl.count)}
	}
	if m.handling.Err() != nil {
		// The drain time cut it short; that is no failure of the event.
		return settlement{fl: fl, count: undelivered(fl.count)}
	}
	wait := out.After
	if wait <= 0 {
		wait = backoff.Policy{Base: m.sub.MinRetry, Max: m.sub.MaxRetry}.Delay(attempt(fl.count, m.d.cfg.CrashSlack))
	}
	return settlement{fl: fl, count: afterFailure(fl.count), wait: wait}
}

// leave removes the member's name; a name that cannot be removed now is removed by
// another member's housekeeping.
func (m *member) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	err := m.d.scripts.leave.Run(ctx, m.d.cmd, []string{m.keys.stream, m.keys.members(m.sub.Group)}, m.sub.Group, m.name).Err()
	if err != nil {
		m.failed("leave", err)
	}
}

// failed counts a command that failed; what it means for the subscription is said by
// Connected and once in the log, not per command.
func (m *member) failed(operation string, err error) {
	m.d.metrics.readErrors.WithLabelValues(m.sub.Group, operation).Inc()
	reroute(context.Background(), m.d.cmd, m.read)
	m.log.Debug().Err(err).Str("operation", operation).Msg("redis command failed")
}
