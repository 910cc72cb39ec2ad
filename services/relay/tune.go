package main

import (
	"os"
	"runtime"
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
	// A batch is held as it was read and as it is sent, beside one that is being claimed
	// or committed.
	debug.SetMemoryLimit(memoryFloor + 2*int64(batchBytes))
}

// useOneProcessor keeps the scheduler on one processor. The relay waits for the database
// and the broker; with more processors each answer wakes threads that look for work and
// find none, which is most of what an idle relay costs. A drain needs less than a third
// of one. GOMAXPROCS in the environment has the last word.
func useOneProcessor() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}
