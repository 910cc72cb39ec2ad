package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/task"
)

const (
	// handOff is how many deliveries of one event are enough: a further wait becomes a
	// delayed event whatever its length, so that waiting never uses up the broker's
	// attempts and ends in a dead letter.
	handOff = 8
	// finishTimeout bounds the writes after the last answer. They are made even if the
	// process is told to stop: what FCM has taken must be known.
	finishTimeout = 5 * time.Second
	// devicesAtOnce bounds the requests of one push that run at a time.
	devicesAtOnce = 8
)

// sender is FCM as the dispatcher sees it.
type sender interface {
	send(ctx context.Context, m message) answer
}

// dispatcher does the work of one push, for the handler and for the poll alike.
type dispatcher struct {
	cfg      Config
	store    store
	fcm      sender
	lane     *lane
	metrics  *metrics
	instance string
	leases   atomic.Uint64
	laneSaid atomic.Int64 // unix seconds of the last line about the lane
	// eventOwns says whether the event path works on a row now.
	eventOwns func(id string) bool
}

// result is what became of one try to dispatch a push. One of its parts is set.
type result struct {
	finished string        // the final status
	refused  *refusal      // it was not leased, or the lease was lost
	wait     time.Duration // it was rescheduled
	woken    bool          // and a delayed event will bring it back
	cause    error         // why it was rescheduled
}

// RowID implements task.Work.
func (d *dispatcher) RowID(e eventbus.Delivery) (string, error) {
	p, err := event.DecodePushDispatch(e.Body)
	return p.PushID, err
}

// Handle implements task.Work: the event path.
func (d *dispatcher) Handle(ctx context.Context, id string, e eventbus.Delivery) eventbus.Outcome {
	wake := func(wait time.Duration) bool { return wait > task.LongWait || e.Attempt >= handOff }
	if wait, open := d.enterLane(ctx); !open {
		return d.putOff(ctx, id, wait, wake(wait), e)
	}
	r, err := d.dispatch(ctx, id, wake)
	switch {
	case err != nil:
		return task.Retry(err, e.Attempt)
	case r.finished != "":
		return task.Done("push is " + r.finished)
	case r.woken:
		return task.Done("a delayed event brings the push back")
	case r.refused != nil:
		return d.refusedOutcome(ctx, id, *r.refused, wake, e)
	}
	return eventbus.RetryOutside(r.wait, r.cause)
}

// refusedOutcome: finished is done; held and not due come back when that ends.
func (d *dispatcher) refusedOutcome(ctx context.Context, id string, r refusal, wake func(time.Duration) bool, e eventbus.Delivery) eventbus.Outcome {
	if r.Finished != "" {
		return task.Done("push is " + r.Finished + " already")
	}
	wait := max(r.Wait, 0) + 50*time.Millisecond + rand.N(200*time.Millisecond)
	if wake(wait) {
		r.Wait = wait
		if err := d.store.wakeLater(ctx, id, r); err != nil {
			return task.Retry(err, e.Attempt)
		}
		return task.Done("a delayed event brings the push back")
	}
	out := eventbus.RetryAfter(wait, nil)
	out.Reason = "push is not due yet"
	if r.Held {
		out.Reason = "another worker has the push"
	}
	return out
}

// enterLane waits for a place in the lane, or says when to come back.
func (d *dispatcher) enterLane(ctx context.Context) (wait time.Duration, open bool) {
	wait, open = d.lane.enter(time.Now())
	if open && !backoff.Sleep(ctx, wait) {
		return time.Second, false
	}
	return wait, open
}

// putOff moves a push past the time for which the lane is closed, so that it is not
// overdue meanwhile.
func (d *dispatcher) putOff(ctx context.Context, id string, wait time.Duration, wake bool, e eventbus.Delivery) eventbus.Outcome {
	wait += spread(wait)
	switch err := d.store.postpone(ctx, id, wait, laneClosed, wake); {
	case errors.Is(err, errLeaseLost): // it was not PENDING and due: look why
		r, err := d.store.whyRefused(ctx, id)
		if err != nil {
			return task.Retry(err, e.Attempt)
		}
		return d.refusedOutcome(ctx, id, r, func(w time.Duration) bool { return w > task.LongWait || wake }, e)
	case err != nil:
		return task.Retry(err, e.Attempt)
	}
	d.metrics.results.WithLabelValues("postponed").Inc()
	if wake {
		return task.Done("a delayed event brings the push back")
	}
	return eventbus.RetryOutside(wait, errors.New(laneClosed))
}

