package main

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
	"github.com/seahub/seahub-mq/test/bench/internal/stat"
)

// report is bench-bus.json.
type report struct {
	// The ratios are medians of the pairs' own ratios: what slows the machine down for
	// a while slows both ways of a pair.
	PublishRatio float64 `json:"publish_ratio"`
	ConsumeRatio float64 `json:"consume_ratio"`

	Provider string    `json:"provider"`
	Broker   string    `json:"broker"`
	Go       string    `json:"go"`
	CPUs     int       `json:"cpus"`
	At       time.Time `json:"at"`
	sizes

	Ours   series `json:"ours"`
	Bare   series `json:"bare"`
	Median struct {
		Ours sample `json:"ours"`
		Bare sample `json:"bare"`
	} `json:"median"`
	names [2]string
}

type series []sample

func newReport(o options, version, ours, bare string) report {
	return report{
		Provider: o.provider, Broker: version, Go: runtime.Version(), CPUs: runtime.NumCPU(),
		At: time.Now().UTC().Truncate(time.Second), sizes: o.sizes, names: [2]string{ours, bare},
	}
}

func (r *report) add(ours, bare sample) {
	r.Ours, r.Bare = append(r.Ours, ours), append(r.Bare, bare)
}

func (s series) column(of func(sample) float64) []float64 {
	out := make([]float64, len(s))
	for i := range s {
		out[i] = of(s[i])
	}
	return out
}

func (s series) median() sample {
	m := func(of func(sample) float64) float64 { return stat.Median(s.column(of)) }
	return sample{
		PublishRate: m(publishRate), PublishCPU: m(func(s sample) float64 { return s.PublishCPU }),
		ConsumeRate: m(consumeRate), ConsumeCPU: m(func(s sample) float64 { return s.ConsumeCPU }),
	}
}

func publishRate(s sample) float64 { return s.PublishRate }
func consumeRate(s sample) float64 { return s.ConsumeRate }

func (r *report) conclude() {
	r.Median.Ours, r.Median.Bare = r.Ours.median(), r.Bare.median()
	r.PublishRatio = stat.Median(stat.Ratios(r.Ours.column(publishRate), r.Bare.column(publishRate)))
	r.ConsumeRatio = stat.Median(stat.Ratios(r.Ours.column(consumeRate), r.Bare.column(consumeRate)))
}

func (r *report) print(out io.Writer) error {
	fmt.Fprintf(out, "%s; %d messages of %d bytes, batches of %d, %d handlers; median of %d pairs on %d CPUs\n\n",
		r.Broker, r.Messages, r.BodyBytes, r.Batch, r.Concurrency, r.Pairs, r.CPUs)
	t := sheet.NewTable("", r.names[0], r.names[1], "ratio")
	cpu := func(v float64) string { return fmt.Sprintf("%.2f", v) }
	o, b := r.Median.Ours, r.Median.Bare
	t.Row("publish, messages/s", sheet.Count(o.PublishRate), sheet.Count(b.PublishRate), sheet.Ratio(r.PublishRatio))
	t.Row("publish, CPU s per 100,000", cpu(o.PublishCPU), cpu(b.PublishCPU), sheet.Ratio(o.PublishCPU/b.PublishCPU))
	t.Row("consume, messages/s", sheet.Count(o.ConsumeRate), sheet.Count(b.ConsumeRate), sheet.Ratio(r.ConsumeRatio))
	t.Row("consume, CPU s per 100,000", cpu(o.ConsumeCPU), cpu(b.ConsumeCPU), sheet.Ratio(o.ConsumeCPU/b.ConsumeCPU))
	return t.Print(out)
}
