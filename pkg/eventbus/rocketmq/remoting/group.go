package remoting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const codeGroupConnections = 203

// Subscription is what the members of a group told a broker that they want.
type Subscription struct {
	// Members are client ids.
	Members []string
	// Tags by topic, each list sorted; empty means all tags. Names are without the
	// namespace. A broker keeps one entry a topic, the last member's.
	Tags map[string][]string
}

// GroupSubscription returns what the group's members subscribe to, and no members when
// there are none. It asks the brokers that hold the topic's queues.
func (c *Client) GroupSubscription(ctx context.Context, queues []Queue, group string) (Subscription, error) {
	found := Subscription{Tags: map[string][]string{}}
	for _, addr := range Brokers(queues) {
		answer, err := c.ask(ctx, addr, request{
			code: codeGroupConnections, fields: map[string]string{"consumerGroup": c.name(group)},
			accept: []int{codeGroupOffline},
		})
		if err != nil {
			return found, fmt.Errorf("subscription of %s: %w", group, err)
		}
		if answer.Code == codeGroupOffline {
			continue
		}
		if err := c.readSubscription(answer.Body, &found); err != nil {
			return found, fmt.Errorf("subscription of %s: %w", group, err)
		}
	}
	slices.Sort(found.Members)
	found.Members = slices.Compact(found.Members)
	return found, nil
}

func (c *Client) readSubscription(body []byte, found *Subscription) error {
	var data struct {
		Connections []struct {
			ClientID string `json:"clientId"`
		} `json:"connectionSet"`
		Topics map[string]struct {
			Expression string `json:"subString"`
		} `json:"subscriptionTable"`
	}
	if err := json.Unmarshal(quoteKeys(body), &data); err != nil {
		return errors.Join(ErrFrame, err)
	}
	for _, connection := range data.Connections {
		found.Members = append(found.Members, connection.ClientID)
	}
	for topic, s := range data.Topics {
		found.Tags[strings.TrimPrefix(topic, c.name(""))] = tagsOf(s.Expression)
	}
	return nil
}

// tagsOf reads "a || b"; "*" and nothing are all tags.
func tagsOf(expression string) []string {
	tags := []string{}
	for tag := range strings.SplitSeq(expression, "||") {
		tag = strings.TrimSpace(tag)
		if tag == "*" {
			return nil
		}
		if tag != "" {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return tags
}

// MembersOn is Members for queues that are known already: it asks no name server.
func (c *Client) MembersOn(ctx context.Context, queues []Queue, group string) ([]string, error) {
	return c.members(ctx, Brokers(queues), group)
}

// HasGroup tells whether the group exists, by a read that changes nothing. It needs a
// queue of any topic that the account may read.
func (c *Client) HasGroup(ctx context.Context, q Queue, group string) (bool, error) {
	_, _, err := c.MessageTimes(ctx, q, group, 0)
	if errors.Is(err, ErrGroupMissing) {
		return false, nil
	}
	return err == nil, err
}
