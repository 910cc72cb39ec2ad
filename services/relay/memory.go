package main

import (
	"os"
	"runtime/debug"
)

// The relay keeps little and allocates much: with the default percentage the collector
// runs every few batches, for a third of the CPU time of a drain. It gets more room, up to
// a limit from which on it works as hard as ever.
const (
	collectAt   = 400
	memoryFloor = 24 << 20
)

// giveMemory sets the collector up for batches of so many bytes. GOGC and GOMEMLIMIT in
// the environment have the last word.
func giveMemory(batchBytes int) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetGCPercent(collectAt)
	// A batch is held twice: as it was read, and as it is sent.
	debug.SetMemoryLimit(memoryFloor + 2*int64(batchBytes))
}
