package remoting

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	codePull          = 11
	codeGroupOffset   = 14
	codeOffsetAt      = 29
	codeMaxOffset     = 30
	codeMinOffset     = 31
	codeGroupMembers  = 38
	fieldOffset       = "offset"
	pullWithOwnFilter = 4 // sysFlag: the request says what it wants; commits nothing, waits for nothing
)

func (q Queue) fields(more ...string) map[string]string {
	fields := map[string]string{"topic": q.Topic, "queueId": strconv.Itoa(q.ID), "bname": q.Broker}
	for i := 0; i+1 < len(more); i += 2 {
		fields[more[i]] = more[i+1]
	}
	return fields
}

func (c *Client) askOffset(ctx context.Context, q Queue, code int, more ...string) (int64, error) {
	answer, err := c.ask(ctx, q.Addr, request{code: code, fields: q.fields(more...)})
	if err != nil {
		return 0, err
	}
	return answer.Int(fieldOffset)
}

// MaxOffset is the number that the next message of the queue will get.
func (c *Client) MaxOffset(ctx context.Context, q Queue) (int64, error) {
	return c.askOffset(ctx, q, codeMaxOffset)
}

// MinOffset is the number of the oldest message that the broker still keeps.
func (c *Client) MinOffset(ctx context.Context, q Queue) (int64, error) {
	return c.askOffset(ctx, q, codeMinOffset)
}

// OffsetAt is the number of the message that was stored at, or nearest to, a time.
// Versions 4 round to the nearer neighbour, so it is for looks, not for ages.
func (c *Client) OffsetAt(ctx context.Context, q Queue, at time.Time) (int64, error) {
	return c.askOffset(ctx, q, codeOffsetAt, "timestamp", strconv.FormatInt(at.UnixMilli(), 10))
}

// GroupOffset is the number of the first message that the group has not finished;
// unknown when it has not committed any. Some versions say 0 for such a group
// while the queue still begins at 0.
func (c *Client) GroupOffset(ctx context.Context, q Queue, group string) (Figure, error) {
	answer, err := c.ask(ctx, q.Addr, request{
		code: codeGroupOffset, fields: q.fields("consumerGroup", c.name(group)),
		accept: []int{codeOffsetNotFound},
	})
	if err != nil || answer.Code == codeOffsetNotFound {
		return Figure{}, err
	}
	n, err := answer.Int(fieldOffset)
	if err != nil {
		return Figure{}, err
	}
	return Figure{N: n, Known: true}, nil
}

// Members returns the client ids of those who consume the topic in this group
// now, none when nobody does.
func (c *Client) Members(ctx context.Context, topic, group string) ([]string, error) {
	queues, err := c.Route(ctx, topic)
	if err != nil {
		return nil, err
	}
	return c.members(ctx, Brokers(queues), group)
}

func (c *Client) members(ctx context.Context, brokers []string, group string) ([]string, error) {
	members := []string{}
	for _, addr := range brokers {
		answer, err := c.ask(ctx, addr, request{
			code: codeGroupMembers, fields: map[string]string{"consumerGroup": c.name(group)},
		})
		var refused *Refusal
		if errors.As(err, &refused) && refused.Code == codeError && strings.Contains(refused.Remark, "no consumer for this group") {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("members of %s: %w", group, err)
		}
		var data struct {
			IDs []string `json:"consumerIdList"`
		}
		if err := json.Unmarshal(answer.Body, &data); err != nil {
			return nil, fmt.Errorf("members of %s: %w: %w", group, ErrFrame, err)
		}
		members = append(members, data.IDs...)
	}
	slices.Sort(members)
	return slices.Compact(members), nil
}

// Times of a message: when its producer made it, when the broker stored it. A
// message that is tried again is stored anew and keeps the time of its making.
type Times struct{ Born, Stored time.Time }

// MessageTimes reads the head of one message on behalf of a group, which changes
// nothing for the group. ok is false when there is no such message (any more).
func (c *Client) MessageTimes(ctx context.Context, q Queue, group string, offset int64) (times Times, ok bool, err error) {
	answer, err := c.ask(ctx, q.Addr, request{
		code: codePull,
		fields: q.fields(
			"consumerGroup", c.name(group), "queueOffset", strconv.FormatInt(offset, 10),
			"maxMsgNums", "1", "sysFlag", strconv.Itoa(pullWithOwnFilter),
			"commitOffset", "0", "suspendTimeoutMillis", "0",
			"subscription", "*", "subVersion", "0", "expressionType", "TAG"),
		accept: []int{codePullNotFound, codePullRetry, codePullOffsetMoved},
	})
	if err != nil || answer.Code != codeOK {
		return Times{}, false, err
	}
	times, err = messageTimes(answer.Body)
	return times, err == nil, err
}

// messageTimes reads the fixed part of a stored message: size, magic, checksum,
// queue, flag (4 bytes each), offset, position (8), sysFlag (4), born time (8),
// born host (4 or 16 with a port of 4), stored time (8).
func messageTimes(text []byte) (Times, error) {
	const (
		sysFlagAt  = 36
		bornAt     = 40
		bornHostAt = 48
		hostV6     = 1 << 4
	)
	if len(text) < bornHostAt {
		return Times{}, fmt.Errorf("%w: a message of %d bytes", ErrFrame, len(text))
	}
	storedAt := bornHostAt + 8
	if binary.BigEndian.Uint32(text[sysFlagAt:])&hostV6 != 0 {
		storedAt = bornHostAt + 20
	}
	if len(text) < storedAt+8 {
		return Times{}, fmt.Errorf("%w: a message of %d bytes", ErrFrame, len(text))
	}
	return Times{
		Born:   time.UnixMilli(int64(binary.BigEndian.Uint64(text[bornAt:]))),
		Stored: time.UnixMilli(int64(binary.BigEndian.Uint64(text[storedAt:]))),
	}, nil
}
