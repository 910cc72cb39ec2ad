package redisstreams

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// Bounds of one pipeline. A pipeline is one write and one read: large ones save round
// trips, but what a broken connection leaves unanswered is the whole rest of one.
const (
	maxPipeline      = 512
	maxPipelineBytes = 1 << 20
)

// Send implements driver.Sender: XADDs in pipelines, in the order given, each with
// its own result. After a pipeline that the server did not answer the rest is not
// tried: a server that is away takes its time with every attempt. Nothing at all is
// tried on a server that may evict what it has confirmed.
func (d *Driver) Send(ctx context.Context, msgs []driver.Message) []driver.Result {
	results := make([]driver.Result, len(msgs))
	var (
		chunk   pipeline
		topic   string
		k       keys
		topicOK error
		down    error
	)
	if len(msgs) > 0 && !d.closed.Load() {
		down = d.preflight.publish(ctx)
	}
	flush := func() {
		if down == nil {
			down = d.sendChunk(ctx, &chunk, results)
		} else {
			chunk.fail(results, down)
		}
		chunk.reset()
	}
	for i := range msgs {
		m := &msgs[i]
		if m.Topic != topic || i == 0 {
			topic = m.Topic
			k, topicOK = d.names.of(topic)
		}
		if err := errors.Join(topicOK, driver.Check(m)); err != nil {
			results[i] = driver.Result{Status: driver.Refused, Err: err}
			continue
		}
		chunk.add(ctx, k.stream, m, i)
		if len(chunk.cmds) == maxPipeline || chunk.bytes >= maxPipelineBytes {
			flush()
		}
	}
	flush()
	return results
}

// pipeline is a chunk of a batch: the commands and which messages they are of.
type pipeline struct {
	cmds  []*redis.StringCmd
	index []int
	bytes int
	buf   []byte
}

func (p *pipeline) reset() { p.cmds, p.index, p.bytes = p.cmds[:0], p.index[:0], 0 }

func (p *pipeline) add(ctx context.Context, stream string, m *driver.Message, i int) {
	p.buf = appendHeaders(p.buf[:0], m.Headers)
	p.cmds = append(p.cmds, redis.NewStringCmd(ctx, "xadd", stream, "*",
		fieldTag, m.Tag, fieldKey, m.Key, fieldBody, m.Body, fieldHeaders, string(p.buf)))
	p.index = append(p.index, i)
	p.bytes += len(m.Body) + len(p.buf)
}

func (p *pipeline) fail(results []driver.Result, err error) {
	for _, i := range p.index {
		results[i] = driver.Result{Status: driver.Unavailable, Err: err}
	}
}

// sendChunk runs one pipeline and fills in its results. The returned error says that
// the server did not answer all of it.
func (d *Driver) sendChunk(ctx context.Context, p *pipeline, results []driver.Result) (down error) {
	if len(p.cmds) == 0 {
		return nil
	}
	if err := d.usable(ctx); err != nil {
		p.fail(results, err)
		return err
	}
	pipe := d.cmd.Pipeline()
	for _, c := range p.cmds {
		// Queues only; the error would be the command's own.
		_ = pipe.Process(ctx, c)
	}
	// Exec's error is some command's error; each command's own is looked at below.
	_, execErr := pipe.Exec(ctx)
	for n, c := range p.cmds {
		err := c.Err()
		if err == nil && c.Val() == "" {
			// No answer was read for it. An entry's id is never empty.
			err = execErr
			if err == nil {
				err = errors.New("the server gave no answer")
			}
		}
		if err == nil {
			results[p.index[n]] = driver.Result{Status: driver.Confirmed, BrokerID: c.Val()}
			continue
		}
		status, answered := classify(err)
		err = wrapClosed(err)
		if !answered && down == nil {
			down = fmt.Errorf("publish to redis: %w", err)
		}
		results[p.index[n]] = driver.Result{Status: status, Err: fmt.Errorf("publish to redis: %w", err)}
	}
	if execErr != nil {
		reroute(ctx, d.cmd)
	}
	return down
}

// usable tells early what a call would only find out late.
func (d *Driver) usable(ctx context.Context) error {
	if d.closed.Load() {
		return fmt.Errorf("publish to redis: %w", driver.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("publish to redis: not tried: %w", err)
	}
	return nil
}

func wrapClosed(err error) error {
	if errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("%w: %w", driver.ErrClosed, err)
	}
	return err
}
