// Package provider turns the configuration's word for a broker into an event bus. It
// is the only package that knows which brokers there are.
package provider

import (
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/redisstreams"
	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq"
)

// The providers.
const (
	RedisStreams = "redis-streams"
	RocketMQ     = "rocketmq"
)

// ErrNotConfigured: no provider is set; the bus is off and polls run as before.
var ErrNotConfigured = errors.New("no event bus is configured: set SEAHUB_MQ_PROVIDER (seahub.mq.provider) to redis-streams or rocketmq")

// Config holds what every broker needs; only the chosen one's part is looked at.
type Config struct {
	Provider string `env:"SEAHUB_MQ_PROVIDER" key:"seahub.mq.provider" help:"The broker; empty turns the event bus off." oneof:",redis-streams,rocketmq"`
	Bus      eventbus.Config
	Redis    redisstreams.Config
	RocketMQ rocketmq.Config
}

// Validate checks the bus and the chosen broker's part.
func (c Config) Validate() error {
	switch c.Provider {
	case "":
		return nil
	case RedisStreams:
		return errors.Join(c.Bus.Validate(), c.Redis.Validate())
	case RocketMQ:
		return errors.Join(c.Bus.Validate(), c.RocketMQ.Validate())
	}
	return fmt.Errorf("SEAHUB_MQ_PROVIDER (seahub.mq.provider) is %q: allowed are empty, %s and %s", c.Provider, RedisStreams, RocketMQ)
}

// Open makes the bus. It dials nothing and does not fail because a broker is away: an
// error is ErrNotConfigured or one of configuration. Close the bus when done.
func Open(cfg Config, env, country string, logger zerolog.Logger, opts ...eventbus.Option) (*eventbus.Bus, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open event bus: %w", err)
	}
	var parts eventbus.Parts
	switch cfg.Provider {
	case "":
		return nil, ErrNotConfigured
	case RedisStreams:
		d, err := redisstreams.New(cfg.Redis, redisstreams.Options{
			Env: env, Country: country, Registerer: eventbus.Registerer(opts...), Logger: logger,
		})
		if err != nil {
			return nil, fmt.Errorf("open event bus on %s: %w", cfg.Provider, err)
		}
		parts = eventbus.Parts{Sender: d, Receiver: d, Inspector: d, Provisioner: d, Warnings: d.Warnings}
	case RocketMQ:
		d, err := rocketmq.New(cfg.RocketMQ, rocketmq.Options{
			Country: country, Registerer: eventbus.Registerer(opts...), Logger: logger,
		})
		if err != nil {
			return nil, fmt.Errorf("open event bus on %s: %w", cfg.Provider, err)
		}
		parts = eventbus.Parts{Sender: d, Receiver: d, Inspector: d, Provisioner: d}
	}
	return eventbus.New(parts, cfg.Bus, env, country, opts...), nil
}
