package testenv

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// MainOption changes what Main checks.
type MainOption func(*mainOptions)

type mainOptions struct {
	noLeakCheck string
	ignores     []goleak.Option
}

// IgnoreLeaks adds to the declared list of goroutines that may outlive the tests.
func IgnoreLeaks(options ...goleak.Option) MainOption {
	return func(o *mainOptions) { o.ignores = append(o.ignores, options...) }
}

// NoLeakCheck turns the leak check of this package off, for a reason that is
// printed.
func NoLeakCheck(reason string) MainOption {
	return func(o *mainOptions) { o.noLeakCheck = reason }
}

// Main runs the tests of a package, stops the servers that they shared, then
// looks for leaked goroutines, and exits. The order matters: before the servers
// are stopped, their own goroutines would be the leak.
func Main(m *testing.M, options ...MainOption) {
	os.Exit(runMain(m, options))
}

func runMain(m interface{ Run() int }, options []MainOption) int {
	var o mainOptions
	for _, option := range options {
		option(&o)
	}
	shared.begin()
	code := m.Run()
	if err := shared.end(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv: stop the shared servers:", err)
		code = max(code, 1)
	}
	if o.noLeakCheck != "" {
		fmt.Fprintln(os.Stderr, "testenv: leaks not checked:", o.noLeakCheck)
		return code
	}
	if code != 0 {
		return code // a failed test has a right to leave its goroutines behind
	}
	if err := goleak.Find(append(residents(), o.ignores...)...); err != nil {
		fmt.Fprintln(os.Stderr, "testenv: goroutines left behind by the tests:", err)
		return 1
	}
	return code
}

// residents lists goroutines that live on by design. Each entry names whose
// they are; a package with others says so by IgnoreLeaks.
func residents() []goleak.Option {
	return []goleak.Option{
		// Ours: the thread that holds the children's death signals.
		goleak.IgnoreTopFunction("github.com/seahub/seahub-mq/pkg/testenv.spawnLoop"),

		// go-redis: a dial that was under way when its pool was closed ends with
		// its own timeout, some seconds later.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).dialConn"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),

		// go-cache, of the RocketMQ client: a janitor that importing the client
		// starts and only the garbage collector ends.
		goleak.IgnoreTopFunction("github.com/patrickmn/go-cache.(*janitor).Run"),

		// rocketmq-client-go: Shutdown leaves the timers of a client and of a
		// consumer's statistics asleep, some of them for days. Its goroutines that
		// run our handlers are not in the list: one that stays is our fault.
		rocketmq("internal.(*rmqClient).Start.func1.1"),
		rocketmq("internal.(*rmqClient).Start.func1.2"),
		rocketmq("internal.(*rmqClient).Start.func1.3"),
		rocketmq("internal.(*rmqClient).Start.func1.4"),
		rocketmq("internal.(*rmqClient).Start.func1.5"),
		rocketmq("consumer.(*statsItemSet).init.func1"),
		rocketmq("consumer.(*statsItemSet).init.func2"),
		rocketmq("consumer.(*statsItemSet).init.func3"),
		rocketmq("consumer.(*statsItemSet).init.func4"),
		rocketmq("consumer.(*statsItemSet).init.func5"),
		rocketmq("consumer.(*statsItemSet).init.func6"),
		rocketmq("consumer.(*pushConsumer).Start.func1.2"),
		// A long poll that was under way at Shutdown waits out its 30 s; what it gets
		// then is dropped.
		rocketmq("consumer.(*pushConsumer).pullMessage"),
	}
}

func rocketmq(function string) goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/apache/rocketmq-client-go/v2/" + function)
}
