package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/seahub/seahub-mq/dev/books"
	"github.com/seahub/seahub-mq/dev/lockdir"
	"github.com/seahub/seahub-mq/dev/proc"
	"github.com/seahub/seahub-mq/dev/stack"
)

const (
	// wholeTime bounds the run whatever happens; the steps have nearer bounds.
	wholeTime = 5 * time.Minute
	stopTime  = time.Minute
)

// ErrUnbalanced is returned when the run was completed and a promise was broken.
var ErrUnbalanced = errors.New("the books do not balance")

// Options of a run.
type Options struct {
	// Root is the checkout, Dir the run's folder.
	Root, Dir string
	// Provider is the broker: one of the stack's.
	Provider string
	// Pushes is how many business transactions are begun.
	Pushes int
	// Keep leaves logs and binaries in Dir also when all is well.
	Keep bool
	// Sabotage falsifies the evidence before it is judged: see Sabotages.
	Sabotage string
	// Out takes the story; on a Terminal one line of it is rewritten.
	Out      io.Writer
	Terminal bool
}

// run is one run of the demo.
type run struct {
	o      Options
	say    *screen
	stack  *stack.Stack
	cast   *cast
	feed   *feed
	faults *faults
	relays *pair
}

// Run plays the story. The last line that it writes is the verdict; an error other
// than ErrUnbalanced means that there is none.
func Run(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wholeTime, fmt.Errorf("the demo took longer than %s", wholeTime))
	defer cancel()
	if err := checkOptions(o); err != nil {
		return err
	}
	lock, err := lockdir.Acquire(o.Dir)
	if err != nil {
		return fmt.Errorf("another demo runs in this checkout: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	r := &run{o: o, say: newScreen(o.Out, o.Terminal)}
	if err := r.tidy(); err != nil { // what an earlier run left
		return err
	}
	r.introduce()
	verdict, err := r.play(ctx)
	r.say.stopLine()
	err = errors.Join(err, r.stop(ctx))
	if err != nil {
		r.say.printf("logs: %s", filepath.Join(o.Dir, "logs"))
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = errors.Join(cause, err)
		}
		return err
	}
	return r.conclude(verdict)
}

func checkOptions(o Options) error {
	if o.Pushes < minPushes {
		return fmt.Errorf("--pushes is %d: at least %d are needed, so that every fault meets some", o.Pushes, minPushes)
	}
	switch o.Provider {
	case "", stack.RedisStreams, stack.RocketMQ:
	default:
		return fmt.Errorf("--provider=%s is unknown, it may be %s or %s", o.Provider, stack.RedisStreams, stack.RocketMQ)
	}
	if o.Sabotage == "" {
		return nil
	}
	for _, s := range Sabotages() {
		if s.Name == o.Sabotage {
			return nil
		}
	}
	return fmt.Errorf("--sabotage=%s is unknown, it may be one of %s", o.Sabotage, sabotageNames())
}

func (r *run) introduce() {
	r.say.printf(`This starts a private MariaDB, %[1]s and a strict FCM fake, then relay ×2, push-consumer ×2 and its poll as processes.
%[2]d business transactions each write a push and its event; some roll back, some pushes are due later, some devices are gone.
In the middle FCM answers 429, answers get lost, %[1]s is stopped for %[3]s, the working relay is killed with -9, and
events that were published are published again by hand. It takes about a minute and a half; Ctrl-C stops everything.
At the end the business tables and FCM's own record must agree: each push once on each live device, and nothing else.
`, brokerName(r.o.Provider), r.o.Pushes, brokerStop)
}

// play runs everything up to the verdict.
func (r *run) play(ctx context.Context) (books.Verdict, error) {
	if err := r.open(ctx); err != nil {
		return books.Verdict{}, err
	}
	if err := r.perform(ctx); err != nil {
		return books.Verdict{}, err
	}
	if err := r.settle(ctx); err != nil {
		// What has not settled shows in the books, with its ids.
		if ctx.Err() != nil {
			return books.Verdict{}, err
		}
		r.say.printf("! %v", err)
	}
	return r.judge(ctx)
}

// open starts the stack, the services and what they work on.
func (r *run) open(ctx context.Context) error {
	var err error
	r.stack, err = stack.Start(ctx, stack.Options{Dir: r.o.Dir, Root: r.o.Root, Durable: true, Provider: r.o.Provider,
		Progress: func(step string) { r.say.printf("- %s", step) }})
	if err != nil {
		return err
	}
	for name, value := range settings() {
		r.stack.Env[name] = value
	}
	r.say.printf("- turning the flag push-dispatch on and creating users and devices")
	if _, err := r.relay(ctx, "flags", "set", "push-dispatch", "on", "--reason", "demo"); err != nil {
		return err
	}
	flagged := time.Now()
	if r.cast, err = newCast(ctx, r.stack, r.o.Pushes); err != nil {
		return err
	}
	r.say.printf("- starting relay ×2, push-consumer ×2 and its poll")
	if err := r.startServices(ctx); err != nil {
		return err
	}
	r.say.printf("- waiting until the flag is binding everywhere")
	return pause(ctx, time.Until(flagged.Add(flagBinding)))
}

// perform feeds the pushes while the faults happen.
func (r *run) perform(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var err error
	if r.feed, err = newFeed(r.stack, r.cast, r.o.Pushes); err != nil {
		return err
	}
	defer r.feed.close()
	r.faults = &faults{run: r}
	r.say.startLine(ctx, r.progress)
	trouble := make(chan error, 1)
	go func() {
		err := r.faults.play(ctx)
		if err != nil {
			cancel(err)
		}
		trouble <- err
	}()
	fed := r.feed.play(ctx)
	if fed != nil {
		cancel(fed)
	}
	return errors.Join(fed, <-trouble)
}

func (r *run) stop(ctx context.Context) error {
	if r.stack == nil {
		return nil
	}
	r.say.printf("- stopping everything")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := r.stack.Close(ctx); err != nil {
		return err
	}
	children, err := proc.Children(os.Getpid())
	if err == nil && len(children) > 0 {
		err = fmt.Errorf("processes %v are still there", children)
	}
	return err
}

// relay runs one command of the relay, requires it to succeed and returns what it said.
func (r *run) relay(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	out, code, err := r.stack.Command(ctx, "relay", nil, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if err != nil {
		return "", fmt.Errorf("relay %s: %w\n%s", args[0], err, out)
	}
	return out, nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
