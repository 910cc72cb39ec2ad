package main

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"github.com/seahub/seahub-mq/test/bench/internal/chart"
	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
	"github.com/seahub/seahub-mq/test/bench/internal/stat"
)

// bin is the width of a point of the drawn timeline.
const bin = 250 * time.Millisecond

// timeline is a load with an outage of the broker in its middle.
type timeline struct {
	Down  float64 `json:"broker_stopped_s"`
	Up    float64 `json:"broker_started_s"`
	Clear float64 `json:"backlog_clear_s"`
	Most  int     `json:"most_backlog"`
}

// runTimeline draws latency and backlog over time, under a steady load and through an
// outage of the broker from a third of the time to a half of it.
func runTimeline(ctx context.Context, b *bed, r *report) error {
	length := time.Duration(b.TimelineSeconds) * time.Second
	var down, up time.Duration
	var l *load
	err := b.session(ctx, r, func() error {
		return b.withRelays(1, func(relays) error {
			if err := b.catchUp(ctx); err != nil {
				return err
			}
			b.p.Step("timeline: %d events/s for %s, the broker is down for a sixth of it", fastRate, length)
			began := time.Now()
			var err error
			l, err = b.apply(ctx, fastRate, length, true, func(ctx context.Context) (err error) {
				if err := pause(ctx, length/3); err != nil {
					return err
				}
				down = time.Since(began)
				if err := b.topic.stop(ctx); err != nil {
					return err
				}
				wait := pause(ctx, length/6)
				up = time.Since(began)
				if err := b.topic.start(context.WithoutCancel(ctx)); err != nil {
					return err
				}
				return wait
			})
			if err != nil {
				return err
			}
			return b.awaitMarked(ctx)
		})
	})
	if err != nil {
		return err
	}
	backlog := l.backlog(bin)
	t := timeline{Down: down.Seconds(), Up: up.Seconds()}
	for _, p := range backlog {
		t.Most = max(t.Most, int(p.Y))
	}
	t.Clear = l.clear(up).Seconds()
	r.raw.Timeline = t
	b.p.Step("timeline: backlog of %s at most, gone %.1f s after the broker was back", sheet.Count(float64(t.Most)), t.Clear-t.Up)
	return sheet.WriteFile(filepath.Join(b.out, "bench-relay.svg"), []byte(draw(b, l, t, backlog).SVG()))
}

// spans condenses latencies by when their events were committed.
func (l *load) spans(width time.Duration) (p50, p99 []chart.Point) {
	bins := map[int][]time.Duration{}
	for i, at := range l.readable {
		if at > 0 {
			n := int(l.committed[i] / width)
			bins[n] = append(bins[n], max(0, at-l.committed[i]))
		}
	}
	for n := range slices.Max(append(keys(bins), 0)) + 1 {
		if len(bins[n]) == 0 {
			continue
		}
		s := stat.SpanOf(bins[n])
		x := (time.Duration(n)*width + width/2).Seconds()
		p50 = append(p50, chart.Point{X: x, Y: stat.Milliseconds(s.P50)})
		p99 = append(p99, chart.Point{X: x, Y: stat.Milliseconds(s.P99)})
	}
	return p50, p99
}

func keys(m map[int][]time.Duration) []int {
	out := make([]int, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	return out
}

// backlog is how many events were committed and not yet readable, over time.
func (l *load) backlog(width time.Duration) []chart.Point {
	in, out := slices.Sorted(slices.Values(l.committed)), slices.Sorted(slices.Values(l.readable))
	var end time.Duration
	if len(in) > 0 {
		end = max(in[len(in)-1], out[len(out)-1])
	}
	var points []chart.Point
	for at := time.Duration(0); at <= end+width; at += width {
		i, _ := slices.BinarySearch(in, at)
		o, _ := slices.BinarySearch(out, at)
		points = append(points, chart.Point{X: at.Seconds(), Y: float64(max(0, i-o))})
	}
	return points
}

// clear is when the last event that was committed before up could be read.
func (l *load) clear(up time.Duration) (at time.Duration) {
	for i, committed := range l.committed {
		if committed <= up {
			at = max(at, l.readable[i])
		}
	}
	return at
}

func draw(b *bed, l *load, t timeline, backlog []chart.Point) chart.Chart {
	p50, p99 := l.spans(bin)
	return chart.Chart{
		Title:    "One relay at 1,000 events a second, the broker away for a while",
		Subtitle: b.dbName + ", " + b.topic.version() + ", " + time.Now().UTC().Format(time.DateOnly),
		XLabel:   "seconds",
		Bands:    []chart.Band{{From: t.Down, To: t.Up, Label: "broker down"}},
		Panels: []chart.Panel{
			{Title: "From COMMIT to readable, milliseconds, by time of commit (logarithmic)", Log: true, Lines: []chart.Line{
				{Name: "p99", Color: "#d1495b", Points: p99},
				{Name: "p50", Color: "#00798c", Points: p50},
			}},
			{Title: "Backlog: events committed and not yet readable", Lines: []chart.Line{
				{Name: "backlog", Color: "#30638e", Points: backlog},
			}},
		},
	}
}
