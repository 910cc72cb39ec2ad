// Package meter reads what a process has used.
package meter

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Self is the CPU time of this process so far, all threads, user and system.
func Self() time.Duration {
	var u syscall.Rusage
	// It fails for a wrong argument only.
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Usage is what another process has used so far.
type Usage struct {
	// CPU of all threads, user and system, in steps of 10 ms.
	CPU time.Duration
	// Peak is the most memory that it ever had resident, in bytes.
	Peak int64
}

// tick is the unit of times in /proc on every Linux (USER_HZ).
const tick = 10 * time.Millisecond

// Of reads /proc/PID.
func Of(pid int) (Usage, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	line, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return Usage{}, fmt.Errorf("read what pid %d used: %w", pid, err)
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return Usage{}, fmt.Errorf("read what pid %d used: %w", pid, err)
	}
	cpu, err := parseStat(string(line))
	if err != nil {
		return Usage{}, fmt.Errorf("pid %d: %w", pid, err)
	}
	peak, err := parseStatus(string(status))
	if err != nil {
		return Usage{}, fmt.Errorf("pid %d: %w", pid, err)
	}
	return Usage{CPU: cpu, Peak: peak}, nil
}

// parseStat adds utime and stime. The name before them may hold spaces and brackets.
func parseStat(line string) (time.Duration, error) {
	const user, system = 11, 12 // counted behind the name
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/PID/stat says %q", line)
	}
	var sum time.Duration
	for _, f := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/PID/stat says %q: %w", line, err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

func parseStatus(text string) (int64, error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "VmHWM:")
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/PID/status says %q: %w", line, err)
		}
		return kb << 10, nil
	}
	return 0, fmt.Errorf("/proc/PID/status has no VmHWM: the process has ended")
}
