package rmqfake_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/eventbus/rocketmq/remoting"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/rmqfake"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	topic = "orders"
	group = "GID_orders"
	bound = 30 * time.Second
	// quick is how long the client waits for an answer here.
	quick = 500 * time.Millisecond
)

var account = remoting.Account{AccessKey: "fake-key", SecretKey: "fake-secret"}

func start(t *testing.T) *rmqfake.Server {
	t.Helper()
	rlog.SetLogLevel("fatal")
	fake, err := rmqfake.Start(rmqfake.Options{Topics: map[string]int{topic: 2}, Account: account})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	return fake
}

// sender returns the real client's way to send one message, without its retries.
func sender(t *testing.T, fake *rmqfake.Server, key remoting.Account) func(m *primitive.Message) (*primitive.SendResult, error) {
	t.Helper()
	p, err := rocketmq.NewProducer(producer.WithNameServer([]string{fake.Addr()}),
		producer.WithCredentials(primitive.Credentials{AccessKey: key.AccessKey, SecretKey: key.SecretKey}),
		producer.WithInstanceName(t.Name()+key.SecretKey), producer.WithRetry(0), producer.WithSendMsgTimeout(quick))
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Shutdown() })
	return func(m *primitive.Message) (*primitive.SendResult, error) { return p.SendSync(context.Background(), m) }
}

func message(body string) *primitive.Message {
	m := primitive.NewMessage(topic, []byte(body)).WithTag("PUSH").WithKeys([]string{"push:1"})
	m.WithProperty("traceparent", "00-1")
	return m
}

// consume runs the real push consumer; handle gets body, key, and how often it was
// delivered before.
func consume(t *testing.T, fake *rmqfake.Server, handle func(m *primitive.MessageExt) consumer.ConsumeResult) {
	t.Helper()
	pc, err := rocketmq.NewPushConsumer(consumer.WithNameServer([]string{fake.Addr()}),
		consumer.WithCredentials(primitive.Credentials{AccessKey: account.AccessKey, SecretKey: account.SecretKey}),
		consumer.WithInstance(t.Name()+"/consumes"), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	require.NoError(t, err)
	require.NoError(t, pc.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "PUSH"},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			return handle(messages[0]), nil
		}))
	require.NoError(t, pc.Start())
	t.Cleanup(func() { _ = pc.Shutdown() })
}

func TestTheRealClientSends(t *testing.T) {
	fake := start(t)
	send := sender(t, fake, account)
	result, err := send(message("hello"))
	require.NoError(t, err)
	require.Equal(t, primitive.SendOK, result.Status)
	require.NotEmpty(t, result.OffsetMsgID)

	stored := fake.Messages(topic)
	require.Len(t, stored, 1)
	require.Equal(t, "hello", string(stored[0].Body))
	require.Contains(t, stored[0].Properties, "TAGS\x01PUSH\x02")
	require.Contains(t, stored[0].Properties, "KEYS\x01push:1")
	require.Equal(t, 1, fake.Seen(rmqfake.SendV2))
}

func TestWhatABrokerRefusesTheFakeRefuses(t *testing.T) {
	fake := start(t)
	send := sender(t, fake, account)
	_, err := send(primitive.NewMessage("absent", []byte("x")))
	require.ErrorContains(t, err, "route info not found")

	large := message("x")
	large.WithProperty("p", strings.Repeat("x", 33_000))
	_, err = send(large)
	require.ErrorContains(t, err, "CODE: 13")

	_, err = sender(t, fake, remoting.Account{AccessKey: account.AccessKey, SecretKey: "wrong"})(message("x"))
	require.ErrorContains(t, err, "CODE: 1")
	require.ErrorContains(t, err, "AclException")
	require.Empty(t, fake.Messages(topic))
}

