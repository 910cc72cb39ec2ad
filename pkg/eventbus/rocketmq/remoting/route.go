package remoting

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	codeRoute   = 105
	codeCluster = 106

	// permRead in a queue's permissions: a shrinking topic is read and not written.
	permRead = 4
	masterID = "0"
)

// Queue is one queue of a topic and where it is.
type Queue struct {
	// Topic is the name that the broker uses: with the namespace, if there is one.
	Topic  string
	Broker string
	// Addr is host:port of the broker's master.
	Addr string
	ID   int
}

// Brokers returns the addresses that hold the queues, each once.
func Brokers(queues []Queue) []string {
	var addrs []string
	for _, q := range queues {
		if !slices.Contains(addrs, q.Addr) {
			addrs = append(addrs, q.Addr)
		}
	}
	return addrs
}

// routeData is a name server's answer.
type routeData struct {
	Queues []struct {
		Broker string `json:"brokerName"`
		Read   int    `json:"readQueueNums"`
		Write  int    `json:"writeQueueNums"`
		Perm   int    `json:"perm"`
	} `json:"queueDatas"`
	Brokers []brokerData `json:"brokerDatas"`
}

type brokerData struct {
	Name  string            `json:"brokerName"`
	Addrs map[string]string `json:"brokerAddrs"`
}

// Route returns the readable queues of a topic whose broker has a master, in the
// order of brokers and numbers.
func (c *Client) Route(ctx context.Context, topic string) ([]Queue, error) {
	return c.route(ctx, c.name(topic), permRead)
}

// route finds the queues of a topic by its full name that have the permission;
// 0 finds all.
func (c *Client) route(ctx context.Context, topic string, perm int) ([]Queue, error) {
	answer, err := c.askNameServers(ctx, request{
		code: codeRoute, fields: map[string]string{"topic": topic},
	})
	var refused *Refusal
	if errors.As(err, &refused) && refused.Code == codeTopicMissing {
		return nil, fmt.Errorf("%w: %s: create it, or check the name and the namespace", ErrTopicMissing, topic)
	}
	if err != nil {
		return nil, fmt.Errorf("find topic %s: %w", topic, err)
	}
	var data routeData
	if err := json.Unmarshal(quoteKeys(answer.Body), &data); err != nil {
		return nil, fmt.Errorf("find topic %s: %w: %w", topic, ErrFrame, err)
	}
	var queues []Queue
	for _, q := range data.Queues {
		addr := masterOf(data.Brokers, q.Broker)
		if addr == "" || q.Perm&perm != perm {
			continue
		}
		count := q.Read
		if perm == 0 {
			count = max(q.Read, q.Write)
		}
		for id := range count {
			queues = append(queues, Queue{Topic: topic, Broker: q.Broker, Addr: addr, ID: id})
		}
	}
	if len(queues) == 0 {
		return nil, fmt.Errorf("find topic %s: no broker that holds it is registered: %w", topic, ErrUnreachable)
	}
	slices.SortFunc(queues, func(a, b Queue) int {
		return cmp.Or(strings.Compare(a.Broker, b.Broker), cmp.Compare(a.ID, b.ID))
	})
	return queues, nil
}

func masterOf(brokers []brokerData, name string) string {
	for _, b := range brokers {
		if b.Name == name {
			return b.Addrs[masterID]
		}
	}
	return ""
}

// masters returns the addresses of all brokers that take writes.
func (c *Client) masters(ctx context.Context) ([]string, error) {
	answer, err := c.askNameServers(ctx, request{code: codeCluster})
	if err != nil {
		return nil, fmt.Errorf("find the brokers: %w", err)
	}
	var data struct {
		Brokers map[string]brokerData `json:"brokerAddrTable"`
	}
	if err := json.Unmarshal(quoteKeys(answer.Body), &data); err != nil {
		return nil, fmt.Errorf("find the brokers: %w: %w", ErrFrame, err)
	}
	var addrs []string
	for _, b := range data.Brokers {
		if addr := b.Addrs[masterID]; addr != "" {
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("find the brokers: none is registered: %w", ErrUnreachable)
	}
	slices.Sort(addrs)
	return addrs, nil
}

// quoteKeys makes JSON of what servers send: their encoder leaves numbers that are
// keys without quotes, {0:"10.0.0.1:10911"}.
func quoteKeys(text []byte) []byte {
	var out bytes.Buffer
	out.Grow(len(text) + 16)
	inString, keyPlace := false, false
	for i := 0; i < len(text); i++ {
		b := text[i]
		switch {
		case inString && b == '\\' && i+1 < len(text):
			out.WriteByte(b)
			i++
			b = text[i]
		case b == '"':
			inString, keyPlace = !inString, false
		case inString:
		case b == '{' || b == ',':
			keyPlace = true
		case keyPlace && b >= '0' && b <= '9':
			end := i
			for end < len(text) && text[end] >= '0' && text[end] <= '9' {
				end++
			}
			if end < len(text) && text[end] == ':' {
				fmt.Fprintf(&out, "%q", text[i:end])
				i = end - 1
				keyPlace = false
				continue
			}
			keyPlace = false
		case b != ' ':
			keyPlace = false
		}
		out.WriteByte(b)
	}
	return out.Bytes()
}
