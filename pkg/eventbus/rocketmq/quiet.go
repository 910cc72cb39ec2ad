package rocketmq

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// clientWork is what the client does on its own account, read off its log lines, the
// only place where it shows. A client that is shut down in the middle of a heartbeat
// leaves a ghost: the broker may carry the heartbeat out after it has noticed that the
// connection is closed, and then keeps the dead member, with its share of the queues,
// for two minutes.
var clientWork work

type work struct {
	// beats are heartbeats under way, of all clients of this process.
	beats atomic.Int64
	// members by the name of their instance.
	members sync.Map
}

// Lines of the pinned version of the client.
const (
	lineBeatBegins = "try to send heart beat to broker"
	lineBeatDone   = "send heart beat to broker success"
	lineBeatNone   = "notice, will not send heart beat to broker"
	lineBeatBroken = "send heart beat to broker error"
	lineBeatFailed = "send heart beat to broker failed"
	lineBalanced   = "MessageQueue do balance done"
)

func (w *work) heartbeat(line string) {
	switch line {
	case lineBeatBegins:
		w.beats.Add(1)
	case lineBeatDone, lineBeatNone, lineBeatBroken, lineBeatFailed:
		w.beats.Add(-1)
	}
}

// balanced notes the end of a rebalance, heartbeat included.
func (w *work) balanced(line string, fields map[string]any) {
	if line != lineBalanced {
		return
	}
	id, _ := fields["clientID"].(string)
	topic, _ := fields[rlog.LogKeyTopic].(string)
	_, instance, _ := strings.Cut(id, "@")
	if m, ok := w.members.Load(instance); ok {
		m.(*member).balancedTopic(topic)
	}
}

const (
	quietPatience = 4 * time.Second
	quietLook     = 5 * time.Millisecond
	// The client's own heartbeats: the first after firstBeat, then one each beatRhythm.
	// beatMargin is how long before its time one may begin, beatLength how long it
	// may take before its end is no longer waited for.
	firstBeat  = time.Second
	beatRhythm = 30 * time.Second
	beatMargin = 20 * time.Millisecond
	beatLength = 500 * time.Millisecond
	// balanceLength is for a rebalance that changes nothing, whose end does not show: it
	// may go on to ask for the offsets of queues that one beside it is taking.
	balanceLength = 300 * time.Millisecond
)

// quiet waits until neither a rebalance of this member, which ends with a heartbeat,
// nor one of its own heartbeats is under way.
func (m *member) quiet() {
	for deadline := time.Now().Add(quietPatience); time.Now().Before(deadline); time.Sleep(quietLook) {
		m.mu.Lock()
		balancing := len(m.pending) > 0 || time.Since(m.allocated) < balanceLength ||
			len(m.shares) == 0 && time.Since(m.started) < quietPatience // the one that a start begins
		m.mu.Unlock()
		if !balancing && !beatUnderWay(time.Since(m.started), clientWork.beats.Load() > 0) {
			return
		}
	}
}

// beatUnderWay tells whether a client that started that long ago may be sending its
// heartbeat; some: one of any client of the process is under way.
func beatUnderWay(age time.Duration, some bool) bool {
	phase := age - firstBeat
	if phase > 0 {
		phase %= beatRhythm
	}
	if phase > beatRhythm-beatMargin {
		phase -= beatRhythm
	}
	switch {
	case phase < -beatMargin || phase > beatLength:
		return false
	case phase < beatMargin: // about to begin
		return true
	}
	return some
}

func (m *member) balancedTopic(topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pending, topic)
}
