package meter_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/test/bench/internal/meter"
)

func TestBothReadingsOfThisProcessAgree(t *testing.T) {
	for limit := time.Now().Add(time.Minute); meter.Self() < 100*time.Millisecond; {
		require.True(t, time.Now().Before(limit), "a busy process uses no CPU time")
	}
	before := meter.Self()
	u, err := meter.Of(os.Getpid())
	require.NoError(t, err)
	require.InDelta(t, before.Seconds(), u.CPU.Seconds(), 0.1)
	require.Greater(t, u.Peak, int64(1<<20))
}

func TestAProcessThatIsGoneIsAnError(t *testing.T) {
	_, err := meter.Of(1 << 30)
	require.ErrorIs(t, err, os.ErrNotExist)
}
