// Package proc reads /proc: who a process is, and whose children there are.
package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrGone says that there is no such process, or only what is left of one.
var ErrGone = errors.New("no such process")

// Stat is the part of /proc/PID/stat that is used here.
type Stat struct {
	Parent int
	// Started is when the process began, in clock ticks since the machine's start.
	// With the pid it names one process: pids are used again, this pair is not.
	Started uint64
}

const zombie = "Z"

// Read looks at a process. A zombie counts as gone: it runs no more.
func Read(pid int) (Stat, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, os.ErrNotExist) {
		return Stat{}, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	if err != nil {
		return Stat{}, fmt.Errorf("pid %d: %w", pid, err)
	}
	// pid (name) state parent …; the name may hold anything, brackets too.
	at := strings.LastIndexByte(string(text), ')')
	fields := strings.Fields(string(text)[at+1:])
	const state, parent, started = 0, 1, 19
	if at < 0 || len(fields) <= started {
		return Stat{}, fmt.Errorf("pid %d: /proc says %q", pid, text)
	}
	if fields[state] == zombie {
		return Stat{}, fmt.Errorf("pid %d: %w", pid, ErrGone)
	}
	var s Stat
	if s.Parent, err = strconv.Atoi(fields[parent]); err != nil {
		return Stat{}, fmt.Errorf("pid %d: parent: %w", pid, err)
	}
	if s.Started, err = strconv.ParseUint(fields[started], 10, 64); err != nil {
		return Stat{}, fmt.Errorf("pid %d: start time: %w", pid, err)
	}
	return s, nil
}

// Boot names the run of the machine that start times count from.
func Boot() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the machine's boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Name is the process's short name.
func Name(pid int) string {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Children lists the living children of a process.
func Children(pid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	var children []int
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := Read(child); err == nil && s.Parent == pid {
			children = append(children, child)
		}
	}
	return children, nil
}
