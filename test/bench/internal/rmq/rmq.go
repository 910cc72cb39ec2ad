// Package rmq is a topic on a private RocketMQ as the benchmarks look at it: counted
// and read beside the client that is measured.
package rmq

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

const (
	queues = 8 // what relay topics makes
	// reader is the group in whose name Each and Follow read; it commits nothing.
	reader = "GID_bench_reader"
	// A broker confirms a message a moment before its queue shows it.
	restLook = 20 * time.Millisecond
	// hold is how long the broker keeps a question for messages that are not there.
	hold      = time.Second
	patience  = 10 * time.Second
	pullBatch = 32 // the broker's own limit
)

// Topic is one topic on a cluster of its own. A broker cannot empty a topic: what was
// there at the last Reset does not count.
type Topic struct {
	Cluster *testenv.RocketMQCluster
	Name    string
	// Ask asks as the admin.
	Ask    *remoting.Client
	queues []remoting.Queue
	base   []int64
}

// Start starts a cluster with the topic and the groups.
func Start(ctx context.Context, name string, groups ...string) (_ *Topic, err error) {
	t := &Topic{Name: name}
	if t.Cluster, err = testenv.StartRocketMQ(ctx, testenv.Options{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.Ask, err = remoting.New(remoting.Config{NameServers: []string{t.Cluster.Addr()}, Account: t.Cluster.Admin}); err != nil {
		return nil, err
	}
	if err := t.Ask.CreateTopic(ctx, name, queues); err != nil {
		return nil, err
	}
	for _, g := range append(slices.Clone(groups), reader) {
		if err := t.Ask.CreateGroup(ctx, g); err != nil {
			return nil, err
		}
	}
	if t.queues, err = t.Ask.Route(ctx, name); err != nil {
		return nil, err
	}
	return t, t.Reset(ctx)
}

// About is the server and what of its settings matters.
func (t *Topic) About() string { return "RocketMQ " + t.Cluster.Version + ", asynchronous flush" }

// Close ends the cluster.
func (t *Topic) Close() error {
	if t.Ask != nil {
		t.Ask.Close()
	}
	return t.Cluster.Close()
}

// Reset makes everything that is there not count.
func (t *Topic) Reset(ctx context.Context) (err error) {
	t.base, err = t.rest(ctx)
	return err
}

// Count is how many messages were stored since the last Reset, as far as queues show
// them.
func (t *Topic) Count(ctx context.Context) (int, error) {
	ends, err := t.ends(ctx)
	return int(sum(ends) - sum(t.base)), err
}

// CountAtRest is Count when nothing is stored any more.
func (t *Topic) CountAtRest(ctx context.Context) (int, error) {
	ends, err := t.rest(ctx)
	return int(sum(ends) - sum(t.base)), err
}

// Unfinished is how many messages a group has not finished.
func (t *Topic) Unfinished(ctx context.Context, group string) (int, error) {
	ends, err := t.ends(ctx)
	if err != nil {
		return 0, err
	}
	left := sum(ends)
	for _, q := range t.queues {
		done, err := t.Ask.GroupOffset(ctx, q, group)
		if err != nil {
			return 0, err
		}
		left -= done.N // nothing known is nothing finished
	}
	return int(left), nil
}

// ends are the numbers that the next messages of the queues will get.
func (t *Topic) ends(ctx context.Context) ([]int64, error) {
	ends := make([]int64, len(t.queues))
	for i, q := range t.queues {
		n, err := t.Ask.MaxOffset(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("count the topic: %w", err)
		}
		ends[i] = n
	}
	return ends, nil
}

// rest is ends when they no longer change.
func (t *Topic) rest(ctx context.Context) (now []int64, err error) {
	for {
		last := now
		if now, err = t.ends(ctx); err != nil || slices.Equal(now, last) {
			return now, err
		}
		time.Sleep(restLook)
	}
}

func sum(ns []int64) (total int64) {
	for _, n := range ns {
		total += n
	}
	return total
}

// Each calls f for every message since the last Reset.
func (t *Topic) Each(ctx context.Context, f func(*primitive.MessageExt)) error {
	ends, err := t.rest(ctx)
	if err != nil {
		return err
	}
	for i, q := range t.queues {
		r := t.newReader(q, t.base[i])
		for r.next < ends[i] && err == nil {
			var msgs []*primitive.MessageExt
			msgs, err = r.read(ctx)
			for _, m := range msgs {
				f(m)
			}
		}
		r.drop()
		if err != nil {
			return fmt.Errorf("read queue %d: %w", q.ID, err)
		}
	}
	return nil
}

// Follow calls f, by one goroutine at a time, for every message from now on, until ctx
// ends; it outlives outages. ready is closed when it listens.
func (t *Topic) Follow(ctx context.Context, ready chan<- struct{}, f func(m *primitive.MessageExt, at time.Time)) error {
	ends, err := t.ends(ctx)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var readers sync.WaitGroup
	for i, q := range t.queues {
		readers.Go(func() {
			r := t.newReader(q, ends[i])
			defer r.drop()
			for ctx.Err() == nil {
				msgs, err := r.read(ctx)
				at := time.Now()
				if err != nil { // an outage, or the end
					r.drop()
					time.Sleep(10 * time.Millisecond)
				}
				mu.Lock()
				for _, m := range msgs {
					f(m, at)
				}
				mu.Unlock()
			}
		})
	}
	close(ready)
	readers.Wait()
	return nil
}

// queueReader reads one queue on a connection of its own.
type queueReader struct {
	queue   remoting.Queue
	account remoting.Account
	next    int64
	conn    net.Conn
	in      *bufio.Reader
	opaque  int32
}

func (t *Topic) newReader(q remoting.Queue, from int64) *queueReader {
	return &queueReader{queue: q, account: t.Cluster.Admin, next: from}
}

func (r *queueReader) drop() {
	if r.conn != nil {
		_ = r.conn.Close()
		r.conn = nil
	}
}

// read returns the next messages, none if there are none for a while.
func (r *queueReader) read(ctx context.Context) ([]*primitive.MessageExt, error) {
	if r.conn == nil {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", r.queue.Addr)
		if err != nil {
			return nil, fmt.Errorf("dial the broker: %w", err)
		}
		r.conn, r.in = conn, bufio.NewReaderSize(conn, 64<<10)
	}
	defer context.AfterFunc(ctx, func() { _ = r.conn.SetDeadline(time.Now()) })()
	if err := r.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // after the deadline above, which AfterFunc may have preceded
		return nil, err
	}
	r.opaque++
	q := &remoting.Command{Code: 11, Opaque: r.opaque, Fields: map[string]string{ // pull
		"consumerGroup": reader, "topic": r.queue.Topic, "queueId": strconv.Itoa(r.queue.ID), "bname": r.queue.Broker,
		"queueOffset": strconv.FormatInt(r.next, 10), "maxMsgNums": strconv.Itoa(pullBatch),
		"sysFlag":      "6", // wait for messages; the request says what it wants
		"commitOffset": "0", "suspendTimeoutMillis": strconv.FormatInt(hold.Milliseconds(), 10),
		"subscription": "*", "subVersion": "0", "expressionType": "TAG",
	}}
	r.account.Sign(q)
	if err := remoting.WriteCommand(r.conn, q); err != nil {
		return nil, err
	}
	a, err := remoting.ReadCommand(r.in)
	if err != nil {
		return nil, err
	}
	switch a.Code {
	case 0:
	case 19: // nothing new
		return nil, nil
	default:
		return nil, fmt.Errorf("the broker answers with code %d: %s", a.Code, a.Remark)
	}
	if r.next, err = a.Int("nextBeginOffset"); err != nil {
		return nil, err
	}
	return primitive.DecodeMessage(a.Body), nil
}
