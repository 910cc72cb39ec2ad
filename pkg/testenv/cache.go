package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// CacheDir is where fetched servers and template data folders stay between
// runs: .local/cache of the checkout that the working directory is in, or
// SEAHUB_TEST_CACHE_DIR.
func CacheDir() (string, error) {
	if dir := os.Getenv("SEAHUB_TEST_CACHE_DIR"); dir != "" {
		return dir, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return filepath.Join(dir, ".local", "cache"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find the cache folder: no go.work above the working directory; " +
				"run inside the checkout or set SEAHUB_TEST_CACHE_DIR")
		}
		dir = parent
	}
}

// template returns a folder of the cache that make filled once for this name.
// Packages test in parallel processes, so a file lock lets one of them make it,
// beside its final place, and a rename shows it to the others whole or not at
// all.
func template(ctx context.Context, name string, fill func(ctx context.Context, dir string) error) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	final := filepath.Join(cache, name)
	if isDir(final) {
		return final, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	unlock, err := lockFile(filepath.Join(cache, name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if isDir(final) {
		return final, nil
	}
	tmp, err := os.MkdirTemp(cache, name+".tmp-")
	if err != nil {
		return "", fmt.Errorf("make template %s: %w", name, err)
	}
	defer os.RemoveAll(tmp) // nothing is left there after the rename
	if err := fill(ctx, tmp); err != nil {
		return "", fmt.Errorf("make template %s: %w", name, err)
	}
	if err := os.Rename(tmp, final); err != nil {
		return "", fmt.Errorf("publish template %s: %w", name, err)
	}
	return final, nil
}

// lockFile waits for the lock; the kernel releases it when we die.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// copyTree copies a template to dst, which must not exist yet. A copy that was
// cut short is not taken for a data folder by a later start.
func copyTree(dst, src string) error {
	partial := dst + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return fmt.Errorf("remove an unfinished copy: %w", err)
	}
	if err := os.CopyFS(partial, os.DirFS(src)); err != nil {
		return fmt.Errorf("copy template %s: %w", src, err)
	}
	if err := os.Rename(partial, dst); err != nil {
		return fmt.Errorf("copy template %s: %w", src, err)
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
