package testenv

import (
	"os"
	"testing"
)

// Soaking tells a run of `make soak`: the same tests, with more rounds, larger numbers
// and longer outages, and with those of SoakOnly.
func Soaking() bool { return os.Getenv("SEAHUB_SOAK") != "" }

// Scale is the first number in everyday runs and the second in `make soak`.
func Scale(everyday, soak int) int {
	if Soaking() {
		return soak
	}
	return everyday
}

// SoakOnly leaves a test to `make soak` that takes long by its nature; why says what it
// waits for. It is no way to do without a server: what is missing there fails the test
// as everywhere.
func SoakOnly(t testing.TB, why string) {
	t.Helper()
	if !Soaking() {
		t.Skip("runs in `make soak`: " + why)
	}
}
