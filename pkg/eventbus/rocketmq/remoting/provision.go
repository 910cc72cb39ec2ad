package remoting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The only requests of this package that change anything. They need an account
// with admin rights; a managed cluster refuses them, there the console does it.
const (
	codeCreateTopic = 17
	codeCreateGroup = 200
)

const (
	permReadWrite = 6
	// retryMax is the broker's own cap; ours ends retries before it.
	retryMax = 16
	// routeLook is how often a new topic is looked for.
	routeLook = 20 * time.Millisecond
)

// CreateTopic makes a topic on every broker, or changes its number of queues, and
// returns when the name servers know it. Repeating it changes nothing.
func (c *Client) CreateTopic(ctx context.Context, topic string, queues int) error {
	return c.createTopic(ctx, c.name(topic), queues)
}

func (c *Client) createTopic(ctx context.Context, topic string, queues int) error {
	masters, err := c.masters(ctx)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	for _, addr := range masters {
		_, err := c.ask(ctx, addr, request{code: codeCreateTopic, fields: map[string]string{
			"topic": topic, "defaultTopic": "TBW102",
			"readQueueNums": strconv.Itoa(queues), "writeQueueNums": strconv.Itoa(queues),
			"perm": strconv.Itoa(permReadWrite), "topicFilterType": "SINGLE_TAG",
			"topicSysFlag": "0", "order": "false",
		}})
		if err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	return c.awaitRoute(ctx, topic, queues*len(masters))
}

func (c *Client) awaitRoute(ctx context.Context, topic string, queues int) error {
	look := time.NewTicker(routeLook)
	defer look.Stop()
	for {
		found, err := c.route(ctx, topic, permRead)
		if err == nil && len(found) == queues {
			return nil
		}
		if err != nil && !errors.Is(err, ErrTopicMissing) {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("create topic %s: the name servers do not know it yet: %w", topic, ctx.Err())
		case <-look.C:
		}
	}
}

// CreateGroup makes a consumer group on every broker, with the topic of its
// retries: without that one a new group's first retry is late by half a minute,
// until its client has found the topic that the broker made. Repeating it changes
// nothing.
func (c *Client) CreateGroup(ctx context.Context, group string) error {
	masters, err := c.masters(ctx)
	if err != nil {
		return fmt.Errorf("create group %s: %w", group, err)
	}
	body, err := json.Marshal(map[string]any{
		"groupName": c.name(group), "consumeEnable": true, "consumeFromMinEnable": true,
		"consumeBroadcastEnable": false, "retryQueueNums": 1, "retryMaxTimes": retryMax,
		"brokerId": 0, "whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": true,
	})
	if err != nil {
		return fmt.Errorf("create group %s: %w", group, err)
	}
	for _, addr := range masters {
		if _, err := c.ask(ctx, addr, request{code: codeCreateGroup, body: body}); err != nil {
			return fmt.Errorf("create group %s: %w", group, err)
		}
	}
	return c.createTopic(ctx, c.retryTopic(group), 1)
}
