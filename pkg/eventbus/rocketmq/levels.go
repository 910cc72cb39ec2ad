package rocketmq

import "time"

// Levels are the broker's delays for a retry, in its default configuration. A wait is
// the next longer one of them, so it may be up to twice as long as asked, or a second
// where less is asked. A managed cluster of version 4 may use its own schedule instead.
var Levels = [...]time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute,
	6 * time.Minute, 7 * time.Minute, 8 * time.Minute, 9 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
}

// delayLevel is the broker's first level that is not shorter than d; beyond two hours
// it is the last.
func delayLevel(d time.Duration) int {
	for i, l := range Levels {
		if d <= l {
			return i + 1
		}
	}
	return len(Levels)
}
