package rocketmq

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// A callback that hangs, or ends its goroutine, costs its slot and not the next message.
func TestASlotThatIsAbandonedIsReplaced(t *testing.T) {
	ended := make(chan struct{})
	first := newSlot(ended)
	done := func(context.Context) driver.Outcome { return driver.Outcome{Verdict: driver.Done} }

	out, next, _ := first.run(t.Context(), done)
	require.Equal(t, driver.Done, out.Verdict)
	require.Same(t, first, next)

	awake, returned := make(chan struct{}), make(chan struct{})
	out, next, _ = next.run(t.Context(), func(ctx context.Context) driver.Outcome {
		defer close(returned)
		go ctx.(driver.Run).Abandon(driver.Outcome{Verdict: driver.Dead})
		<-awake
		return driver.Outcome{Verdict: driver.Done}
	})
	require.Equal(t, driver.Dead, out.Verdict)
	require.NotSame(t, first, next)
	out, next, _ = next.run(t.Context(), done)
	require.Equal(t, driver.Done, out.Verdict)
	close(awake)
	<-returned
	out, _, _ = next.run(t.Context(), done)
	require.Equal(t, driver.Done, out.Verdict, "what the hung one returns is nobody's")

	out, next, _ = next.run(t.Context(), func(ctx context.Context) driver.Outcome {
		defer ctx.(driver.Run).Abandon(driver.Outcome{Verdict: driver.Skip})
		runtime.Goexit()
		return driver.Outcome{}
	})
	require.Equal(t, driver.Skip, out.Verdict)
	out, next, _ = next.run(t.Context(), done)
	require.Equal(t, driver.Done, out.Verdict)

	close(ended)
	for ok := true; ok; { // the slot may take one more before it sees the end
		_, next, ok = next.run(t.Context(), done)
	}
}
