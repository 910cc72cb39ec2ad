// Package cli is what the benchmark programs have in common at their edges.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// ErrUsage is wrapped by errors about how a program was called.
var ErrUsage = errors.New("wrong usage")

// Exit codes: 0 done, 1 failed, 2 wrong usage.
const (
	exitFailed = 1
	exitUsage  = 2
)

// Main runs a program until it is done or a signal comes, and returns its exit code. A
// second signal ends it, and the servers that are its children, at once.
func Main(name string, run func(ctx context.Context, args []string) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// Not before a second has passed: a terminal's signal may come twice.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case ctx.Err() != nil:
		err = fmt.Errorf("interrupted: %w", err)
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	if errors.Is(err, ErrUsage) {
		return exitUsage
	}
	return exitFailed
}

// Parse parses args into f; every flag can be given as a variable too, which the flag
// beats: --events is BENCH_EVENTS.
func Parse(f *flag.FlagSet, args []string) error {
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "%s\n\nflags (or variables: --some-size is BENCH_SOME_SIZE):\n", f.Name())
		f.PrintDefaults()
	}
	var errs []error
	f.VisitAll(func(g *flag.Flag) {
		if v, ok := os.LookupEnv(variable(g.Name)); ok && v != "" {
			if err := g.Value.Set(v); err != nil {
				errs = append(errs, fmt.Errorf("%w: %s=%s: %w", ErrUsage, variable(g.Name), v, err))
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUsage, err)
	case f.NArg() > 0:
		return fmt.Errorf("%w: %q is not a flag", ErrUsage, f.Arg(0))
	}
	return nil
}

func variable(name string) string {
	v := []byte("BENCH_" + name)
	for i, c := range v {
		switch {
		case c == '-':
			v[i] = '_'
		case c >= 'a' && c <= 'z':
			v[i] = c - 'a' + 'A'
		}
	}
	return string(v)
}

// Positive is a flag's value: an int of at least 1.
type Positive int

// String implements flag.Value.
func (p *Positive) String() string { return strconv.Itoa(int(*p)) }

// Set implements flag.Value.
func (p *Positive) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return errors.New("give a whole number of at least 1")
	}
	*p = Positive(n)
	return nil
}

// Int declares a flag of at least 1.
func Int(f *flag.FlagSet, p *int, name string, value int, usage string) {
	*p = value
	f.Var((*Positive)(p), name, usage)
}

// Choice declares a flag that takes one of some words, the first by default.
func Choice(f *flag.FlagSet, p *string, name, usage string, words ...string) {
	*p = words[0]
	f.Var(&choice{p, words}, name, fmt.Sprintf("%s: one of %q", usage, words))
}

type choice struct {
	value *string
	words []string
}

// String implements flag.Value.
func (c *choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

// Set implements flag.Value.
func (c *choice) Set(s string) error {
	for _, w := range c.words {
		if s == w {
			*c.value = s
			return nil
		}
	}
	return fmt.Errorf("allowed are %q", c.words)
}
