// Command bus measures what our event bus costs over the bare client of its broker:
// the same messages, byte for byte, in batches of the same size, published and
// consumed both ways in one run. `make bench-bus` calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/test/bench/internal/cli"
	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
)

func main() {
	os.Exit(cli.Main("bench-bus", func(ctx context.Context, args []string) error {
		return run(ctx, args, os.Stdout)
	}))
}

// sizes of a run.
type sizes struct {
	Messages    int `json:"messages"`
	BodyBytes   int `json:"body_bytes"`
	Batch       int `json:"batch"`
	Concurrency int `json:"concurrency"`
	Pairs       int `json:"pairs"`
	Slices      int `json:"slices"`
}

type options struct {
	sizes
	provider string
	out      string
	profile  string
}

func parse(args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench-bus: our event bus against the bare client of its broker", flag.ContinueOnError)
	f.SetOutput(out)
	cli.Choice(f, &o.provider, "provider", "broker", providers()...)
	cli.Int(f, &o.Messages, "messages", 200_000, "messages that each way sends and receives in a pair")
	cli.Int(f, &o.Slices, "slices", 10, "slices of a pair, in which the two ways take turns")
	cli.Int(f, &o.BodyBytes, "body-bytes", 400, "bytes of a message's body")
	cli.Int(f, &o.Batch, "batch", 500, "messages per publish")
	cli.Int(f, &o.Concurrency, "concurrency", 64, "handlers of the subscription, and messages per read of the bare client")
	cli.Int(f, &o.Pairs, "pairs", 5, "measured pairs; their median counts")
	f.StringVar(&o.out, "out", "", "folder of bench-bus.json (default out/ of the checkout)")
	f.StringVar(&o.profile, "cpuprofile", "", "file for a CPU profile of the pairs; its tags way and phase tell them apart")
	if err := cli.Parse(f, args); err != nil {
		return o, err
	}
	if o.Slices > o.Messages {
		return o, fmt.Errorf("%w: %d messages make no %d slices", cli.ErrUsage, o.Messages, o.Slices)
	}
	if o.out == "" {
		root, err := stack.Root()
		if err != nil {
			return o, err
		}
		o.out = filepath.Join(root, "out")
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	p := sheet.NewProgress(out)
	p.Step("starting %s", o.provider)
	b, err := brokers[o.provider](ctx, o.sizes)
	if err != nil {
		return err
	}
	defer b.close()
	stopProfile, err := cli.Profile(o.profile)
	if err != nil {
		return err
	}
	r, err := measure(ctx, p, b, o)
	if err := errors.Join(err, stopProfile()); err != nil {
		return err
	}
	path := filepath.Join(o.out, "bench-bus.json")
	if err := sheet.WriteJSON(path, r); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := r.print(out); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nwrote %s\n", path)
	return nil
}
