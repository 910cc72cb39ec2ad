package remoting_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
)

// quick bounds a call to a local server that does not answer; slack is what a busy
// machine may add to it.
const (
	quick = 500 * time.Millisecond
	slack = 5 * time.Second
)

// scripted is a server that answers as the test says; nil is silence.
type scripted struct {
	addr   string
	dialed atomic.Int32

	mu    sync.Mutex
	conns []net.Conn
}

func serve(t *testing.T, answer func(*remoting.Command) []*remoting.Command) *scripted {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &scripted{addr: listener.Addr().String()}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.dialed.Add(1)
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
			serving.Go(func() {
				r := bufio.NewReader(conn)
				for {
					question, err := remoting.ReadCommand(r)
					if err != nil {
						return
					}
					for _, c := range answer(question) {
						_ = remoting.WriteCommand(conn, c)
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		s.drop()
		serving.Wait()
	})
	return s
}

// drop closes all connections, as a restart does.
func (s *scripted) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
}

func open(t *testing.T, cfg remoting.Config) *remoting.Client {
	t.Helper()
	client, err := remoting.New(cfg)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func ok(question *remoting.Command, body string) []*remoting.Command {
	reply := question.Reply(0, "")
	reply.Body = []byte(body)
	return []*remoting.Command{reply}
}

func silent(*remoting.Command) []*remoting.Command { return nil }

// nobody is an address where nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

const twoBrokers = `{"brokerDatas":[
	{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.3:10911"},"brokerName":"b","cluster":"c{1:,2:}"},
	{"brokerAddrs":{ 0:"10.0.0.2:10911"},"brokerName":"a"},
	{"brokerAddrs":{1:"10.0.0.4:10911"},"brokerName":"no master"}],
	"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":2,"writeQueueNums":4},
	{"brokerName":"a","perm":4,"readQueueNums":1,"writeQueueNums":1},
	{"brokerName":"no master","perm":6,"readQueueNums":8,"writeQueueNums":8}]}`

func TestARouteOfSeveralBrokers(t *testing.T) {
	server := serve(t, func(question *remoting.Command) []*remoting.Command {
		assert.Equal(t, map[string]string{"topic": "MQ_INST_1%orders"}, question.Fields)
		return ok(question, twoBrokers)
	})
	client := open(t, remoting.Config{NameServers: []string{" http://" + server.addr}, Namespace: "MQ_INST_1"})
	queues, err := client.Route(t.Context(), "orders")
	require.NoError(t, err)
	topic := "MQ_INST_1%orders"
	require.Equal(t, []remoting.Queue{
		{Topic: topic, Broker: "a", Addr: "10.0.0.2:10911", ID: 0},
		{Topic: topic, Broker: "b", Addr: "10.0.0.1:10911", ID: 0},
		{Topic: topic, Broker: "b", Addr: "10.0.0.1:10911", ID: 1},
	}, queues)
	require.Equal(t, []string{"10.0.0.2:10911", "10.0.0.1:10911"}, remoting.Brokers(queues))
}

func TestARouteThatLeadsNowhere(t *testing.T) {
	for body, want := range map[string]error{
		`{"brokerDatas":[],"queueDatas":[]}`: remoting.ErrUnreachable,
		`<html>`:                             remoting.ErrFrame,
	} {
		server := serve(t, func(q *remoting.Command) []*remoting.Command { return ok(q, body) })
		_, err := open(t, remoting.Config{NameServers: []string{server.addr}}).Route(t.Context(), "t")
		require.ErrorIs(t, err, want)
	}
}

func TestConnectionsAreReusedWhileTheyAreYoung(t *testing.T) {
	server := serve(t, func(q *remoting.Command) []*remoting.Command { return ok(q, twoBrokers) })
	client := open(t, remoting.Config{NameServers: []string{server.addr}})
	for range 10 {
		_, err := client.Route(t.Context(), "t")
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, server.dialed.Load())

	// The server restarts: the idle connection is dead, and the call does not fail.
	server.drop()
	_, err := client.Route(t.Context(), "t")
	require.NoError(t, err)
	require.EqualValues(t, 2, server.dialed.Load())

	old := open(t, remoting.Config{NameServers: []string{server.addr}, ConnLifetime: time.Nanosecond})
	for range 3 {
		_, err := old.Route(t.Context(), "t")
		require.NoError(t, err)
	}
	require.EqualValues(t, 5, server.dialed.Load())
}

func TestCallsAtTheSameTimeGetTheirOwnAnswers(t *testing.T) {
	server := serve(t, func(q *remoting.Command) []*remoting.Command {
		reply := q.Reply(0, "")
		reply.Fields["offset"] = q.Fields["queueId"]
		return []*remoting.Command{reply}
	})
	client := open(t, remoting.Config{NameServers: []string{server.addr}})
	var calls sync.WaitGroup
	for id := range 32 {
		calls.Go(func() {
			got, err := client.MaxOffset(context.Background(), remoting.Queue{Topic: "t", Addr: server.addr, ID: id})
			if err != nil || got != int64(id) {
				t.Errorf("queue %d: %d, %v", id, got, err)
			}
		})
	}
	calls.Wait()
}

func TestWhatIsNoAnswerToTheQuestionIsSkipped(t *testing.T) {
	server := serve(t, func(q *remoting.Command) []*remoting.Command {
		late := q.Reply(1, "to an earlier question")
		late.Opaque--
		return append([]*remoting.Command{{Code: 40, Opaque: q.Opaque}, late}, ok(q, twoBrokers)...)
	})
	_, err := open(t, remoting.Config{NameServers: []string{server.addr}}).Route(t.Context(), "t")
	require.NoError(t, err)
}

func TestASilentServerIsGivenUp(t *testing.T) {
	server := serve(t, silent)
	client := open(t, remoting.Config{NameServers: []string{server.addr}, CallTimeout: quick})
	started := time.Now()
	_, err := client.Route(t.Context(), "t")
	require.ErrorIs(t, err, remoting.ErrSilent)
	require.ErrorIs(t, err, remoting.ErrUnreachable)
	require.Contains(t, err.Error(), server.addr)
	require.Less(t, time.Since(started), quick+slack)

	// The caller's own bound may be nearer, and a caller who goes away is no fault of
	// the server's.
	short, cancel := context.WithTimeout(t.Context(), quick/10)
	defer cancel()
	_, err = open(t, remoting.Config{NameServers: []string{server.addr}, CallTimeout: time.Hour}).Route(short, "t")
	require.ErrorIs(t, err, remoting.ErrSilent)
	gone, leave := context.WithCancel(t.Context())
	time.AfterFunc(quick/10, leave)
	_, err = open(t, remoting.Config{NameServers: []string{server.addr}, CallTimeout: time.Hour}).Route(gone, "t")
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, remoting.ErrUnreachable)
}

func TestTheNextNameServerIsAsked(t *testing.T) {
	server := serve(t, func(q *remoting.Command) []*remoting.Command { return ok(q, twoBrokers) })
	quiet := serve(t, silent)
	client := open(t, remoting.Config{NameServers: []string{nobody(t), quiet.addr, server.addr}, CallTimeout: quick})
	_, err := client.Route(t.Context(), "t")
	require.NoError(t, err)

	first, second := nobody(t), nobody(t)
	started := time.Now()
	_, err = open(t, remoting.Config{NameServers: []string{first, second}}).Route(t.Context(), "t")
	require.ErrorIs(t, err, remoting.ErrUnreachable)
	require.NotErrorIs(t, err, remoting.ErrSilent)
	require.ErrorContains(t, err, "no name server answers")
	require.ErrorContains(t, err, first)
	require.ErrorContains(t, err, second)
	require.Less(t, time.Since(started), slack)
}

func TestARefusalTellsCodeAndReasonAndNoSecrets(t *testing.T) {
	account := remoting.Account{AccessKey: "the-key", SecretKey: "the-secret"}
	server := serve(t, func(q *remoting.Command) []*remoting.Command {
		if !account.Signed(q) {
			return []*remoting.Command{q.Reply(16, "not signed")}
		}
		return []*remoting.Command{q.Reply(215, "slow down, the-key with the-secret "+strings.Repeat("é", 300)+"\nat java.lang.Thread")}
	})
	client := open(t, remoting.Config{NameServers: []string{server.addr}, Account: account})
	_, err := client.MinOffset(t.Context(), remoting.Queue{Topic: "t", Addr: server.addr})
	var refused *remoting.Refusal
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, remoting.ErrRefused)
	require.NotErrorIs(t, err, remoting.ErrDenied)
	require.Equal(t, 215, refused.Code)
	require.Equal(t, 31, refused.Request)
	require.Contains(t, err.Error(), "slow down, *** with ***")
	require.NotContains(t, err.Error(), "java.lang")
	require.Less(t, len(err.Error()), 400)

	_, err = open(t, remoting.Config{NameServers: []string{server.addr}}).MinOffset(t.Context(), remoting.Queue{Topic: "t", Addr: server.addr})
	require.ErrorIs(t, err, remoting.ErrDenied)
}

