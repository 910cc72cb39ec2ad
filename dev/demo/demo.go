package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/seahub/seahub-mq/dev/books"
	"github.com/seahub/seahub-mq/dev/lockdir"
	"github.com/seahub/seahub-mq/dev/proc"
	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv/feishufake"
)

const (
	// wholeTime bounds the run whatever happens; the steps have nearer bounds.
	wholeTime = 6 * time.Minute
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
	// Pushes is how many business transactions are begun, Coupons how many coupons come due.
	Pushes, Coupons int
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
	feishu *feishufake.Server
	cast   *cast
	feed   *feed
	faults *faults
	relays *pair
	ops    *stack.Service

	coupons   *coupons
	campaigns []books.Campaign
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
	if o.Coupons < minCoupons {
		return fmt.Errorf("--coupons is %d: at least %d are needed", o.Coupons, minCoupons)
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
	r.say.printf(`This starts a private MariaDB, %[1]s and strict fakes of FCM, TikTok and Feishu, then relay ×2, the consumers of pushes,
coupons and campaigns with their polls, and ops-consumer, as processes.
%[2]d business transactions each write a push and its event; some roll back, some pushes are due later, some devices are gone.
%[3]d coupons come due while people redeem some and have others extended; %[4]d TikTok campaigns of 10 to 1,000 products are synced.
In the middle FCM answers 429, answers get lost, a poison event is written, %[1]s is stopped, the working relay is killed
with -9, a consumer and then both relays are stopped, and events that were published are published again by hand; people
hear in Feishu of what they must hear of. It takes about a minute and a half; Ctrl-C stops everything.
At the end tables and the fakes' own records must agree: each push once on each live device, each coupon expired once and
none early, campaign tables as TikTok has them, each alert told and resolved once, and nothing else.
`, brokerName(r.o.Provider), r.o.Pushes, r.o.Coupons, len(campaignSizes()))
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
	maps.Copy(r.stack.Env, settings())
	r.say.printf("- turning the flags on, creating users, devices and campaigns")
	for _, flag := range []string{"push-dispatch", "coupon-expire", "campaign-sync"} {
		if _, err := r.relay(ctx, "flags", "set", flag, "on", "--reason", "demo"); err != nil {
			return err
		}
	}
	flagged := time.Now()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	r.say.printf("- starting relay ×2, the consumers and ops-consumer")
	if err := r.startServices(ctx); err != nil {
		return err
	}
	r.introduceOps()
	go r.chat(ctx) // ends with the run
	r.say.printf("- waiting until the flag is binding everywhere")
	return pause(ctx, time.Until(flagged.Add(flagBinding)))
}

// prepare makes what the business and the world outside have before the story begins.
func (r *run) prepare(ctx context.Context) error {
	var err error
	if r.cast, err = newCast(ctx, r.stack, r.o.Pushes); err != nil {
		return err
	}
	for _, statement := range books.BookSQL() {
		if _, err := r.stack.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("make the book of expirations: %w", err)
		}
	}
	r.coupons = &coupons{db: r.stack.DB, plan: map[string]books.Coupon{}}
	r.campaigns = offerCampaigns(r.stack.TikTok)
	r.feishu, err = feishufake.Start(feishufake.Options{Secret: "demo"})
	return err
}

// perform feeds pushes and coupons while the faults happen.
func (r *run) perform(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var err error
	if r.feed, err = newFeed(r.stack, r.cast, r.o.Pushes); err != nil {
		return err
	}
	defer r.feed.close()
	r.faults = &faults{run: r}
	if err := r.startPolls(ctx); err != nil {
		return err
	}
	r.say.startLine(ctx, r.progress)
	parts := []func(context.Context) error{
		r.feed.play,
		func(ctx context.Context) error { return r.coupons.play(ctx, r.o.Coupons) },
		r.faults.play,
	}
	ends := make(chan error, len(parts))
	for _, play := range parts {
		go func() {
			err := play(ctx)
			if err != nil {
				cancel(err)
			}
			ends <- err
		}()
	}
	var errs []error
	for range parts {
		errs = append(errs, <-ends)
	}
	return errors.Join(errs...)
}

func (r *run) stop(ctx context.Context) error {
	if r.stack == nil {
		return nil
	}
	r.say.printf("- stopping everything")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	err := r.stack.Close(ctx)
	if r.feishu != nil {
		err = errors.Join(err, r.feishu.Close())
	}
	if err != nil {
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
