package main

import (
	"fmt"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/service"
)

// Config is everything that can be set.
type Config struct {
	Base  service.Base
	DB    db.Config
	MQ    provider.Config
	Relay outbox.Config
}

// Validate checks what the rooms cannot see of each other.
func (c Config) Validate() error {
	if c.Base.DrainTimeout <= c.Relay.PassTimeout {
		return fmt.Errorf("SEAHUB_DRAIN_TIMEOUT (seahub.drain.timeout): %s must exceed SEAHUB_RELAY_PASS_TIMEOUT (seahub.relay.pass-timeout), %s, for a stop finishes the batch in hand", c.Base.DrainTimeout, c.Relay.PassTimeout)
	}
	return nil
}
