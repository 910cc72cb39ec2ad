// Command relay measures the relay against the floor that its database sets, against a
// naive relay and beside its writers, on real servers with production's durability.
// The relay is the shipped binary in a process of its own, so that its CPU time and
// memory are its own. `make bench` calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/test/bench/internal/cli"
	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
)

func main() {
	os.Exit(cli.Main("bench-relay", func(ctx context.Context, args []string) error {
		return run(ctx, args, os.Stdout)
	}))
}

// sizes of a run.
type sizes struct {
	Events          int `json:"events"`
	BodyBytes       int `json:"body_bytes"`
	Rounds          int `json:"rounds"`
	Batch           int `json:"batch"`
	BacklogRate     int `json:"backlog_rate"`
	LatencySeconds  int `json:"latency_seconds"`
	WriterSeconds   int `json:"writer_seconds"`
	IdleSeconds     int `json:"idle_seconds"`
	PoisonEvents    int `json:"poison_events"`
	TimelineSeconds int `json:"timeline_seconds"`
}

type options struct {
	sizes
	db       string
	provider string
	out      string
	root     string
	only     string
}

// part of a run.
type part struct {
	name string
	run  func(ctx context.Context, b *bed, r *report) error
}

// parts in their order.
var parts = []part{
	{"drain", runDrains},
	{"latency", runLatency},
	{"idle", runIdle},
	{"writers", runWriters},
	{"poison", runPoison},
	{"late", runLate},
	{"timeline", runTimeline},
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench-relay: the relay against its database's floor, a naive relay and its writers", flag.ContinueOnError)
	f.SetOutput(out)
	cli.Choice(f, &o.db, "db", "database server", "mariadb", "mysql")
	cli.Choice(f, &o.provider, "provider", "broker", providers()...)
	cli.Int(f, &o.Events, "events", 300_000, "events of one backlog to drain")
	cli.Int(f, &o.BodyBytes, "body-bytes", 400, "bytes of an event's payload")
	cli.Int(f, &o.Rounds, "rounds", 5, "rounds; the median of each figure counts")
	cli.Int(f, &o.Batch, "batch", 500, "events in one pass of the floor and the naive relay; ours is set to the same")
	cli.Int(f, &o.BacklogRate, "backlog-rate", 1000, "events a second that the backlog was written at")
	cli.Int(f, &o.LatencySeconds, "latency-seconds", 10, "length of one latency measurement")
	cli.Int(f, &o.WriterSeconds, "writer-seconds", 5, "length of one measurement of the writers")
	cli.Int(f, &o.IdleSeconds, "idle-seconds", 20, "how long an idle relay is watched")
	cli.Int(f, &o.PoisonEvents, "poison-events", 20_000, "events of a backlog with one in it that is always refused, and 1,000 that are backed off")
	cli.Int(f, &o.TimelineSeconds, "timeline-seconds", 30, "length of the drawn timeline")
	f.StringVar(&o.only, "only", "", "parts to run, separated by commas, out of drain,latency,idle,writers,poison,late,timeline; a run of some parts leaves bench-relay.json alone")
	f.StringVar(&o.out, "out", "", "folder of the results (default out/ of the checkout)")
	if err := cli.Parse(f, args); err != nil {
		return o, err
	}
	for _, name := range o.parts() {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return o, fmt.Errorf("%w: --only: there is no part %q", cli.ErrUsage, name)
		}
	}
	var err error
	if o.root, err = stack.Root(); err != nil {
		return o, err
	}
	if o.out == "" {
		o.out = filepath.Join(o.root, "out")
	}
	return o, nil
}

func (o options) parts() []string {
	if o.only == "" {
		return nil
	}
	return strings.Split(o.only, ",")
}

func (o options) runs(part string) bool {
	return o.only == "" || slices.Contains(o.parts(), part)
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	b, err := makeBed(ctx, o, sheet.NewProgress(out))
	if err != nil {
		return err
	}
	defer b.close()
	r := newReport(o, b)
	for _, p := range parts {
		if !o.runs(p.name) {
			continue
		}
		if err := p.run(ctx, b, r); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	fmt.Fprintln(out)
	if err := r.print(out); err != nil {
		return err
	}
	return r.write(out)
}
