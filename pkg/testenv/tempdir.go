package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	tempPrefix = "smq-"
	ownerFile  = "owner.lock"
	// longestBase leaves room for a socket's name: a Unix socket's path may have
	// 107 bytes at most.
	longestBase = 60
	// abandonedAfter: a younger folder may belong to a run that has made it but
	// not locked it yet.
	abandonedAfter = time.Minute
)

// tempDir is a folder that is ours while we live. A test binary that panics on
// its time limit runs no cleanup; its lock goes with it, and the next run sees
// by that whose folders may be removed.
type tempDir struct {
	path  string
	owner *os.File
}

func newTempDir() (*tempDir, error) {
	base := os.TempDir()
	if len(base) > longestBase {
		base = "/tmp"
	}
	sweep(base)
	path, err := os.MkdirTemp(base, tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	owner, err := tryLock(path)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &tempDir{path: path, owner: owner}, nil
}

func (d *tempDir) remove() error {
	return errors.Join(os.RemoveAll(d.path), d.owner.Close())
}

// sweep removes folders of runs that ended without doing so. It is housekeeping:
// what it can't remove stays for the next run.
func sweep(base string) {
	paths, err := filepath.Glob(filepath.Join(base, tempPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < abandonedAfter {
			continue
		}
		if owner, err := tryLock(path); err == nil {
			_ = os.RemoveAll(path)
			_ = owner.Close()
		}
	}
}

// tryLock fails when a living run owns the folder.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(path, ownerFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("own %s: %w", path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("own %s: %w", path, err), f.Close())
	}
	return f, nil
}
