package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

func TestFCMBeingDownTripsNoFallback(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flagSince()
	w.relay("relay-1")
	w.consumer("consume-1", "consume")
	w.consumer("poll-1", "poll")
	w.FCM.Behave(fcmfake.Behaviour{Kind: fcmfake.Unavailable, For: 2 * overdueBy})
	ids := w.pushes(20)
	time.Sleep(2 * overdueBy) // the time of the outage itself
	require.Zero(t, w.fallbackRuns())
	w.awaitSent(soon, ids...)
	w.onceEach(ids...)
	require.Zero(t, w.fallbackRuns())
}
