package rocketmq

import (
	"context"
	"errors"
	"fmt"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

// Topics implements driver.Inspector: those of this country's topics that this driver
// has to do with and that the name servers know. RocketMQ has a list of all topics of
// the cluster, which tenants of a managed one may not read.
func (d *Driver) Topics(ctx context.Context) ([]string, error) {
	var found []string
	for _, topic := range d.topics.all() {
		switch _, err := d.ask.Route(ctx, topic); {
		case err == nil:
			found = append(found, topic)
		case !errors.Is(err, remoting.ErrTopicMissing):
			return nil, fmt.Errorf("list topics: %w", err)
		}
	}
	return found, nil
}

// Group implements driver.Inspector. The broker does not tell what is in flight or
// waits for a retry: messages in flight are part of the backlog, those that wait are
// in none of the group's queues until their time has come.
func (d *Driver) Group(ctx context.Context, topic, group string) (driver.GroupState, error) {
	g := driver.GroupState{Topic: topic, Group: group}
	if err := d.checkTopic(topic); err != nil {
		return g, err
	}
	b, err := d.ask.Backlog(ctx, topic, group)
	if err != nil {
		return g, d.explain(ctx, err, topic, group)
	}
	if b.Waiting.Known && b.Retry.Known {
		g.Backlog = driver.KnownCount(b.Waiting.N + b.Retry.N)
	}
	if b.Oldest.Known {
		g.OldestAge = driver.KnownAge(b.Oldest.D)
	}
	g.Members = b.Members
	if b.Dead.Known {
		d.metrics.deadQueue.WithLabelValues(group).Set(float64(b.Dead.N))
	}
	return g, nil
}

// Ensure implements driver.Provisioner on a cluster of one's own, for an account with
// admin rights. What exists is left as it is, also with another number of queues.
func (d *Driver) Ensure(ctx context.Context, topic string, groups []string) error {
	if err := d.checkTopic(topic); err != nil {
		return err
	}
	queues, err := d.ask.Route(ctx, topic)
	if errors.Is(err, remoting.ErrTopicMissing) {
		if err := d.ask.CreateTopic(ctx, topic, d.cfg.Queues); err != nil {
			return err
		}
		queues, err = d.ask.Route(ctx, topic)
	}
	if err != nil {
		return d.explain(ctx, err, topic, "")
	}
	for _, group := range groups {
		has, err := d.ask.HasGroup(ctx, queues[0], group)
		if err != nil {
			return d.explain(ctx, err, topic, group)
		}
		if has {
			continue
		}
		if err := d.ask.CreateGroup(ctx, group); err != nil {
			return err
		}
	}
	return nil
}
