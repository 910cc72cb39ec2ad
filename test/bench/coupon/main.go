// Command coupon measures how coupon-consumer works off a mass of coupons whose time
// has come, with its flag off and on, beside business updates on the same table. The
// services are the shipped binaries, the servers write as production's do.
// `make bench-coupon` calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/test/bench/internal/cli"
	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
	"github.com/seahub/seahub-mq/test/bench/internal/stat"
)

func main() {
	os.Exit(cli.Main("bench-coupon", func(ctx context.Context, args []string) error {
		return run(ctx, args, os.Stdout)
	}))
}

type options struct {
	coupons, writers, updates, idleSeconds int
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench-coupon: a mass of due coupons, flag off and on, beside business updates", flag.ContinueOnError)
	f.SetOutput(out)
	cli.Int(f, &o.coupons, "coupons", 1_000_000, "coupons that are due at once")
	cli.Int(f, &o.writers, "writers", 4, "connections that update other coupons meanwhile")
	cli.Int(f, &o.updates, "updates", 400, "updates a second that they want to make together")
	cli.Int(f, &o.idleSeconds, "idle-seconds", 10, "how long those are measured with nothing beside them")
	return o, cli.Parse(f, args)
}

// result of one way of expiring.
type result struct {
	name     string
	took     time.Duration
	longest  time.Duration // transaction of the scan
	business stat.Span
	rate     float64 // business updates a second
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-coupon-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	progress := sheet.NewProgress(out)
	s, err := stack.Start(ctx, stack.Options{Dir: filepath.Join(dir, "stack"), Durable: true, Progress: func(step string) { progress.Step("%s", step) }})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := s.Close(closing); err != nil {
			fmt.Fprintln(out, "bench-coupon: stop:", err)
		}
	}()
	b := newBed(s, o, progress)
	var results []result
	for _, measure := range []func(context.Context) (result, error){b.idle, b.flagOff, b.flagOn} {
		r, err := measure(ctx)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	fmt.Fprintf(out, "\n%d coupons due at once; %d writers want to make %d updates a second of others\n\n", o.coupons, o.writers, o.updates)
	return table(out, o, results)
}

func table(out io.Writer, o options, results []result) error {
	t := sheet.NewTable("", "all expired in", "coupons/s", "longest transaction", "updates/s", "update p50", "p99", "longest")
	for _, r := range results {
		took, rate, longest := "–", "–", "–"
		if r.took > 0 {
			took, longest = r.took.Round(100*time.Millisecond).String(), r.longest.Round(time.Millisecond).String()
			rate = fmt.Sprintf("%.0f", float64(o.coupons)/r.took.Seconds())
		}
		t.Row(r.name, took, rate, longest, fmt.Sprintf("%.0f", r.rate), short(r.business.P50), short(r.business.P99), short(r.business.Max))
	}
	return t.Print(out)
}

func short(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
