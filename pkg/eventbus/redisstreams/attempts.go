package redisstreams

// How attempts are counted.
//
// Redis keeps one number per unfinished entry and group, its delivery counter, and
// adds one whenever it hands the entry out. That is not the number of handler runs
// that failed: a member that is killed has cost a delivery without a failure, and a
// deployment must not use up a healthy event's attempts. So the driver writes both
// into the one counter, whenever it parks an entry for a retry:
//
//	counter = failed runs × 1000 + deliveries that ended without a word + 1 while delivered
//
// The counter lives and dies with the pending entry, so no second record can disagree
// with it, and XPENDING shows it to a person as it is: 2001 is "two runs failed, now
// delivered again".
const failureWeight = 1000

// attempt is the number of the handler run that a delivery with this counter starts.
// Up to slack deliveries that ended without a word are forgiven; each further one
// counts, so that an event whose handler kills the process ends as a dead letter too.
func attempt(counter int64, slack int) int {
	failed := counter / failureWeight
	silent := max(0, counter%failureWeight-1)
	return int(failed + 1 + max(0, silent-int64(slack)))
}

// afterFailure is the counter to park an entry with whose handler failed.
func afterFailure(counter int64) int64 { return counter + failureWeight - 1 }

// undelivered is the counter of an entry that is given back as if it had not been
// delivered.
func undelivered(counter int64) int64 { return max(0, counter-1) }