const laneClosed = "FCM is down or asked for a slower pace"

// spread keeps pushes that were put off together from coming back together.
func spread(wait time.Duration) time.Duration {
	return rand.N(min(wait/10, 5*time.Second) + time.Millisecond)
}

// dispatch leases a push, sends it to the devices that have not answered for good, and
// writes what became of it. wake says whether a wait of that length needs an event.
func (d *dispatcher) dispatch(ctx context.Context, id string, wake func(time.Duration) bool) (result, error) {
	began := time.Now() // before the lease begins, so that it is never overestimated
	owner := d.instance + "#" + strconv.FormatUint(d.leases.Add(1), 36)
	p, refused, err := d.store.leaseMessageIfDue(ctx, id, owner, d.cfg.Lease, d.cfg.MaxAge, d.cfg.MaxAttempts)
	if err != nil {
		return result{}, err
	}
	if p == nil {
		d.metrics.results.WithLabelValues("lease_refused").Inc()
		return result{refused: &refused}, nil
	}
	p.Country = d.cfg.Base.Country
	// From here on the row is ours to give back: an order to stop ends requests, not writes.
	writes, cancel := context.WithDeadline(context.WithoutCancel(ctx), began.Add(d.cfg.Lease+finishTimeout))
	defer cancel()
	requests, cancelRequests := context.WithDeadline(ctx, began.Add(d.cfg.Lease-d.cfg.Lease/8))
	defer cancelRequests()
	r, err := d.work(requests, writes, p, wake)
	if errors.Is(err, errLeaseLost) {
		d.metrics.results.WithLabelValues("lease_lost").Inc()
		zerolog.Ctx(ctx).Warn().Err(err).Int("attempt", p.Attempt).Msg("finished after another worker took the push over; nothing was changed")
		why, err := d.store.whyRefused(ctx, id)
		return result{refused: &why}, err
	}
	return r, err
}

func (d *dispatcher) work(requests, writes context.Context, p *push, wake func(time.Duration) bool) (result, error) {
	switch {
	case p.Expired != "" && p.Accepted > 0: // the devices that are still open come too late
		return d.finish(writes, p, statusSent, p.Expired, nil)
	case p.Expired != "":
		return d.finish(writes, p, statusExpired, p.Expired, nil)
	}
	data, err := textData(p.Data)
	if err != nil {
		return d.finish(writes, p, statusFailed, err.Error(), nil)
	}
	var answers []answer
	if len(p.Devices) > 0 {
		if err := d.store.beginAttempts(writes, p); err != nil {
			return result{}, err
		}
		d.lane.charge(time.Now(), len(p.Devices)-1)
		answers = d.sendAll(requests, writes, p, data)
	}
	return d.settle(writes, p, answers, wake)
}

// sendAll makes one request per device; the answers have the devices' order.
func (d *dispatcher) sendAll(requests, writes context.Context, p *push, data map[string]string) []answer {
	answers := make([]answer, len(p.Devices))
	slots := make(chan struct{}, devicesAtOnce)
	var all sync.WaitGroup
	for i, dev := range p.Devices {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			answers[i] = d.sendOne(requests, p, dev, data)
			// Each answer is written at once: if this process dies, the next attempt
			// spares this device.
			if err := d.store.recordAnswer(writes, p, dev.ID, answers[i]); err != nil && !errors.Is(err, errLeaseLost) {
				zerolog.Ctx(writes).Warn().Err(err).Msg("an answer was not recorded; it counts as unknown should the push be sent again")
			}
		})
	}
	all.Wait()
	return answers
}

func (d *dispatcher) sendOne(ctx context.Context, p *push, dev device, data map[string]string) (a answer) {
	defer func() {
		if v := recover(); v != nil { // in a goroutine nobody further out would catch it
			a = answer{class: ambiguous, code: "PANIC", err: fmt.Errorf("request panicked with a value of type %T", v)}
		}
	}()
	if ctx.Err() != nil {
		return answer{class: outside, code: "NO_TIME_LEFT", err: errors.New("no time was left to send it")}
	}
	ttl := p.LeftToLive
	if ttl == 0 {
		ttl = d.cfg.MaxAge
	}
	began := time.Now()
	a = d.fcm.send(ctx, newMessage(p.ID, dev.Token, p.Title, p.Body, data, ttl))
	d.metrics.request(a, time.Since(began))
	d.paceBy(ctx, a)
	return a
}

