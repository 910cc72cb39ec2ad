package demo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// keptFiles stay after a good run: the binaries save the next one its linking, the lock
// is still held, and the rest was promised.
func keptFiles() []string { return []string{"bin", "lock", cardsFile, figuresFile} }

// tidy empties the run's folder but for those.
func (r *run) tidy() error {
	entries, err := os.ReadDir(r.o.Dir)
	if err != nil {
		return fmt.Errorf("tidy up: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if name := e.Name(); !slices.Contains(keptFiles(), name) {
			errs = append(errs, os.RemoveAll(filepath.Join(r.o.Dir, name)))
		}
	}
	return errors.Join(errs...)
}
