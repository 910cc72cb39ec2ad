package rmqfake

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"time"
)

// Limits of a broker.
const (
	maxBody       = 4 << 20
	maxProperties = 32767
)

// property names and separators as the client writes them.
const (
	propertyRetryTopic = "RETRY_TOPIC"
	nameEnd            = "\x01"
	propertyEnd        = "\x02"
)

// Message is one stored message.
type Message struct {
	Topic string
	Queue int
	// Offset is its number in the queue, Position in the whole log.
	Offset, Position int64
	// Properties are raw: name, \x01, value, \x02.
	Properties string
	Body       []byte
	Born       time.Time
	Stored     time.Time
	SysFlag    int
	Flag       int
	// Attempts counts earlier deliveries.
	Attempts int
}

type queueKey struct {
	topic string
	queue int
}

type offsetKey struct {
	group string
	queueKey
}

// state is what the broker keeps, guarded by the server's lock.
type state struct {
	topics  map[string]int
	log     []*Message
	queues  map[queueKey][]*Message
	offsets map[offsetKey]int64
	members map[string]map[*conn]string // by group: who, with which client id
	grown   chan struct{}               // closed, and replaced, when a message was stored
}

func newState(topics map[string]int) state {
	st := state{
		topics: make(map[string]int), queues: make(map[queueKey][]*Message),
		offsets: make(map[offsetKey]int64), members: make(map[string]map[*conn]string),
		grown: make(chan struct{}),
	}
	for topic, queues := range topics {
		st.topics[topic] = queues
	}
	return st
}

// queuesOf tells how many queues a topic has, 0 if there is no such topic.
func (st *state) queuesOf(topic string) int {
	if strings.HasPrefix(topic, "%RETRY%") || strings.HasPrefix(topic, "%DLQ%") {
		return 1
	}
	return st.topics[topic]
}

func (st *state) store(m Message) *Message {
	key := queueKey{m.Topic, m.Queue}
	m.Stored = time.Now()
	m.Offset, m.Position = int64(len(st.queues[key])), int64(len(st.log))
	st.queues[key] = append(st.queues[key], &m)
	st.log = append(st.log, &m)
	close(st.grown)
	st.grown = make(chan struct{})
	return &m
}

// leave forgets a client whose connection ended.
func (st *state) leave(c *conn) {
	for _, members := range st.members {
		delete(members, c)
	}
}

// Messages returns what was stored for a topic, in order.
func (s *Server) Messages(topic string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Message
	for _, m := range s.log {
		if m.Topic == topic {
			found = append(found, *m)
		}
	}
	return found
}

// Committed returns the offset that a group has committed on a queue, -1 for none.
func (s *Server) Committed(group, topic string, queue int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	offset, ok := s.offsets[offsetKey{group, queueKey{topic, queue}}]
	if !ok {
		return -1
	}
	return offset
}

// MembersOf returns the client ids of a group, sorted.
func (s *Server) MembersOf(group string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memberIDs(group)
}

func (st *state) memberIDs(group string) []string {
	ids := []string{}
	for _, id := range st.members[group] {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// withProperty adds a property that is not there yet.
func withProperty(properties, name, value string) string {
	if strings.Contains(propertyEnd+properties, propertyEnd+name+nameEnd) {
		return properties
	}
	if properties != "" && !strings.HasSuffix(properties, propertyEnd) {
		properties += propertyEnd
	}
	return properties + name + nameEnd + value + propertyEnd
}

// encode writes the message in the form in which a broker stores and sends it.
func (m *Message) encode() []byte {
	const magic = 0xDAA320A7
	host := []byte{127, 0, 0, 1, 0, 0, 0, 0}
	var b bytes.Buffer
	put := func(v any) { _ = binary.Write(&b, binary.BigEndian, v) } // to memory: never fails
	put(uint32(0))                                                   // the size, below
	put(uint32(magic))
	put(crc32.ChecksumIEEE(m.Body))
	put(int32(m.Queue))
	put(int32(m.Flag))
	put(m.Offset)
	put(m.Position)
	put(int32(m.SysFlag))
	put(m.Born.UnixMilli())
	b.Write(host)
	put(m.Stored.UnixMilli())
	b.Write(host)
	put(int32(m.Attempts))
	put(int64(0)) // of a transaction
	put(int32(len(m.Body)))
	b.Write(m.Body)
	put(uint8(len(m.Topic)))
	b.WriteString(m.Topic)
	put(int16(len(m.Properties)))
	b.WriteString(m.Properties)
	encoded := b.Bytes()
	binary.BigEndian.PutUint32(encoded, uint32(len(encoded)))
	return encoded
}
