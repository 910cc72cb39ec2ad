package testenv

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listens asks the kernel whose socket listens at a TCP port: nil when it is the
// process's, ErrForeign when it is somebody else's, another error when nobody
// listens yet. No server is spoken to, so it suits those that can't be asked for
// their pid.
func listens(pid, port int) error {
	inodes, err := listeners(port)
	if err != nil {
		return fmt.Errorf("look who listens at port %d: %w", port, err)
	}
	if len(inodes) == 0 {
		return fmt.Errorf("nobody listens at port %d", port)
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return err
	}
	for _, file := range files {
		target, err := os.Readlink(file) // a file that was closed meanwhile is not the one
		if err != nil {
			continue
		}
		inode, ok := strings.CutPrefix(target, "socket:[")
		if ok && inodes[strings.TrimSuffix(inode, "]")] {
			return nil
		}
	}
	return fmt.Errorf("%w: port %d is not of pid %d", ErrForeign, port, pid)
}

// listeners returns the inodes of the sockets that listen at a TCP port.
func listeners(port int) (map[string]bool, error) {
	const (
		localAddress = 1 // columns of /proc/net/tcp
		state        = 3
		inode        = 9
		listening    = "0A"
	)
	inodes := make(map[string]bool)
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if os.IsNotExist(err) {
			continue // no IPv6 here
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			column := strings.Fields(lines.Text())
			if len(column) <= inode || column[state] != listening {
				continue
			}
			_, hex, _ := strings.Cut(column[localAddress], ":")
			if n, err := strconv.ParseInt(hex, 16, 32); err == nil && int(n) == port {
				inodes[column[inode]] = true
			}
		}
		if err := lines.Err(); err != nil {
			return nil, err
		}
	}
	return inodes, nil
}
