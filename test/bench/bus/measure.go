package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/seahub/seahub-mq/test/bench/internal/meter"
	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
	"github.com/seahub/seahub-mq/test/bench/internal/stat"
)

// phaseLimit bounds one publish or consume of a whole measurement; what stalls ends
// earlier.
const phaseLimit = 5 * time.Minute

// sample is one measurement of one way: messages per second and CPU seconds of this
// process per 100,000 messages.
type sample struct {
	PublishRate float64 `json:"publish_per_s"`
	PublishCPU  float64 `json:"publish_cpu_s_per_100k"`
	ConsumeRate float64 `json:"consume_per_s"`
	ConsumeCPU  float64 `json:"consume_cpu_s_per_100k"`
}

// spent is what one way took for a number of messages.
type spent struct {
	messages             int
	publish, publishCPU  time.Duration
	consume, consumedCPU time.Duration
}

func (s *spent) add(o spent) {
	s.messages += o.messages
	s.publish, s.publishCPU = s.publish+o.publish, s.publishCPU+o.publishCPU
	s.consume, s.consumedCPU = s.consume+o.consume, s.consumedCPU+o.consumedCPU
}

func (s *spent) sample() sample {
	n := float64(s.messages)
	return sample{
		PublishRate: n / s.publish.Seconds(), PublishCPU: s.publishCPU.Seconds() / n * 1e5,
		ConsumeRate: n / s.consume.Seconds(), ConsumeCPU: s.consumedCPU.Seconds() / n * 1e5,
	}
}

// measure runs the pairs after one that does not count.
func measure(ctx context.Context, p *sheet.Progress, b broker, o options) (report, error) {
	ours, bare := b.ways()
	r := newReport(o, b.version(), ours.name, bare.name)
	for pair := 0; pair <= o.Pairs; pair++ {
		first, second, err := measurePair(ctx, b, ours, bare, o.sizes, pair)
		if err != nil {
			return r, err
		}
		what := fmt.Sprintf("pair %d of %d", pair, o.Pairs)
		if pair == 0 {
			what = "warm-up"
		} else {
			r.add(first, second)
		}
		p.Step("%s: publish %s against %s a second, consume %s against %s", what,
			sheet.Count(first.PublishRate), sheet.Count(second.PublishRate),
			sheet.Count(first.ConsumeRate), sheet.Count(second.ConsumeRate))
	}
	r.conclude()
	return r, nil
}

// measurePair lets the two ways take turns in slices, each being first as often as
// second: what else the machine does in these seconds hits both alike.
func measurePair(ctx context.Context, b broker, ours, bare way, s sizes, pair int) (_, _ sample, err error) {
	var sums [2]spent
	for slice := range s.Slices {
		// The remainder goes to the first slices.
		n := s.Messages / s.Slices
		if slice < s.Messages%s.Slices {
			n++
		}
		for _, i := range stat.Turn([]int{0, 1}, pair+slice) {
			w := [...]way{ours, bare}[i]
			got, err := measureWay(ctx, b, w, n)
			if err != nil {
				return sample{}, sample{}, fmt.Errorf("%s: %w", w.name, err)
			}
			sums[i].add(got)
		}
	}
	return sums[0].sample(), sums[1].sample(), nil
}

// measureWay publishes n messages to an empty topic, consumes all of them, and checks
// the count of both.
func measureWay(ctx context.Context, b broker, w way, n int) (_ spent, err error) {
	if err := b.reset(ctx); err != nil {
		return spent{}, err
	}
	got := spent{messages: n}
	got.publish, got.publishCPU, err = timed(ctx, w.name, "publish", func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		err := w.publish(ctx, n)
		return time.Since(began), err
	})
	if err != nil {
		return got, fmt.Errorf("publish: %w", err)
	}
	if err := expect(ctx, "are stored", b.stored, n); err != nil {
		return got, err
	}
	got.consume, got.consumedCPU, err = timed(ctx, w.name, "consume", func(ctx context.Context) (time.Duration, error) {
		return w.consume(ctx, n)
	})
	if err != nil {
		return got, fmt.Errorf("consume: %w", err)
	}
	return got, expect(ctx, "are unfinished", b.unfinished, 0)
}

func expect(ctx context.Context, what string, count func(context.Context) (int, error), want int) error {
	n, err := count(ctx)
	if err != nil {
		return fmt.Errorf("count messages that %s: %w", what, err)
	}
	if n != want {
		return fmt.Errorf("%d messages %s, not %d", n, what, want)
	}
	return nil
}

// timed measures f, and marks what it does in a CPU profile.
func timed(ctx context.Context, way, phase string, f func(ctx context.Context) (time.Duration, error)) (took, cpu time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, phaseLimit)
	defer cancel()
	runtime.GC() // no side pays for the garbage of the one before
	before := meter.Self()
	pprof.Do(ctx, pprof.Labels("way", way, "phase", phase), func(ctx context.Context) {
		took, err = f(ctx)
	})
	return took, meter.Self() - before, err
}
