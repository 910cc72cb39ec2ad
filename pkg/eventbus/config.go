package eventbus

import (
	"errors"
	"fmt"
	"time"
)

// Config is how consumers of this process work, the same on every broker.
type Config struct {
	Concurrency    int           `env:"SEAHUB_BUS_CONCURRENCY" envDefault:"16" key:"seahub.bus.concurrency" help:"Handlers that run at a time per subscription." min:"1" max:"1024"`
	HandlerTimeout time.Duration `env:"SEAHUB_BUS_HANDLER_TIMEOUT" envDefault:"30s" key:"seahub.bus.handler-timeout" help:"Deadline of one handler run." min:"1s" max:"10m"`
	HandlerGrace   time.Duration `env:"SEAHUB_BUS_HANDLER_GRACE" envDefault:"5s" key:"seahub.bus.handler-grace" help:"How long after its deadline a handler that does not return is waited for before it is abandoned." min:"10ms" max:"1m"`
	DrainTimeout   time.Duration `env:"SEAHUB_BUS_DRAIN_TIMEOUT" envDefault:"20s" key:"seahub.bus.drain-timeout" help:"How long running handlers may go on after a stop; must fit into the process's own drain time." min:"10ms" max:"10m"`
	MaxAttempts    int           `env:"SEAHUB_BUS_MAX_ATTEMPTS" envDefault:"16" key:"seahub.bus.max-attempts" help:"Failed handler runs after which an event becomes a dead letter." min:"1" max:"1000"`
	MinRetry       time.Duration `env:"SEAHUB_BUS_MIN_RETRY" envDefault:"1s" key:"seahub.bus.min-retry" help:"Wait before the first retry; it doubles from there." min:"10ms" max:"10m"`
	MaxRetry       time.Duration `env:"SEAHUB_BUS_MAX_RETRY" envDefault:"5m" key:"seahub.bus.max-retry" help:"Longest wait before a retry." min:"10ms" max:"2h"`
	WatchEvery     time.Duration `env:"SEAHUB_BUS_WATCH_EVERY" envDefault:"5s" key:"seahub.bus.watch-every" help:"How often a subscription's backlog and oldest age are read for metrics." min:"100ms" max:"10m"`
}

// Validate checks what single values cannot show.
func (c Config) Validate() error {
	var errs []error
	if c.MaxRetry < c.MinRetry {
		errs = append(errs, fmt.Errorf("SEAHUB_BUS_MAX_RETRY (seahub.bus.max-retry) is %s, below SEAHUB_BUS_MIN_RETRY (seahub.bus.min-retry) %s: raise the first or lower the second", c.MaxRetry, c.MinRetry))
	}
	return errors.Join(errs...)
}

// withDefaults fills what a caller that builds a Config by hand left out.
func (c Config) withDefaults() Config {
	setInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	setDuration := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	setInt(&c.Concurrency, 16)
	setDuration(&c.HandlerTimeout, 30*time.Second)
	setDuration(&c.HandlerGrace, 5*time.Second)
	setDuration(&c.DrainTimeout, 20*time.Second)
	setInt(&c.MaxAttempts, 16)
	setDuration(&c.MinRetry, time.Second)
	setDuration(&c.MaxRetry, max(5*time.Minute, c.MinRetry))
	setDuration(&c.WatchEvery, 5*time.Second)
	return c
}
