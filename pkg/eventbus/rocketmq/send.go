package rocketmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// headerPrefix keeps our headers apart from the broker's own properties.
const headerPrefix = "seahub-"

// aggregateHeader is the header whose value becomes a second message key, so that an
// operator finds the messages of one aggregate.
const aggregateHeader = "aggregate-id"

// Send implements driver.Sender: single messages, several at a time.
func (d *Driver) Send(ctx context.Context, msgs []driver.Message) []driver.Result {
	b := &batch{results: make([]driver.Result, len(msgs)), open: len(msgs), done: make(chan struct{})}
	for i := range b.results {
		b.results[i].Err = fmt.Errorf("publish to rocketmq: no answer by the deadline: it may be stored")
	}
	if len(msgs) == 0 {
		close(b.done)
	}
	for i := range msgs {
		if err := errors.Join(d.checkTopic(msgs[i].Topic), driver.Check(&msgs[i])); err != nil {
			b.set(i, driver.Result{Status: driver.Refused, Err: err})
			continue
		}
		topic := msgs[i].Topic
		p, alone, err := d.begin(ctx, topic)
		if err != nil {
			b.set(i, driver.Result{Status: statusOf(err), Err: fmt.Errorf("publish to rocketmq: %w", err)})
			continue
		}
		m := newMessage(&msgs[i])
		go func() { // bounded by slots, waited for by Close
			defer d.end(alone)
			r := d.sendOne(ctx, p, topic, m)
			if !b.set(i, r) {
				d.metrics.late.WithLabelValues(r.Status.String()).Inc()
			}
		}()
	}
	return b.wait(ctx)
}

func statusOf(err error) driver.Status {
	if errors.Is(err, errPause) {
		return driver.Throttled
	}
	return driver.Unavailable
}

var errPause = errors.New("not tried: the broker asked for a slower pace")

// begin takes a slot for one send, once everything is in place for it; the error says
// what is not. alone: no other send goes on until this one has ended.
func (d *Driver) begin(ctx context.Context, topic string) (p rocketmq.Producer, alone bool, err error) {
	if d.closed.Load() {
		return nil, false, driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, false, fmt.Errorf("not tried: %w", err)
	}
	if left := d.pace.left(); left > 0 {
		d.metrics.paused.Inc()
		return nil, false, fmt.Errorf("%w, for another %s", errPause, left.Round(time.Millisecond))
	}
	if !d.topics.of(topic).warm {
		select {
		case d.first <- struct{}{}:
		case <-ctx.Done():
			return nil, false, fmt.Errorf("not tried: %w", ctx.Err())
		}
		if alone = !d.topics.of(topic).warm; !alone {
			<-d.first
		}
	}
	if p, err = d.take(ctx, topic, alone); err != nil && alone {
		<-d.first
	}
	return p, alone, err
}

func (d *Driver) take(ctx context.Context, topic string, alone bool) (rocketmq.Producer, error) {
	if alone {
		if err := d.resolve(ctx, topic); err != nil {
			return nil, fmt.Errorf("not tried: %w", err)
		}
	}
	p, err := d.sender()
	if err != nil {
		return nil, err
	}
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("not tried: %w", ctx.Err())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		<-d.slots
		return nil, driver.ErrClosed
	}
	d.sends.Add(1)
	return p, nil
}

func (d *Driver) end(alone bool) {
	if alone {
		<-d.first
	}
	d.sends.Done()
	<-d.slots
}

// resolve asks the name servers for a topic before the client does. The client would
// ask under a lock, for up to 24 s, whatever the caller's deadline, and could not tell
// an absent name server from an absent topic.
func (d *Driver) resolve(ctx context.Context, topic string) error {
	if d.topics.of(topic).found {
		return nil
	}
	_, err := d.ask.Route(ctx, topic)
	d.topics.found(topic, err == nil)
	if err != nil {
		return d.explain(ctx, err, topic, "")
	}
	return nil
}

// sendOne sends one message to its end, whatever becomes of ctx.
func (d *Driver) sendOne(ctx context.Context, p rocketmq.Producer, topic string, m *primitive.Message) driver.Result {
	res, err := p.SendSync(context.WithoutCancel(ctx), m)
	if err == nil && res.Status == primitive.SendOK {
		d.pace.fine()
		d.topics.warm(topic)
		return driver.Result{Status: driver.Confirmed, BrokerID: res.MsgID}
	}
	if err == nil {
		// Stored on one machine, with no word on disk or replica: sent again it may be
		// a duplicate, taken for sent it may be lost.
		status := statusName(res.Status)
		d.metrics.unconfirmed.WithLabelValues(status).Inc()
		return driver.Result{Status: driver.Unavailable, Err: fmt.Errorf("publish to rocketmq: stored but not safe: %s", status)}
	}
	a := parseAnswer(err)
	if a.code != 0 {
		d.metrics.refused.WithLabelValues(a.label()).Inc()
	}
	if a.status == driver.Throttled {
		d.pace.slower()
	}
	if a.routeLost {
		d.topics.found(topic, false)
	}
	return driver.Result{Status: a.status, Err: fmt.Errorf("publish to rocketmq: %w", a.err)}
}

func newMessage(m *driver.Message) *primitive.Message {
	out := primitive.NewMessage(m.Topic, bytes.Clone(m.Body))
	out.WithTag(m.Tag)
	keys := []string{m.Key}
	if id := m.Headers[aggregateHeader]; id != "" && id != m.Key && !strings.Contains(id, " ") {
		keys = append(keys, id)
	}
	out.WithKeys(keys)
	for name, value := range m.Headers {
		if value != "" { // the broker drops empty properties
			out.WithProperty(headerPrefix+name, value)
		}
	}
	return out
}

// batch gathers the results of one Send. A result that comes after the caller left
// changes nothing that the caller has.
type batch struct {
	mu      sync.Mutex
	results []driver.Result
	open    int
	left    bool
	done    chan struct{}
}

// set returns false when the caller has left.
func (b *batch) set(i int, r driver.Result) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results[i] = r
	if b.open--; b.open == 0 {
		close(b.done)
	}
	return !b.left
}

func (b *batch) wait(ctx context.Context) []driver.Result {
	select {
	case <-b.done:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = true
	return append([]driver.Result(nil), b.results...)
}
