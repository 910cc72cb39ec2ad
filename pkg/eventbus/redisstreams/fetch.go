package redisstreams

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// fetch reads new messages for free workers until ctx ends.
func (m *member) fetch(ctx context.Context) {
	f := fetcher{member: m, again: backoff.Policy{Base: 50 * time.Millisecond, Max: 2 * time.Second}}
	for ctx.Err() == nil {
		m.sub.Beat()
		free := f.waitFree(ctx)
		if free == 0 {
			continue
		}
		err := f.once(ctx, free)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			f.works()
		default:
			f.fails(ctx, err)
		}
	}
}

// fetcher is the state of the fetch loop.
type fetcher struct {
	*member
	again    backoff.Policy
	failures int
	// ensured: the group was there when last looked at. hadGroup: it once was.
	ensured, hadGroup bool
	connected         bool
	answer            reply
}

// waitFree waits until workers are free and returns how many; 0 after a second, or
// when ctx ended. When few are free it gives short handlers a moment to free more:
// reading a handful at a time costs more than the handlers do.
func (f *fetcher) waitFree(ctx context.Context) int {
	half := f.sub.Concurrency/2 + 1
	free := f.flights.awaitRoom(ctx, 1, time.Second)
	if free > 0 && free < half {
		// Not less than before: retries, which do not wait for more, would starve new
		// messages.
		free = max(free, f.flights.awaitRoom(ctx, half, time.Millisecond))
	}
	if ctx.Err() != nil {
		return 0
	}
	return free
}

// once makes sure of the group, takes back what an earlier error may have hidden, and
// reads once.
func (f *fetcher) once(ctx context.Context, count int) error {
	if err := f.prepare(ctx); err != nil {
		if missingGroup(err) { // and nothing of ours is pending in it
			f.ensured = false
			f.suspect.Store(false)
		}
		return err
	}
	block := f.d.cfg.Block
	if !f.connected {
		block = -1 // answer at once, so that the state does not wait for a message
	}
	// The server ends the read after Block; a server that says nothing is given up
	// soon after.
	readCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.d.cfg.Block+f.d.cfg.Timeout)
	defer cancel()
	f.answer.reset()
	cmd := redis.NewRawWriteToCmd(readCtx, &f.answer, f.command(count, block)...)
	cmd.SetFirstKeyPos(int8(len(cmd.Args()) - 2))
	err := f.read.Process(readCtx, cmd)
	switch {
	case missingGroup(err):
		f.ensured = false
		return fmt.Errorf("read: %w", err)
	case err != nil:
		// The server may have handed out messages that we did not see.
		f.suspect.Store(true)
		return fmt.Errorf("read: %w", err)
	}
	entries, err := f.answer.entries()
	if err != nil {
		f.suspect.Store(true)
		return fmt.Errorf("read: %w", err)
	}
	f.take(ctx, entries)
	return nil
}

// command is the read's command; the stream's key is the last but one word of it.
func (f *fetcher) command(count int, block time.Duration) []any {
	args := []any{"xreadgroup", "group", f.sub.Group, f.name, "count", max(1, count)}
	if block >= 0 {
		args = append(args, "block", block.Milliseconds())
	}
	args = append(args, "streams", f.keys.stream, ">")
	return args
}

func (f *fetcher) prepare(ctx context.Context) error {
	if err := f.d.preflight.consume(ctx); err != nil {
		return err
	}
	if !f.ensured {
		created, err := f.d.ensureGroup(ctx, f.keys, f.sub.Group)
		if err != nil && !outOfMemory(err) { // if it is there it can be read, which is what frees memory
			return err
		}
		if created && f.hadGroup {
			f.d.metrics.recreated.WithLabelValues(f.sub.Group).Inc()
			f.log.Error().Str("stream", f.keys.stream).Msg("the consumer group was gone and was made again at the start of the stream: Redis lost data; requeue the outbox events of that time")
		}
		if err := f.beat(ctx); err != nil {
			return err
		}
		f.ensured, f.hadGroup = true, true
	}
	if f.suspect.Swap(false) {
		if err := f.release(ctx); err != nil {
			f.suspect.Store(true)
			return err
		}
	}
	return nil
}

func (f *fetcher) works() {
	if !f.connected {
		f.log.Info().Str("stream", f.keys.stream).Str("member", f.name).Msg("subscription is served")
	}
	f.connected, f.failures = true, 0
	f.sub.Connected(true, nil)
}

// fails reports once that the subscription is not served, and waits.
func (f *fetcher) fails(ctx context.Context, err error) {
	f.failures++
	f.failed("read", err)
	if f.connected || f.failures == 1 {
		f.log.Warn().Err(err).Str("stream", f.keys.stream).Msg("subscription is not served, trying again until it is")
	}
	f.connected = false
	f.sub.Connected(false, err)
	backoff.Sleep(ctx, f.again.Delay(f.failures))
}

// take takes the wanted entries into hand; the others it acknowledges all at once.
func (m *member) take(ctx context.Context, entries []entry) {
	var unwanted []string
	page := make([]flight, 0, len(entries)) // never grown: flights are known by address
	for i := range entries {
		e := &entries[i]
		if _, ok := m.tags[e.tag]; !ok && m.tags != nil {
			unwanted = append(unwanted, e.id)
			continue
		}
		page = append(page, flight{m: m, entry: *e})
		page[len(page)-1].Init(m.handling, time.Time{})
	}
	m.flights.add(page)
	if len(unwanted) > 0 {
		ackCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.d.cfg.Timeout)
		defer cancel()
		if err := m.d.cmd.XAck(ackCtx, m.keys.stream, m.sub.Group, unwanted...).Err(); err != nil {
			m.failed("ack", err)
			m.suspect.Store(true) // they come back and are acknowledged then
		}
		m.d.metrics.unmatched.WithLabelValues(m.sub.Group).Add(float64(len(unwanted)))
	}
}
