// Package e2e runs the shipped binaries, built with the race detector, against real
// servers and a strict fake of FCM, and breaks them at random moments. What a kill at
// a certain step of a pass does is tested next to the code; here the whole system is
// the unit.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/seahub/seahub-mq/dev/stack"
)

// binaries are the services, built once for all tests of the package.
var binaries map[string]string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// sideBySide is how many systems run at a time. They mostly wait; more than these would
// make each other wait on two cores.
const sideBySide = "4"

func run(m *testing.M) int {
	flag.Parse()
	if err := flag.Set("test.parallel", sideBySide); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "seahub-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	root, err := stack.Root()
	if err == nil {
		binaries, err = stack.Build(context.Background(), root, dir, true, stack.Services()...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: build the services:", err)
		return 1
	}
	return m.Run()
}
