package redisstreams

import (
	"context"
	"errors"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

func (d *Driver) Send(ctx context.Context, msgs []driver.Message) []driver.Result {
	return make([]driver.Result, len(msgs))
}
func (d *Driver) Run(ctx context.Context, sub driver.Subscription, handle driver.Handle) error {
	<-ctx.Done()
	return nil
}
func (d *Driver) Topics(ctx context.Context) ([]string, error) { return nil, errors.New("x") }
func (d *Driver) Group(ctx context.Context, topic, group string) (driver.GroupState, error) {
	return driver.GroupState{}, errors.New("x")
}
func (d *Driver) Ensure(ctx context.Context, topic string, groups []string) error { return nil }