func TestProgrammedAnswersReachTheRealClient(t *testing.T) {
	for name, test := range map[string]struct {
		behaviour rmqfake.Behaviour
		err       string
		status    primitive.SendStatus
		stored    int
	}{
		"flow control":     {behaviour: rmqfake.FlowControl, err: "CODE: 215"},
		"busy":             {behaviour: rmqfake.Busy, err: "CODE: 2"},
		"disk timeout":     {behaviour: rmqfake.Stored(rmqfake.CodeFlushDisk), status: primitive.SendFlushDiskTimeout, stored: 1},
		"replica timeout":  {behaviour: rmqfake.Stored(rmqfake.CodeFlushSlave), status: primitive.SendFlushSlaveTimeout, stored: 1},
		"no replica":       {behaviour: rmqfake.Stored(rmqfake.CodeNoSlave), status: primitive.SendSlaveNotAvailable, stored: 1},
		"silent":           {behaviour: rmqfake.Behaviour{Silent: true}, err: "timeout"},
		"silent, stored":   {behaviour: rmqfake.Behaviour{Silent: true, Carried: true}, err: "timeout", stored: 1},
		"dropped":          {behaviour: rmqfake.Behaviour{Drop: true}, err: "timeout"},
		"late, but stored": {behaviour: rmqfake.Behaviour{Delay: 2 * quick}, err: "timeout", stored: 1},
	} {
		t.Run(name, func(t *testing.T) {
			fake := start(t)
			send := sender(t, fake, account)
			behaviour := test.behaviour
			behaviour.Times = 1
			fake.Behave(rmqfake.Send, behaviour)
			result, err := send(message("x"))
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
			} else {
				require.NoError(t, err)
				require.Equal(t, test.status, result.Status)
			}
			testenv.Eventually(t, bound, "it is stored or not", func() bool { return len(fake.Messages(topic)) == test.stored })

			result, err = send(message("after"))
			require.NoError(t, err, "it held for one request")
			require.Equal(t, primitive.SendOK, result.Status)
			require.Len(t, fake.Messages(topic), test.stored+1)
		})
	}
}

func TestTheRealClientConsumesRetriesAndCommits(t *testing.T) {
	fake := start(t)
	send := sender(t, fake, account)
	for _, body := range []string{"first", "again", "third"} {
		_, err := send(message(body))
		require.NoError(t, err)
	}
	var done, again atomic.Int32
	consume(t, fake, func(m *primitive.MessageExt) consumer.ConsumeResult {
		if string(m.Body) == "again" && m.ReconsumeTimes == 0 {
			return consumer.ConsumeRetryLater
		}
		if m.ReconsumeTimes == 1 && m.Topic == topic && m.GetKeys() == "push:1" {
			again.Add(1)
		}
		done.Add(1)
		return consumer.ConsumeSuccess
	})
	testenv.Eventually(t, bound, "all are done", func() bool { return done.Load() == 3 })
	require.EqualValues(t, 1, again.Load(), "the retried message keeps topic and key")
	require.Len(t, fake.MembersOf(group), 1)

	client, err := remoting.New(remoting.Config{NameServers: []string{fake.Addr()}, Account: account})
	require.NoError(t, err)
	defer client.Close()
	testenv.Eventually(t, bound, "the offsets are committed", func() bool {
		b, err := client.Backlog(t.Context(), topic, group)
		require.NoError(t, err)
		require.NoError(t, b.Missed)
		return b.Waiting.N == 0 && b.Retry.N == 0
	})

	// A message that comes while the consumer waits is given to the held request.
	_, err = send(message("fourth"))
	require.NoError(t, err)
	testenv.Eventually(t, bound, "the fourth is done", func() bool { return done.Load() == 4 })
}

// The client takes an error for "no queues for you", and drops all that it has.
func TestAGroupWithoutMembersStopsTheRealClient(t *testing.T) {
	fake := start(t)
	fake.Behave(rmqfake.Members, rmqfake.NoMembers)
	send := sender(t, fake, account)
	_, err := send(message("x"))
	require.NoError(t, err)
	var done atomic.Int32
	consume(t, fake, func(*primitive.MessageExt) consumer.ConsumeResult {
		done.Add(1)
		return consumer.ConsumeSuccess
	})
	testenv.Eventually(t, bound, "it asks for the members", func() bool { return fake.Seen(rmqfake.Members) > 0 })
	require.Len(t, fake.MembersOf(group), 1, "although it is one")
	require.Zero(t, done.Load())
	fake.Behave(rmqfake.Members, rmqfake.Behaviour{})
	testenv.Eventually(t, 2*bound, "it has its queues again", func() bool { return done.Load() == 1 })
}

func TestDroppedConnectionsAreReplaced(t *testing.T) {
	fake := start(t)
	send := sender(t, fake, account)
	_, err := send(message("before"))
	require.NoError(t, err)
	fake.DropConnections()
	testenv.Eventually(t, bound, "the client dials again", func() bool {
		_, err := send(message("after"))
		return err == nil
	})
}
