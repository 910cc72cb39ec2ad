// Package backoff computes how long a loop waits before it tries again.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Policy grows from Base by doubling up to Max. The zero value waits not at all.
type Policy struct {
	Base time.Duration
	Max  time.Duration
}

// Delay is the wait after the attempt-th failure in a row (1 is the first). It lies
// between half of the doubled value and the whole of it: jitter keeps a fleet that
// failed together from coming back together. It is never negative, never above
// Max, and does not overflow however large attempt is.
func (p Policy) Delay(attempt int) time.Duration {
	d := p.Base
	for i := 1; i < attempt && d < p.Max; i++ {
		d *= 2
	}
	if d > p.Max {
		d = p.Max
	}
	if d <= 1 {
		return max(d, 0)
	}
	return d/2 + rand.N(d/2+1)
}

// Sleep waits for d or until ctx ends, and reports whether the whole wait passed.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
