package rocketmq

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"

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
		b.results[i].Err = fmt.Errorf("publish to rocketmq: no answer by the deadline")
	}
	if len(msgs) == 0 {
		close(b.done)
	}
	p, err := d.sender()
	for i := range msgs {
		switch bad := driver.Check(&msgs[i]); {
		case bad != nil:
			b.set(i, driver.Result{Status: driver.Refused, Err: bad})
		case err != nil:
			b.set(i, driver.Result{Err: fmt.Errorf("publish to rocketmq: %w", err)})
		case !d.begin(ctx):
			b.set(i, driver.Result{Err: fmt.Errorf("publish to rocketmq: not tried: %w", notTried(ctx))})
		default:
			m := newMessage(&msgs[i])
			go func() { // bounded by slots, waited for by Close
				defer d.end()
				b.set(i, sendOne(ctx, p, m))
			}()
		}
	}
	return b.wait(ctx)
}

// begin takes a slot for one send, unless ctx ends or the driver is closed.
func (d *Driver) begin(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		<-d.slots
		return false
	}
	d.sends.Add(1)
	return true
}

func (d *Driver) end() {
	d.sends.Done()
	<-d.slots
}

func notTried(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return driver.ErrClosed
}

// sendOne sends one message to its end, whatever becomes of ctx.
func sendOne(ctx context.Context, p rocketmq.Producer, m *primitive.Message) driver.Result {
	res, err := p.SendSync(context.WithoutCancel(ctx), m)
	if err != nil {
		return driver.Result{Status: classify(err), Err: fmt.Errorf("publish to rocketmq: %w", err)}
	}
	if res.Status != primitive.SendOK {
		// Stored on one machine, with no word on disk or replica: sent again it may be
		// a duplicate, taken for sent it may be lost.
		return driver.Result{Status: driver.Unavailable, Err: fmt.Errorf("publish to rocketmq: stored but not safe: send status %d", res.Status)}
	}
	return driver.Result{Status: driver.Confirmed, BrokerID: res.MsgID}
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

// classify reads the broker's response code, which the client gives as text only.
func classify(err error) driver.Status {
	text := err.Error()
	_, rest, ok := strings.Cut(text, "CODE: ")
	if !ok {
		return driver.Unavailable
	}
	code, _, _ := strings.Cut(rest, " ")
	switch strings.TrimRight(code, ",") {
	case "13": // message illegal: too large, or a property that is
		return driver.Refused
	case "2", "215": // system busy; flow control of Alibaba Cloud
		return driver.Throttled
	case "1":
		if !strings.Contains(text, "Acl") {
			return driver.Failed
		}
	}
	return driver.Unavailable
}

// batch gathers the results of one Send. A result that comes after the caller left
// changes nothing that the caller has.
type batch struct {
	mu      sync.Mutex
	results []driver.Result
	open    int
	done    chan struct{}
}

func (b *batch) set(i int, r driver.Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results[i] = r
	if b.open--; b.open == 0 {
		close(b.done)
	}
}

func (b *batch) wait(ctx context.Context) []driver.Result {
	select {
	case <-b.done:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]driver.Result(nil), b.results...)
}
