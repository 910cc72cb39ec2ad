package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

// Codes of a broker's answer to a send that we tell apart.
const (
	codeError        = 1
	codeBusy         = 2
	codeIllegal      = 13
	codeNoPermission = 16
	codeTopicMissing = 17
	codeFlowControl  = 215
)

// answer is what a failed send means. The client gives the broker's code as text only;
// it is read here and nowhere else.
type answer struct {
	status driver.Status
	code   int // 0: the broker did not answer
	// routeLost: the client knows no broker for the topic any more.
	routeLost bool
	err       error
}

func parseAnswer(err error) answer {
	text := err.Error()
	a := answer{err: err, code: codeIn(text), routeLost: strings.Contains(text, "route info not found")}
	switch a.code {
	case codeIllegal: // too large, or a property that is
		a.status = driver.Refused
	case codeBusy, codeFlowControl:
		a.status = driver.Throttled
	case codeNoPermission:
		a.err = fmt.Errorf("the account or the topic does not permit writing: give the account the right to publish: %w", err)
	case codeTopicMissing:
		a.err = fmt.Errorf("the broker does not know the topic: create it (relay topics): %w", err)
	case codeError:
		// A key that is not accepted is an outage that a person ends, and no fault of
		// the message.
		if strings.Contains(text, "AclException") || strings.Contains(text, "signature") {
			a.err = fmt.Errorf("the broker does not accept the account: check SEAHUB_ROCKETMQ_ACCESS_KEY, SEAHUB_ROCKETMQ_SECRET_KEY and the right to publish: %w", errors.New(firstLine(text)))
			break
		}
		a.status = driver.Failed
	}
	return a
}

// codeIn reads "CODE: 215, DESC: …".
func codeIn(text string) int {
	_, rest, ok := strings.Cut(text, "CODE: ")
	if !ok {
		return 0
	}
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	code, _ := strconv.Atoi(rest[:end]) // no digits: 0
	return code
}

// label bounds what a broker can put into a metric.
func (a answer) label() string {
	if a.code < 1000 {
		return strconv.Itoa(a.code)
	}
	return "other"
}

// firstLine keeps keys out of logs: brokers put them, and stack traces, behind.
func firstLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	if i := strings.Index(text, "accessKey"); i >= 0 {
		text = text[:i]
	}
	return text
}

func statusName(s primitive.SendStatus) string {
	switch s {
	case primitive.SendFlushDiskTimeout:
		return "flush disk timeout"
	case primitive.SendFlushSlaveTimeout:
		return "flush slave timeout"
	case primitive.SendSlaveNotAvailable:
		return "slave not available"
	}
	return "unknown"
}

// explain turns what a question about a topic and a group failed with into a message
// that tells what to do. group is empty for a publisher.
func (d *Driver) explain(ctx context.Context, err error, topic, group string) error {
	servers := strings.Join(d.cfg.NameServers, ",")
	switch {
	case errors.Is(err, remoting.ErrTopicMissing):
		return d.explainTopic(ctx, err, topic)
	case errors.Is(err, remoting.ErrGroupMissing):
		return fmt.Errorf("consumer group %s does not exist: create it (relay topics prints how)%s: %w", group, d.inNamespace(), err)
	case errors.Is(err, remoting.ErrWrongKey):
		return fmt.Errorf("the broker does not accept the key: check SEAHUB_ROCKETMQ_ACCESS_KEY and SEAHUB_ROCKETMQ_SECRET_KEY: %w", err)
	case errors.Is(err, remoting.ErrDenied):
		return fmt.Errorf("the account has no permission: give it the right to subscribe to topic %s and to use group %s: %w", topic, group, err)
	case errors.Is(err, remoting.ErrSilent):
		return fmt.Errorf("RocketMQ takes connections and does not answer (name servers %s): %w", servers, err)
	case errors.Is(err, remoting.ErrUnreachable):
		return fmt.Errorf("RocketMQ cannot be reached: check SEAHUB_ROCKETMQ_NAME_SERVERS (%s) and the network: %w", servers, err)
	}
	return err
}

// explainTopic looks whether the topic is there without, or needs, a namespace.
func (d *Driver) explainTopic(ctx context.Context, err error, topic string) error {
	if d.cfg.Namespace == "" {
		return fmt.Errorf("topic %s does not exist: create it (relay topics prints how); on an instance with a namespace set SEAHUB_ROCKETMQ_NAMESPACE: %w", topic, err)
	}
	if plain, newErr := askClient(d.cfg, ""); newErr == nil {
		defer plain.Close()
		if _, routeErr := plain.Route(ctx, topic); routeErr == nil {
			return fmt.Errorf("wrong namespace: topic %s exists without one, and not in %s: correct or unset SEAHUB_ROCKETMQ_NAMESPACE: %w", topic, d.cfg.Namespace, err)
		}
	}
	return fmt.Errorf("topic %s does not exist in namespace %s: create it (relay topics prints how), or correct SEAHUB_ROCKETMQ_NAMESPACE: %w", topic, d.cfg.Namespace, err)
}

func (d *Driver) inNamespace() string {
	if d.cfg.Namespace == "" {
		return ""
	}
	return " in namespace " + d.cfg.Namespace
}
