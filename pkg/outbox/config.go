package outbox

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/db"
)

// Config is how the relay works. The defaults suit one relay with a standby.
type Config struct {
	Slots          int           `env:"SEAHUB_RELAY_SLOTS" envDefault:"1" key:"seahub.relay.slots" min:"1" max:"16" help:"relays that work side by side; the others stand by"`
	LeaseTTL       time.Duration `env:"SEAHUB_RELAY_LEASE_TTL" envDefault:"15s" key:"seahub.relay.lease-ttl" min:"3s" max:"5m" help:"a relay that died or froze is replaced after this time"`
	PassTimeout    time.Duration `env:"SEAHUB_RELAY_PASS_TIMEOUT" envDefault:"7s" key:"seahub.relay.pass-timeout" min:"1s" max:"2m" help:"longest time that one pass may hold its rows"`
	PublishTimeout time.Duration `env:"SEAHUB_RELAY_PUBLISH_TIMEOUT" envDefault:"5s" key:"seahub.relay.publish-timeout" min:"100ms" max:"1m" help:"longest wait for the broker to confirm one batch; at most a third of the lease"`
	BatchRows      int           `env:"SEAHUB_RELAY_BATCH_ROWS" envDefault:"500" key:"seahub.relay.batch-rows" min:"1" max:"500" help:"most events in one pass"`
	BatchBytes     int           `env:"SEAHUB_RELAY_BATCH_BYTES" envDefault:"4194304" key:"seahub.relay.batch-bytes" min:"65536" max:"67108864" help:"payload bytes after which a pass takes no further event"`
	MaxAttempts    int           `env:"SEAHUB_RELAY_MAX_ATTEMPTS" envDefault:"10" key:"seahub.relay.max-attempts" min:"1" max:"1000" help:"attempts of an event that fails while the broker takes others; then it is FAILED"`
	RetryMin       time.Duration `env:"SEAHUB_RELAY_RETRY_MIN" envDefault:"1s" key:"seahub.relay.retry-min" min:"10ms" max:"1h" help:"wait after the first failed attempt of an event; it doubles"`
	RetryMax       time.Duration `env:"SEAHUB_RELAY_RETRY_MAX" envDefault:"10m" key:"seahub.relay.retry-max" min:"10ms" max:"24h" help:"longest wait between two attempts of an event"`
	OutageMax      time.Duration `env:"SEAHUB_RELAY_OUTAGE_MAX" envDefault:"5s" key:"seahub.relay.outage-max" min:"100ms" max:"1m" help:"longest wait before a broker or database that is down is tried again"`
	DelayedEvery   time.Duration `env:"SEAHUB_RELAY_DELAYED_EVERY" envDefault:"1s" key:"seahub.relay.delayed-every" min:"50ms" max:"1m" help:"how often delayed events are looked at"`
	Retention      time.Duration `env:"SEAHUB_RELAY_RETENTION" envDefault:"336h" key:"seahub.relay.retention" min:"96h" max:"8760h" help:"how long published events are kept; must exceed the broker's retention"`
	PurgeEvery     time.Duration `env:"SEAHUB_RELAY_PURGE_EVERY" envDefault:"1h" key:"seahub.relay.purge-every" min:"1m" max:"24h" help:"how often published events past their retention are deleted"`
}

const (
	// aliveFor is how long one confirmation proves that the broker works, so that a
	// failing event is to blame itself.
	aliveFor = 10 * time.Second
	// outageRows bounds a pass that tries whether the broker is back: a broker that
	// took the events without saying so makes that many duplicates, not a batch.
	outageRows = 16
	// outageBase is the wait after the first failed pass.
	outageBase = 100 * time.Millisecond
	// poolSize is the worker's three, delayed events, purge, gauges, and one to spare.
	poolSize = 7
)

// Validate checks the order that the protocol rests on: publish < pass < session
// timeouts < lease.
func (c Config) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.PublishTimeout >= c.PassTimeout {
		fail("SEAHUB_RELAY_PUBLISH_TIMEOUT (seahub.relay.publish-timeout): %s must be shorter than SEAHUB_RELAY_PASS_TIMEOUT (seahub.relay.pass-timeout), %s", c.PublishTimeout, c.PassTimeout)
	}
	if 3*c.PublishTimeout > c.LeaseTTL {
		fail("SEAHUB_RELAY_PUBLISH_TIMEOUT (seahub.relay.publish-timeout): %s must be at most a third of SEAHUB_RELAY_LEASE_TTL (seahub.relay.lease-ttl), %s", c.PublishTimeout, c.LeaseTTL)
	}
	if c.SessionTimeout() >= c.LeaseTTL {
		fail("SEAHUB_RELAY_LEASE_TTL (seahub.relay.lease-ttl): %s must exceed %s, the whole seconds after SEAHUB_RELAY_PASS_TIMEOUT (seahub.relay.pass-timeout) when the server ends a silent session", c.LeaseTTL, c.SessionTimeout())
	}
	if c.RetryMin > c.RetryMax {
		fail("SEAHUB_RELAY_RETRY_MIN (seahub.relay.retry-min): %s exceeds SEAHUB_RELAY_RETRY_MAX (seahub.relay.retry-max), %s", c.RetryMin, c.RetryMax)
	}
	return errors.Join(errs...)
}

// SessionTimeout is after how long the server ends a session of the relay whose client
// is silent, and frees its row locks: the next whole second above the pass.
func (c Config) SessionTimeout() time.Duration {
	return c.PassTimeout.Truncate(time.Second) + time.Second
}

// standbyWait is how long a relay without a slot waits before it asks again.
func (c Config) standbyWait() backoff.Policy {
	return backoff.Policy{Base: c.LeaseTTL / 5, Max: c.LeaseTTL / 5}
}

// TakeoverBound is after how long at most the rows of a relay that died or froze are
// being published by another one.
func (c Config) TakeoverBound() time.Duration {
	return max(c.LeaseTTL+c.LeaseTTL/5, c.SessionTimeout()+sweepEvery)
}

// OpenPool makes the relay's own pool: nothing else may use it, and its sessions end
// soon when this process falls silent. It does not dial.
func OpenPool(c db.Config, relay Config) (*sql.DB, error) {
	t := relay.SessionTimeout()
	pool, err := db.OpenSQL(c, db.WithPool(poolSize), db.WithSessionTimeouts(t, t, t), db.WithInterpolation())
	if err != nil {
		return nil, fmt.Errorf("open the relay's pool: %w", err)
	}
	return pool, nil
}
