// Package lockdir makes a folder belong to one process at a time. The kernel releases
// the lock when the process ends, however it ends.
package lockdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrHeld is returned by Acquire while another process holds the folder.
var ErrHeld = errors.New("the folder is in use")

// Lock is a held folder.
type Lock struct{ file *os.File }

// Acquire takes the folder, which is made if it is missing, and does not wait.
func Acquire(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	// Go opens files close-on-exec, so children do not keep the lock.
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &Lock{f}, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrHeld
	}
	return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
}

// Release gives the folder back.
func (l *Lock) Release() error { return l.file.Close() }
