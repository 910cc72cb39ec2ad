package rmqfake

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

const (
	brokerName = "broker-fake"
	batch      = 32 // messages that a pull gets at most
	// sysFlag of a pull
	pullCommits = 1
	pullWaits   = 2
	// delayLevel of a message that is sent back for good
	levelDead = -1
)

// v2Names are the long names of what a newer client sends in short.
var v2Names = map[string]string{
	"a": "producerGroup", "b": "topic", "e": "queueId", "f": "sysFlag", "g": "bornTimestamp",
	"h": "flag", "i": "properties", "j": "reconsumeTimes", "m": "batch",
}

// answer carries a request out; nil when the fake was closed meanwhile.
func (s *Server) answer(c *conn, q *remoting.Command) *remoting.Command {
	if q.Code == Route {
		return s.route(q)
	}
	if s.account.AccessKey != "" && !s.account.Signed(q) {
		return q.Reply(CodeError, "org.apache.rocketmq.acl.common.AclException: Check signature failed")
	}
	switch q.Code {
	case Send:
		return s.send(q, q.Fields)
	case SendV2:
		fields := make(map[string]string)
		for short, long := range v2Names {
			fields[long] = q.Fields[short]
		}
		return s.send(q, fields)
	case Pull:
		return s.pull(q)
	case SendBack:
		return s.sendBack(q)
	case Heartbeat:
		return s.heartbeat(c, q)
	case Members:
		return s.membersOf(q)
	case GroupOffset, CommitOffset, MaxOffset, MinOffset, OffsetAt:
		return s.offset(q)
	case Lock:
		return lock(q)
	case Unlock, Unregister:
		return q.Reply(0, "")
	}
	return q.Reply(CodeUnsupported, fmt.Sprintf("request type %d not supported", q.Code))
}

func (s *Server) route(q *remoting.Command) *remoting.Command {
	s.mu.Lock()
	queues, addr := s.queuesOf(q.Fields["topic"]), s.broker
	s.mu.Unlock()
	if queues == 0 {
		return q.Reply(CodeTopicMissing, "No topic route info in name server for the topic: "+q.Fields["topic"])
	}
	a := q.Reply(0, "")
	// A key that is a bare number, as a real name server writes it.
	a.Body = fmt.Appendf(nil, `{"brokerDatas":[{"brokerAddrs":{0:%q},"brokerName":%q,"cluster":"fake"}],"filterServerTable":{},`+
		`"queueDatas":[{"brokerName":%q,"perm":6,"readQueueNums":%d,"topicSysFlag":0,"writeQueueNums":%d}]}`,
		addr, brokerName, brokerName, queues, queues)
	return a
}

// number reads a field; what is absent or no number is 0.
func number(fields map[string]string, name string) int {
	n, _ := strconv.Atoi(fields[name])
	return n
}

func (s *Server) send(q *remoting.Command, fields map[string]string) *remoting.Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue, queues := number(fields, "queueId"), s.queuesOf(fields["topic"])
	switch {
	case queues == 0:
		return q.Reply(CodeTopicMissing, "topic["+fields["topic"]+"] not exist, apply first please!")
	case fields["batch"] == "true":
		return q.Reply(CodeIllegal, "batches are not supported")
	case len(q.Body) > maxBody:
		return q.Reply(CodeIllegal, "the message is illegal, maybe msg body or properties length not matched. msg body length limit 4194304B")
	case len(fields["properties"]) > maxProperties:
		return q.Reply(CodeIllegal, "the message is illegal, maybe msg body or properties length not matched")
	case queue < 0 || queue >= queues:
		return q.Reply(CodeError, fmt.Sprintf("request queueId[%d] is illegal", queue))
	}
	m := s.store(Message{
		Topic: fields["topic"], Queue: queue, Properties: fields["properties"], Body: q.Body,
		Born: time.UnixMilli(int64(number(fields, "bornTimestamp"))), SysFlag: number(fields, "sysFlag"),
		Flag: number(fields, "flag"), Attempts: number(fields, "reconsumeTimes"),
	})
	a := q.Reply(0, "")
	a.Fields = map[string]string{
		"msgId":   fmt.Sprintf("7F000001%08X%016X", s.listeners[1].Addr().(*net.TCPAddr).Port, m.Position),
		"queueId": strconv.Itoa(m.Queue), "queueOffset": strconv.FormatInt(m.Offset, 10),
	}
	return a
}

