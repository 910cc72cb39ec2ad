package testenv_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

// recorder notes a failure instead of failing.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
}

func TestEventually(t *testing.T) {
	calls := 0
	testenv.Eventually(t, bound, "three calls", func() bool { calls++; return calls == 3 })
	require.Equal(t, 3, calls)

	r := &recorder{}
	testenv.Eventually(r, 20*time.Millisecond, "a miracle", func() bool { return false })
	require.Contains(t, r.failure, "a miracle")
	require.Contains(t, r.failure, "20ms")
}
