package main

import (
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
	"github.com/seahub/seahub-mq/test/bench/internal/stat"
)

// figures are bench-relay.json.
type figures struct {
	Floor      float64 `json:"floor_eps"`
	Relay      float64 `json:"relay_eps"`
	Relay2     float64 `json:"relay2_eps"`
	Naive      float64 `json:"naive_eps"`
	Pinned     float64 `json:"pinned_eps"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	CPU        float64 `json:"cpu_s_per_100k"`
	RSS        float64 `json:"rss_mb"`
	IdleCPU    float64 `json:"idle_cpu_pct"`
	IdleAsks   float64 `json:"idle_statements_per_s"`
	Lost       int     `json:"lost"`
	Duplicated int     `json:"duplicated"`
}

// raw is bench-relay-raw.json: every measurement, and what was measured on.
type raw struct {
	Database string    `json:"database"`
	Broker   string    `json:"broker"`
	Go       string    `json:"go"`
	CPUs     int       `json:"cpus"`
	At       time.Time `json:"at"`
	sizes

	Drains  map[string][]drained `json:"drains"`
	Latency map[string][]latency `json:"latency_by_rate"`
	Idle    idle                 `json:"idle"`
	Writers map[string][]writing `json:"writers"`
	// Poison is a drain beside rows that cannot be sent, Late latency by kind of writer.
	Poison map[string][]drained `json:"poison"`
	Late   map[string][]latency `json:"late"`

	Timeline timeline `json:"timeline"`
	// Books of everything but the drains, which have their own.
	Books books `json:"books"`
}

type report struct {
	o   options
	raw raw
}

func newReport(o options, b *bed) *report {
	return &report{o: o, raw: raw{
		Database: b.dbName, Broker: b.topic.version(), Go: runtime.Version(), CPUs: runtime.NumCPU(),
		At: time.Now().UTC().Truncate(time.Second), sizes: o.sizes,
		Drains: map[string][]drained{}, Latency: map[string][]latency{}, Writers: map[string][]writing{},
		Poison: map[string][]drained{}, Late: map[string][]latency{},
	}}
}

func (r *report) drained(key string, d drained) { r.raw.Drains[key] = append(r.raw.Drains[key], d) }

// median of one figure of one contender; NaN if it did not run.
func (r *report) median(key string, of func(drained) float64) float64 {
	var v []float64
	for _, d := range r.raw.Drains[key] {
		v = append(v, of(d))
	}
	return stat.Median(v)
}

func rateOf(d drained) float64 { return d.Rate }

// ratio of two contenders' rates, round by round, and its median: what slows the
// machine down for a while slows both.
func (r *report) ratio(key, to string) float64 {
	column := func(key string) (v []float64) {
		for _, d := range r.raw.Drains[key] {
			v = append(v, d.Rate)
		}
		return v
	}
	return stat.Median(stat.Ratios(column(key), column(to)))
}

func (r *report) latency(perSecond int, of func(latency) float64) float64 {
	var v []float64
	for _, l := range r.raw.Latency[strconv.Itoa(perSecond)] {
		v = append(v, of(l))
	}
	return stat.Median(v)
}

func p50(l latency) float64 { return l.P50 }
func p99(l latency) float64 { return l.P99 }

func (r *report) figures() figures {
	f := figures{
		Floor: r.median("floor", rateOf), Relay: r.median("relay", rateOf), Relay2: r.median("relay2", rateOf),
		Naive: r.median("naive", rateOf), Pinned: r.median("pinned", rateOf),
		P50: r.latency(slowRate, p50), P99: r.latency(slowRate, p99),
		CPU:     r.median("relay", func(d drained) float64 { return d.CPU }),
		IdleCPU: r.raw.Idle.CPUPercent, IdleAsks: r.raw.Idle.Statements,
		Lost: r.raw.Books.Lost, Duplicated: r.raw.Books.Duplicated,
	}
	for _, by := range []map[string][]drained{r.raw.Drains, r.raw.Poison} {
		for _, rounds := range by {
			for _, d := range rounds {
				f.RSS = max(f.RSS, d.Peak)
				f.Lost += d.Lost
				f.Duplicated += d.Duplicated
			}
		}
	}
	return f
}

func (r *report) print(out io.Writer) error {
	fmt.Fprintf(out, "%s, %s; %s events of %d bytes, batches of %d; medians of %d rounds on %d CPUs\n",
		r.raw.Database, r.raw.Broker, sheet.Count(float64(r.raw.Events)), r.raw.BodyBytes, r.raw.Batch, r.raw.Rounds, r.raw.CPUs)
	for _, p := range []struct {
		part  string
		print func(io.Writer) error
	}{{"drain", r.printDrains}, {"latency", r.printLatency}, {"idle", r.printIdle}, {"writers", r.printWriters}, {"poison", r.printPoison}, {"late", r.printLate}} {
		if !r.o.runs(p.part) {
			continue
		}
		fmt.Fprintln(out)
		if err := p.print(out); err != nil {
			return err
		}
	}
	f := r.figures()
	_, err := fmt.Fprintf(out, "\nlost %d, duplicated %d (of events written through outages of the broker: %d)\n",
		f.Lost, f.Duplicated, r.raw.Books.Duplicated)
	return err
}

func (r *report) printDrains(out io.Writer) error {
	t := sheet.NewTable("draining a backlog", "events/s", "of the floor", "of one relay", "last/first third", "CPU s per 100k", "peak MB")
	for _, c := range contenders {
		cpu, peak := "–", "–"
		if c.relays > 0 {
			cpu = fmt.Sprintf("%.2f", r.median(c.key, func(d drained) float64 { return d.CPU }))
			peak = fmt.Sprintf("%.0f", r.median(c.key, func(d drained) float64 { return d.Peak }))
		}
		t.Row(c.what, sheet.Count(r.median(c.key, rateOf)), sheet.Ratio(r.ratio(c.key, "floor")), sheet.Ratio(r.ratio(c.key, "relay")),
			sheet.Ratio(r.median(c.key, func(d drained) float64 { return d.Flat })), cpu, peak)
	}
	if err := t.Print(out); err != nil {
		return err
	}
	part := func(of func(drained) float64) float64 { return r.median("floor", of) }
	_, err := fmt.Fprintf(out, "the floor's seconds per 100,000 events: claim %.2f, mark %.2f, commit %.2f\n",
		part(func(d drained) float64 { return d.Claim }), part(func(d drained) float64 { return d.Mark }), part(func(d drained) float64 { return d.Commit }))
	return err
}

func (r *report) printLatency(out io.Writer) error {
	t := sheet.NewTable("COMMIT to readable", "p50 ms", "p99 ms")
	for _, perSecond := range []int{slowRate, fastRate} {
		t.Row(fmt.Sprintf("at %s events/s", sheet.Count(float64(perSecond))),
			milliseconds(r.latency(perSecond, p50)), milliseconds(r.latency(perSecond, p99)))
	}
	return t.Print(out)
}

func (r *report) printIdle(out io.Writer) error {
	t := sheet.NewTable("an idle relay", "% of a core", "statements/s")
	t.Row("", fmt.Sprintf("%.2f", r.raw.Idle.CPUPercent), fmt.Sprintf("%.1f", r.raw.Idle.Statements))
	return t.Print(out)
}

func (r *report) printWriters(out io.Writer) error {
	t := sheet.NewTable(fmt.Sprintf("writers at %d/s", slowRate), "COMMIT p50 ms", "ratio", "COMMIT p99 ms", "whole p50 ms", "ratio")
	without := r.raw.Writers[alone]
	commit := func(w writing) float64 { return w.Commit.P50 }
	whole := func(w writing) float64 { return w.Whole.P50 }
	for _, c := range []string{alone, relayed, brokenBy} {
		ws := r.raw.Writers[c]
		of := func(f func(writing) float64) string {
			var v []float64
			for _, w := range ws {
				v = append(v, f(w))
			}
			return milliseconds(stat.Median(v))
		}
		t.Row(c, of(commit), sheet.Ratio(ratioOf(ws, without, commit)), of(func(w writing) float64 { return w.Commit.P99 }),
			of(whole), sheet.Ratio(ratioOf(ws, without, whole)))
	}
	return t.Print(out)
}

func (r *report) printPoison(out io.Writer) error {
	t := sheet.NewTable("draining "+sheet.Count(float64(r.raw.PoisonEvents)), "events/s", "of the first")
	column := func(c string) (v []float64) {
		for _, d := range r.raw.Poison[c] {
			v = append(v, d.Rate)
		}
		return v
	}
	for _, c := range []string{clean, poisoned} {
		t.Row(c, sheet.Count(stat.Median(column(c))), sheet.Ratio(stat.Median(stat.Ratios(column(c), column(clean)))))
	}
	return t.Print(out)
}

func (r *report) printLate(out io.Writer) error {
	t := sheet.NewTable(fmt.Sprintf("COMMIT to readable, %d/s ordinary, %d/s of each other", slowRate, oddRate), "p50 ms", "p99 ms", "longest ms", "within the sweep's 5 s")
	for _, k := range kinds() {
		of := func(f func(latency) float64) (v []float64) {
			for _, l := range r.raw.Late[k] {
				v = append(v, f(l))
			}
			return v
		}
		longest := of(func(l latency) float64 { return l.Max })
		t.Row(k, milliseconds(stat.Median(of(p50))), milliseconds(stat.Median(of(p99))), milliseconds(slices.Max(append(longest, 0))), within(r.raw.Late[k]))
	}
	return t.Print(out)
}

// write leaves the results in files. Figures of some parts only are no result.
func (r *report) write(out io.Writer) error {
	path := filepath.Join(r.o.out, "bench-relay-raw.json")
	if err := sheet.WriteJSON(path, r.raw); err != nil {
		return err
	}
	fmt.Fprintf(out, "wrote %s\n", path)
	if r.o.only != "" {
		return nil
	}
	path = filepath.Join(r.o.out, "bench-relay.json")
	if err := sheet.WriteJSON(path, r.figures()); err != nil {
		return err
	}
	fmt.Fprintf(out, "wrote %s and bench-relay.svg\n", path)
	return nil
}
