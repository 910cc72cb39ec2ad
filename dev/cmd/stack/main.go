// Command stack runs the whole system on this machine: a demo that judges itself, or a
// system that stays up until it is told to stop. The Makefile's demo, up and down call
// it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/dev/demo"
	"github.com/seahub/seahub-mq/dev/proc"
	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/dev/up"
)

// Exit codes: 0 done, 1 failed, 2 wrong usage.
const (
	exitFailed = 1
	exitUsage  = 2
)

var errUsage = errors.New("wrong usage")

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A later signal ends us at once, and all children with us; one that comes twice,
	// to us and to our process group, must not.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	ctx = endWithGoRun(ctx)
	switch err := newRoot().ExecuteContext(ctx); {
	case err == nil:
		return 0
	case errors.Is(err, demo.ErrUnbalanced):
		return exitFailed // its verdict is said already, as the last line
	default:
		fmt.Fprintf(os.Stderr, "stack: %v\n", err)
		if errors.Is(err, errUsage) {
			return exitUsage
		}
		return exitFailed
	}
}

// endWithGoRun ends the context with the `go run` that started us, if one did: it
// passes no SIGTERM on, so that we would go on without anybody waiting.
func endWithGoRun(ctx context.Context) context.Context {
	parent := os.Getppid()
	if proc.Name(parent) != "go" {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // ends with ctx, which is the program's
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
		cancel(errors.New("`go run` has ended"))
	}()
	return ctx
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "stack",
		Short:         "The whole system on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w; see `%s --help`", errUsage, err, cmd.CommandPath())
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(demoCommand(), upCommand(), downCommand(), statusCommand(), superviseCommand())
	for _, c := range root.Commands() {
		c.Args = noArgs
	}
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: %s takes no arguments", errUsage, cmd.CommandPath())
	}
	return nil
}

func demoCommand() *cobra.Command {
	o := demo.Options{Out: os.Stdout, Terminal: terminal(os.Stdout)}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Play one story on a system of its own, faults included, and judge it",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Root, o.Dir, err = folders("demo", o.Dir); err != nil {
				return err
			}
			return demo.Run(cmd.Context(), o)
		},
	}
	c.Flags().StringVar(&o.Dir, "dir", "", "folder of the run (default .local/demo of the checkout)")
	c.Flags().StringVar(&o.Provider, "provider", stack.RedisStreams, "the broker: "+stack.RedisStreams+" or "+stack.RocketMQ)
	c.Flags().IntVar(&o.Pushes, "pushes", 2000, "business transactions to begin")
	c.Flags().IntVar(&o.Coupons, "coupons", 5000, "coupons that come due")
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the logs also when all is well")
	var ways []string
	for _, s := range demo.Sabotages() {
		ways = append(ways, fmt.Sprintf("%s (%s)", s.Name, s.Does))
	}
	c.Flags().StringVar(&o.Sabotage, "sabotage", "", "falsify the evidence before it is judged, to see the books catch it: "+strings.Join(ways, ", "))
	return c
}

func upCommand() *cobra.Command {
	var o up.Options
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a system, leave it running and print its addresses",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Root, o.Dir, err = folders("up", o.Dir); err != nil {
				return err
			}
			return up.Up(cmd.Context(), o, os.Stdout)
		},
	}
	upFlags(c, &o)
	return c
}

func upFlags(c *cobra.Command, o *up.Options) {
	c.Flags().StringVar(&o.Dir, "dir", "", "folder of the system (default .local/up of the checkout)")
	c.Flags().IntVar(&o.PortsFrom, "ports-from", up.DefaultPortsFrom, "first of the hundred ports to take from; 0 takes free ones")
}

func downCommand() *cobra.Command {
	var o up.Options
	c := &cobra.Command{
		Use:   "down",
		Short: "Stop what up started, and nothing else",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Root, o.Dir, err = folders("up", o.Dir); err != nil {
				return err
			}
			return up.Down(cmd.Context(), o, os.Stdout)
		},
	}
	c.Flags().StringVar(&o.Dir, "dir", "", "folder of the system (default .local/up of the checkout)")
	return c
}

func statusCommand() *cobra.Command {
	var o up.Options
	c := &cobra.Command{
		Use:   "status",
		Short: "Say what is up and how it is; exit 1 unless all of it is well",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Root, o.Dir, err = folders("up", o.Dir); err != nil {
				return err
			}
			well, err := up.Status(cmd.Context(), o, os.Stdout)
			if err == nil && !well {
				err = errors.New("not everything is up and well; `make down` and `make up` start a system anew")
			}
			return err
		},
	}
	c.Flags().StringVar(&o.Dir, "dir", "", "folder of the system (default .local/up of the checkout)")
	return c
}

// superviseCommand is the detached process that up starts.
func superviseCommand() *cobra.Command {
	var o up.Options
	c := &cobra.Command{
		Use:    "supervise",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return up.Supervise(cmd.Context(), o, os.Stdout)
		},
	}
	upFlags(c, &o)
	c.Flags().StringVar(&o.Root, "root", "", "the checkout")
	return c
}

// folders finds the checkout and the folder of a run in it.
func folders(name, given string) (root, dir string, err error) {
	if root, err = stack.Root(); err != nil {
		return "", "", err
	}
	if given == "" {
		given = filepath.Join(root, ".local", name)
	}
	dir, err = filepath.Abs(given)
	return root, dir, err
}

// terminal says whether a line can be rewritten there.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	kind := os.Getenv("TERM")
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && kind != "" && kind != "dumb"
}
