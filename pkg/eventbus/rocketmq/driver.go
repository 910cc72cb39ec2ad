package rocketmq

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// Driver is the RocketMQ side of an event bus.
type Driver struct{ cfg Config }

func New(cfg Config, logger zerolog.Logger) (*Driver, error) {
	if len(cfg.nameServers()) == 0 {
		return nil, errors.New("SEAHUB_ROCKETMQ_NAME_SERVERS (seahub.rocketmq.name-servers) names no server: give host:port")
	}
	return &Driver{cfg}, cfg.Validate()
}

func (d *Driver) Send(ctx context.Context, msgs []driver.Message) []driver.Result {
	return make([]driver.Result, len(msgs))
}
func (d *Driver) Close(ctx context.Context) error { return nil }
func (d *Driver) Run(ctx context.Context, sub driver.Subscription, handle driver.Handle) error {
	<-ctx.Done()
	return nil
}
func (d *Driver) Topics(ctx context.Context) ([]string, error) { return nil, nil }
func (d *Driver) Group(ctx context.Context, topic, group string) (driver.GroupState, error) {
	return driver.GroupState{}, nil
}