func (s *Server) pull(q *remoting.Command) *remoting.Command {
	key := queueKey{q.Fields["topic"], number(q.Fields, "queueId")}
	from, flag := number(q.Fields, "queueOffset"), number(q.Fields, "sysFlag")
	hold := time.NewTimer(time.Duration(number(q.Fields, "suspendTimeoutMillis")) * time.Millisecond)
	defer hold.Stop()
	for first := true; ; first = false {
		s.mu.Lock()
		if first && flag&pullCommits != 0 {
			s.offsets[offsetKey{q.Fields["consumerGroup"], key}] = int64(number(q.Fields, "commitOffset"))
		}
		stored, grown := s.queues[key], s.grown
		s.mu.Unlock()
		a := q.Reply(CodePullNotFound, "no new message")
		next := min(max(from, 0), len(stored))
		for _, m := range stored[next:min(len(stored), next+batch)] {
			a.Code, a.Remark = 0, "FOUND"
			a.Body = append(a.Body, m.encode()...)
			next++
		}
		a.Fields = map[string]string{
			"suggestWhichBrokerId": "0", "nextBeginOffset": strconv.Itoa(next),
			"minOffset": "0", "maxOffset": strconv.Itoa(len(stored)),
		}
		if a.Code == 0 || flag&pullWaits == 0 {
			return a
		}
		select {
		case <-grown:
		case <-hold.C:
			return a
		case <-s.ctx.Done():
			return nil
		}
	}
}

func (s *Server) sendBack(q *remoting.Command) *remoting.Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	position := number(q.Fields, "offset")
	if position < 0 || position >= len(s.log) {
		return q.Reply(CodeError, fmt.Sprintf("look message by offset failed, %d", position))
	}
	again := *s.log[position]
	again.Properties = withProperty(again.Properties, propertyRetryTopic, again.Topic)
	prefix := "%RETRY%"
	if number(q.Fields, "delayLevel") == levelDead || again.Attempts >= number(q.Fields, "maxReconsumeTimes") {
		prefix = "%DLQ%"
	}
	again.Topic, again.Queue = prefix+q.Fields["group"], 0
	again.Attempts++
	s.store(again)
	return q.Reply(0, "")
}

func (s *Server) heartbeat(c *conn, q *remoting.Command) *remoting.Command {
	var beat struct {
		ClientID  string `json:"clientID"`
		Consumers []struct {
			Group string `json:"groupName"`
		} `json:"consumerDataSet"`
	}
	if err := json.Unmarshal(q.Body, &beat); err != nil {
		return q.Reply(CodeError, "heartbeat: "+err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, consumer := range beat.Consumers {
		if s.members[consumer.Group] == nil {
			s.members[consumer.Group] = make(map[*conn]string)
		}
		s.members[consumer.Group][c] = beat.ClientID
	}
	return q.Reply(0, "")
}

func (s *Server) membersOf(q *remoting.Command) *remoting.Command {
	ids := s.MembersOf(q.Fields["consumerGroup"])
	if len(ids) == 0 {
		return q.Reply(NoMembers.Code, NoMembers.Remark+", "+q.Fields["consumerGroup"])
	}
	a := q.Reply(0, "")
	a.Body, _ = json.Marshal(map[string]any{"consumerIdList": ids}) // strings: never fails
	return a
}

func (s *Server) offset(q *remoting.Command) *remoting.Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := queueKey{q.Fields["topic"], number(q.Fields, "queueId")}
	key := offsetKey{q.Fields["consumerGroup"], queue}
	a := q.Reply(0, "")
	result := int64(0)
	switch q.Code {
	case GroupOffset:
		committed, ok := s.offsets[key]
		if !ok {
			return q.Reply(CodeOffsetMissing, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
		}
		result = committed
	case CommitOffset:
		s.offsets[key] = int64(number(q.Fields, "commitOffset"))
		return a
	case MaxOffset:
		result = int64(len(s.queues[queue]))
	case OffsetAt:
		at := time.UnixMilli(int64(number(q.Fields, "timestamp")))
		for _, m := range s.queues[queue] {
			if m.Stored.Before(at) {
				result++
			}
		}
	}
	a.Fields["offset"] = strconv.FormatInt(result, 10)
	return a
}

// lock grants every queue that is asked for.
func lock(q *remoting.Command) *remoting.Command {
	var asked struct {
		Queues json.RawMessage `json:"mqSet"`
	}
	if err := json.Unmarshal(q.Body, &asked); err != nil {
		return q.Reply(CodeError, "lock: "+err.Error())
	}
	a := q.Reply(0, "")
	a.Body = fmt.Appendf(nil, `{"lockOKMQSet":%s}`, asked.Queues)
	return a
}
