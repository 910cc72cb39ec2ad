package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// Driver is the Redis side of an event bus. It is safe for concurrent use and
// implements driver.Sender, Receiver, Inspector and Provisioner.
type Driver struct {
	cfg     Config
	names   names
	cmd     redis.UniversalClient
	metrics *metrics
	scripts scripts
	// preflight is shared by all that this driver does.
	preflight *preflight
	closed    atomic.Bool
}

var (
	_ driver.Sender      = (*Driver)(nil)
	_ driver.Receiver    = (*Driver)(nil)
	_ driver.Inspector   = (*Driver)(nil)
	_ driver.Provisioner = (*Driver)(nil)
	_ driver.GroupLister = (*Driver)(nil)
)

// Options are what New needs beside the configuration.
type Options struct {
	// Env ("id-test") names the keys, Country ("id") the topics.
	Env, Country string
	// Registerer, when not nil, exports the driver's metrics.
	Registerer prometheus.Registerer
	// Logger takes the client library's own lines.
	Logger zerolog.Logger
}

// New makes a driver. It dials nothing: an error is always one of configuration.
func New(cfg Config, o Options) (*Driver, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.Validate()}
	if o.Env == "" || o.Country == "" {
		errs = append(errs, fmt.Errorf("env %q and country %q name the keys and topics in Redis: both must be set", o.Env, o.Country))
	}
	if len(cfg.addresses()) == 0 {
		errs = append(errs, errors.New("SEAHUB_REDIS_ADDRESSES (seahub.redis.addresses) names no server: give host:port"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	routeClientLog(o.Logger)
	cmd, err := commandClient(cfg)
	if err != nil {
		return nil, err
	}
	m := newMetrics(o.Registerer)
	return &Driver{
		cfg: cfg, names: names{env: o.Env, country: o.Country},
		cmd: cmd, metrics: m, scripts: newScripts(),
		preflight: &preflight{cmd: cmd, timeout: cfg.Timeout, allowEviction: cfg.AllowEviction, log: o.Logger, metrics: m},
	}, nil
}

// Close ends all connections. Subscriptions should have ended before.
func (d *Driver) Close(context.Context) error {
	if d.closed.Swap(true) {
		return nil
	}
	if err := d.cmd.Close(); err != nil {
		return fmt.Errorf("close redis connections: %w", err)
	}
	return nil
}