func TestAClosedClientSaysSo(t *testing.T) {
	client := open(t, remoting.Config{NameServers: []string{nobody(t)}})
	client.Close()
	_, err := client.Route(t.Context(), "t")
	require.ErrorIs(t, err, remoting.ErrClosed)
}

func TestAConfigThatNamesNoServerIsRefused(t *testing.T) {
	for _, servers := range [][]string{nil, {"host"}, {"a:1", ""}} {
		_, err := remoting.New(remoting.Config{NameServers: servers})
		require.ErrorContains(t, err, "want host:port", fmt.Sprint(servers))
	}
}

func TestWaitingAndExpired(t *testing.T) {
	for _, test := range []struct {
		state            remoting.QueueState
		waiting, expired int64
	}{
		{remoting.QueueState{}, 0, 0},
		{remoting.QueueState{Min: 3, Max: 10}, 7, 0},
		{remoting.QueueState{Min: 3, Max: 10, Committed: remoting.Figure{N: 8, Known: true}}, 2, 0},
		{remoting.QueueState{Min: 3, Max: 10, Committed: remoting.Figure{N: 1, Known: true}}, 7, 2},
		// Finished between our two looks.
		{remoting.QueueState{Max: 10, Committed: remoting.Figure{N: 11, Known: true}}, 0, 0},
	} {
		require.Equal(t, test.waiting, test.state.Waiting(), "%+v", test.state)
		require.Equal(t, test.expired, test.state.Expired(), "%+v", test.state)
	}
}
