package rocketmq

import (
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// delivery is a message as handlers get it. The topic is the subscribed one: the
// client's has the namespace in front.
func (r *run) delivery(m *primitive.MessageExt) driver.Delivery {
	headers := map[string]string{}
	for name, value := range m.GetProperties() {
		if ours, ok := strings.CutPrefix(name, headerPrefix); ok {
			headers[ours] = value
		}
	}
	stored := m.StoreTimestamp
	if m.ReconsumeTimes > 0 {
		stored = m.BornTimestamp // a retried message is stored anew
	}
	key, _, _ := strings.Cut(m.GetKeys(), " ") // the aggregate may follow
	return driver.Delivery{
		Message: driver.Message{Topic: r.sub.Topic, Tag: m.GetTags(), Key: key, Body: m.Body, Headers: headers},
		Group:   r.sub.Group, BrokerID: m.MsgId, Attempt: attempt(m),
		PublishedAt: time.UnixMilli(stored),
	}
}

func attempt(m *primitive.MessageExt) int { return int(m.ReconsumeTimes) + 1 }

// keyOf is the queue that a message was fetched from; a retried one says the topic
// that it was published to.
func keyOf(m *primitive.MessageExt) queueKey {
	if m.Queue == nil {
		return queueKey{topic: m.Topic}
	}
	return queueKey{m.Queue.Topic, m.Queue.BrokerName, m.Queue.QueueId}
}

// wait is how long a retry waits at least.
func (r *run) wait(out driver.Outcome, attempt int) time.Duration {
	if out.After > 0 {
		return out.After
	}
	return backoff.Policy{Base: r.sub.MinRetry, Max: r.sub.MaxRetry}.Delay(attempt)
}
