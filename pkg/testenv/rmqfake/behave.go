package rmqfake

import "time"

// The requests that the fake answers.
const (
	Send         = 10
	Pull         = 11
	GroupOffset  = 14
	CommitOffset = 15
	OffsetAt     = 29
	MaxOffset    = 30
	MinOffset    = 31
	Heartbeat    = 34
	Unregister   = 35
	SendBack     = 36
	Members      = 38
	Lock         = 41
	Unlock       = 42
	Route        = 105
	SendV2       = 310
)

// Codes of answers.
const (
	CodeError         = 1
	CodeBusy          = 2
	CodeUnsupported   = 3
	CodeFlushDisk     = 10
	CodeNoSlave       = 11
	CodeFlushSlave    = 12
	CodeIllegal       = 13
	CodeTopicMissing  = 17
	CodePullNotFound  = 19
	CodeOffsetMissing = 22
	CodeFlowControl   = 215
)

// Behaviour is what a request of some code meets instead of the usual. The zero
// value is the usual.
type Behaviour struct {
	// Code and Remark are answered.
	Code   int
	Remark string
	// Silent answers nothing, Drop closes the connection.
	Silent, Drop bool
	// Carried carries the request out all the same; only its answer differs.
	Carried bool
	// Delay goes before all of that.
	Delay time.Duration
	// Times is for how many requests it holds; 0: until it is replaced.
	Times int
}

// What a managed cluster answers above its quota, and a broker whose queue of
// requests is full.
var (
	FlowControl = Behaviour{Code: CodeFlowControl, Remark: "messages flow control, retry later"}
	Busy        = Behaviour{Code: CodeBusy, Remark: "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while"}
)

// Stored is a broker that keeps the message and says that its disk (CodeFlushDisk)
// or its replica (CodeFlushSlave, CodeNoSlave) has not confirmed it.
func Stored(code int) Behaviour { return Behaviour{Code: code, Remark: "timeout", Carried: true} }

// NoMembers is what a broker that has just started says of every group (Members).
var NoMembers = Behaviour{Code: CodeError, Remark: "no consumer for this group"}

// usual tells that nothing differs from the usual but the time.
func (b Behaviour) usual() bool { return b.Code == 0 && !b.Silent && !b.Drop }

// Behave programs what requests of a code meet from now on. Send and SendV2 are one.
func (s *Server) Behave(code int, b Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.program[kindOf(code)] = &b
}

// take returns what the next request of a code meets, and counts it.
func (s *Server) take(code int) Behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	code = kindOf(code)
	s.seen[code]++
	b := s.program[code]
	if b == nil {
		return Behaviour{}
	}
	if b.Times > 0 {
		if b.Times--; b.Times == 0 {
			delete(s.program, code)
		}
	}
	return *b
}

// Seen counts the requests of a code.
func (s *Server) Seen(code int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[kindOf(code)]
}

func kindOf(code int) int {
	if code == SendV2 {
		return Send
	}
	return code
}
