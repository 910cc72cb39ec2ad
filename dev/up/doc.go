// Package up leaves a whole system running on this machine. A detached supervisor owns
// everything as its children, so that stopping that one process stops all, however it
// ends. What it tells of itself is in state.json of its folder; the folder's lock says
// whether it lives.
package up

import "time"

// Options of a running system.
type Options struct {
	// Root is the checkout, Dir the folder that holds state, logs and data.
	Root, Dir string
	// PortsFrom is the first of a range of fixed ports; 0 takes free ones.
	PortsFrom int
}

// DefaultPortsFrom gives the addresses that are shown in the documentation.
const DefaultPortsFrom = 17300

// The places of the parts in the range: like the usual port of each, where it has one.
const (
	offsetMariaDB  = 6
	offsetRedis    = 79
	offsetFCM      = 80
	offsetServices = 91
)

const (
	// startTime bounds the start of everything, without building it.
	startTime = 2 * time.Minute
	// stopTime bounds its stop: services drain before they end.
	stopTime  = 90 * time.Second
	pollEvery = 50 * time.Millisecond
)

func (o Options) port(offset int) int {
	if o.PortsFrom == 0 {
		return 0
	}
	return o.PortsFrom + offset
}

// instance is one service process of the system.
type instance struct {
	service, name string
	args          []string
}

func instances() []instance {
	return []instance{
		{"relay", "relay-1", nil},
		{"relay", "relay-2", nil},
		{"push-consumer", "push-consumer-1", []string{"run", "--role=consume"}},
		{"push-consumer", "push-consumer-2", []string{"run", "--role=consume"}},
		{"push-consumer", "push-poll", []string{"run", "--role=poll"}},
		{"coupon-consumer", "coupon", []string{"run", "--role=all"}},
		{"campaign-consumer", "campaign", []string{"run", "--role=all"}},
		{"ops-consumer", "ops", []string{"run", "--role=all"}},
	}
}
