package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
)

// Profile writes a CPU profile to path until stop is called; without a path it does
// nothing.
func Profile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("CPU profile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(fmt.Errorf("CPU profile: %w", err), file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		if err := file.Close(); err != nil {
			return fmt.Errorf("CPU profile: %w", err)
		}
		return nil
	}, nil
}