// paceBy lets an answer open, slow or close the lane. One line tells of a spell,
// however many requests meet it.
func (d *dispatcher) paceBy(ctx context.Context, a answer) {
	now := time.Now()
	switch a.class {
	case accepted, deadToken, rejected:
		d.lane.worked()
		return
	case throttled, unauthorized:
		d.lane.slow(now, a.retryAfter)
	case transient, outside, ambiguous:
		d.lane.stumbled(now)
	}
	const quiet = 30
	last := d.laneSaid.Load()
	if now.Unix()-last > quiet && d.laneSaid.CompareAndSwap(last, now.Unix()) {
		zerolog.Ctx(ctx).Warn().Str("code", a.code).Dur("wait", a.retryAfter).AnErr("cause", a.err).Msg("FCM does not take pushes")
	}
}

// settle decides by all answers, those of earlier attempts included: SENT when at
// least one device took it and none is open, FAILED when none did, else later again.
func (d *dispatcher) settle(ctx context.Context, p *push, answers []answer, wake func(time.Duration) bool) (result, error) {
	taken, open, code := p.Accepted, 0, p.Refused
	var wait time.Duration
	var cause error
	var dead []device
	for i, a := range answers {
		dev := p.Devices[i]
		if a.class != accepted {
			code = a.code
		}
		switch {
		case a.class == accepted:
			taken++
		case a.class == deadToken:
			dead = append(dead, dev)
		case a.class.final(), a.class.state() != stateOutside && dev.Tries+1 >= d.cfg.MaxAttempts:
		default:
			open++
			wait = max(wait, a.retryAfter)
			cause = fmt.Errorf("FCM: %s", a.code)
			if a.err != nil {
				cause = fmt.Errorf("FCM: %s: %w", a.code, a.err)
			}
		}
	}
	d.metrics.deadTokens.Add(float64(len(dead)))
	switch {
	case open > 0:
		return d.later(ctx, p, wait, cause, code, dead, wake)
	case taken > 0:
		return d.finish(ctx, p, statusSent, "", dead)
	case code != "":
		return d.finish(ctx, p, statusFailed, "no device took it, last answer: "+code, dead)
	}
	return d.finish(ctx, p, statusFailed, "the user has no active device", dead)
}

func (d *dispatcher) later(ctx context.Context, p *push, wait time.Duration, cause error, code string, dead []device, wake func(time.Duration) bool) (result, error) {
	wait = max(wait, backoff.Policy{Base: d.cfg.RetryBase, Max: d.cfg.RetryMax}.Delay(p.Attempt))
	wait += spread(wait)
	woken := wake(wait)
	if err := d.store.reschedule(ctx, p, wait, "FCM: "+code, dead, woken); err != nil {
		return result{}, err
	}
	d.metrics.results.WithLabelValues("rescheduled").Inc()
	return result{wait: wait, woken: woken, cause: cause}, nil
}

func (d *dispatcher) finish(ctx context.Context, p *push, status, reason string, dead []device) (result, error) {
	if err := d.store.finish(ctx, p, status, reason, dead); err != nil {
		return result{}, err
	}
	d.metrics.results.WithLabelValues(status).Inc()
	return result{finished: status}, nil
}

// textData reads a push's data, a JSON object whose values FCM takes as text only.
// Numbers keep their digits; what has parts of its own is refused. The error quotes
// nothing.
func textData(raw string) (map[string]string, error) {
	if raw == "" || raw == "null" {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(raw)))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil || decoder.More() {
		return nil, errors.New("data_json is not a JSON object")
	}
	data := make(map[string]string, len(object))
	for name, value := range object {
		switch v := value.(type) {
		case string:
			data[name] = v
		case json.Number:
			data[name] = v.String()
		case bool:
			data[name] = strconv.FormatBool(v)
		case nil: // FCM has no null
		default:
			return nil, errors.New("data_json has a value that is neither text, number nor boolean")
		}
	}
	return data, nil
}
