package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
)

// Ports are taken below the ephemeral range. From inside it, the kernel could
// hand a stopped server's port to any outgoing connection, even to the client
// that redials the server, which then talks to itself.
const (
	lowestPort       = 15000
	ephemeralDefault = 32768
)

// reservedPort is a port, with others beside it for a server that takes several,
// that no other user of this package on this machine takes until it is released,
// whether or not a server listens at the moment.
type reservedPort struct {
	number int
	locks  []net.Listener
}

// reserve takes one port, and those at the given distances from it, or none.
func reserve(port int, beside ...int) (*reservedPort, error) {
	p := &reservedPort{number: port}
	for _, distance := range append([]int{0}, beside...) {
		lock, err := lockPort(port + distance)
		if err != nil {
			return nil, errors.Join(err, p.release())
		}
		p.locks = append(p.locks, lock)
	}
	return p, nil
}

// lockPort takes a port. The lock is a socket in Linux's abstract namespace: it
// has the scope of the ports themselves (the network namespace), leaves no file
// and is released by the kernel when we die.
func lockPort(port int) (net.Listener, error) {
	lock, err := net.Listen("unix", "@seahub-mq-testenv-port-"+strconv.Itoa(port))
	if err != nil {
		return nil, fmt.Errorf("port %d is reserved by another run: %w", port, err)
	}
	probe, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("port %d is busy: %w", port, err), lock.Close())
	}
	if err := probe.Close(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// reserveAny takes some free port, with those beside it.
func reserveAny(beside ...int) (*reservedPort, error) {
	const attempts = 100
	span := ephemeralStart() - lowestPort
	var last error
	for range attempts {
		port, err := reserve(lowestPort+rand.IntN(span), beside...)
		if err == nil {
			return port, nil
		}
		last = err
	}
	return nil, fmt.Errorf("no free port in %d attempts: %w", attempts, last)
}

func (p *reservedPort) addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number))
}

func (p *reservedPort) release() error {
	var errs []error
	for _, lock := range p.locks {
		errs = append(errs, lock.Close())
	}
	return errors.Join(errs...)
}

// ephemeralStart reads where the kernel's range of outgoing ports begins.
func ephemeralStart() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return ephemeralDefault
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return ephemeralDefault
	}
	start, err := strconv.Atoi(fields[0])
	if err != nil || start < lowestPort+1000 {
		return ephemeralDefault // an unusual range: overlap with it rather than find no port
	}
	return start
}
