package testenv

import (
	"testing"
	"time"
)

const pollInterval = 5 * time.Millisecond

// Eventually waits until condition holds, at most for bound; then the test
// fails, saying what did not come. The condition is asked by the test's own
// goroutine, so it may fail the test itself. It is asked once more at the end:
// a slow machine may have spent the whole bound in one pause.
func Eventually(t testing.TB, bound time.Duration, what string, condition func() bool) {
	t.Helper()
	started := time.Now()
	for !condition() {
		if time.Since(started) > bound {
			if condition() {
				return
			}
			t.Fatalf("still not so after %v: %s", bound, what)
			return
		}
		time.Sleep(pollInterval)
	}
}
