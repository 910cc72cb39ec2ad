// Command campaign measures the campaign sync by events against the old serial sync, on
// the same fake platform, with the shipped binaries, a real database and a real broker:
// wall time of a first round and of a second one, requests, and whether the tables are
// equal row by row. `make bench-campaign` calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv/tiktokfake"
	"github.com/seahub/seahub-mq/test/bench/internal/cli"
)

func main() {
	os.Exit(cli.Main("bench-campaign", func(ctx context.Context, args []string) error {
		return run(ctx, args, os.Stdout)
	}))
}

type options struct {
	campaigns, products, pods int
	call                      time.Duration
	apiRate, linkRate         float64
}

// errDiffer: the paths do not agree, which no speed makes good.
var errDiffer = errors.New("the two paths differ")

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("Measures the campaign sync by events against the old serial sync.", flag.ContinueOnError)
	f.IntVar(&o.campaigns, "campaigns", 40, "campaigns")
	f.IntVar(&o.products, "products", 60_000, "products of all campaigns together, at most 5000 each")
	f.IntVar(&o.pods, "pods", 2, "processes that consume")
	f.DurationVar(&o.call, "call", 10*time.Millisecond, "how long the platform takes for a call or a share link")
	f.Float64Var(&o.apiRate, "api-rate", 50, "budget of API calls a second")
	f.Float64Var(&o.linkRate, "link-rate", 2000, "budget of share links a second")
	if err := cli.Parse(f, args); err != nil {
		return o, err
	}
	if o.campaigns < 1 || o.pods < 1 || o.products < o.campaigns || o.products > o.campaigns*5000 {
		return o, fmt.Errorf("%w: need campaigns and pods, and 1 to 5000 products a campaign", cli.ErrUsage)
	}
	return o, nil
}

// outcome is one path's.
type outcome struct {
	first, second time.Duration
	requests      map[tiktokfake.Call]int
	digest        string
	rows          int
}

// sayer prints a line.
type sayer func(format string, values ...any)

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "seahub-bench-campaign-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	root, err := stack.Root()
	if err != nil {
		return err
	}
	services := []string{"relay", "campaign-consumer"}
	binaries, err := stack.Build(ctx, root, filepath.Join(dir, "bin"), false, services...)
	if err != nil {
		return err
	}
	say := sayer(func(format string, values ...any) { _, _ = fmt.Fprintf(out, format+"\n", values...) })
	say("%d campaigns, %d products, %s a call; budgets: %g API calls/s, %g share links/s", o.campaigns, o.products, o.call, o.apiRate, o.linkRate)
	var paths [2]outcome
	for i, events := range []bool{false, true} {
		name := "serial sync (flag off, 1 poll)"
		if events {
			name = fmt.Sprintf("events (flag on, %d consumers, 1 poll, 1 relay)", o.pods)
		}
		if paths[i], err = measure(ctx, filepath.Join(dir, fmt.Sprint(i)), binaries, o, events, say); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		say("%-48s first round %8s, second %8s; requests %v", name,
			paths[i].first.Round(10*time.Millisecond), paths[i].second.Round(10*time.Millisecond), paths[i].requests)
	}
	return verdict(paths[0], paths[1], say)
}

func verdict(old, events outcome, say sayer) error {
	say("wall time: first round %.1f×, second %.1f× shorter by events", old.first.Seconds()/events.first.Seconds(), old.second.Seconds()/events.second.Seconds())
	if old.rows != events.rows || old.digest != events.digest {
		return fmt.Errorf("%w: %d rows (digest %s) and %d rows (digest %s)", errDiffer, old.rows, old.digest, events.rows, events.digest)
	}
	say("tables: equal, %d rows", old.rows)
	for name, n := range events.requests {
		if n > old.requests[name] {
			return fmt.Errorf("%w: events made %d requests of kind %s, the old path %d", errDiffer, n, name, old.requests[name])
		}
	}
	say("requests: no more than the old path's, of any kind")
	return nil
}
