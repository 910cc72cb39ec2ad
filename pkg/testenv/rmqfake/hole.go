package rmqfake

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// BlackHole returns an address at which requests for a connection are swallowed: its
// queue of connections is full, and the kernel answers no more of them. end frees it.
func BlackHole() (addr string, end func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return "", nil, fmt.Errorf("rmqfake: black hole: %w", err)
	}
	var queued []net.Conn
	end = func() {
		for _, c := range queued {
			_ = c.Close()
		}
		_ = syscall.Close(fd)
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		return "", nil, fmt.Errorf("rmqfake: black hole: %w", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return "", nil, fmt.Errorf("rmqfake: black hole: %w", err)
	}
	addr = fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 16 {
		c, err := net.DialTimeout("tcp", addr, 300*time.Millisecond)
		if err != nil {
			return addr, end, nil
		}
		queued = append(queued, c)
	}
	return "", nil, errors.New("rmqfake: black hole: its queue of connections does not fill up")
}
