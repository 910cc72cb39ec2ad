package remoting_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
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
)

// bound is for what takes seconds: a consumer's first share, a delayed retry.
const bound = time.Minute

func credentials(a remoting.Account) primitive.Credentials {
	return primitive.Credentials{AccessKey: a.AccessKey, SecretKey: a.SecretKey}
}

// sender returns a function that stores one message. Instances have names of their
// own: the client shares a connection between equal ones, and signs all by the
// first account.
func sender(t *testing.T, c *testenv.RocketMQCluster, topic string) func(body string) {
	t.Helper()
	rlog.SetLogLevel("fatal")
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{c.Addr()}), producer.WithCredentials(credentials(c.Publisher)),
		producer.WithInstanceName(t.Name()+"/sends"), producer.WithRetry(0))
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Shutdown() })
	return func(body string) {
		t.Helper()
		result, err := p.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body)))
		require.NoError(t, err)
		require.Equal(t, primitive.SendOK, result.Status)
	}
}

// consume runs a consumer until the returned function ends it, which commits its
// offsets. handle returns the delay level of a retry, 0 for done.
func consume(t *testing.T, c *testenv.RocketMQCluster, topic, group string, handle func(body string) int) (stop func()) {
	t.Helper()
	rlog.SetLogLevel("fatal")
	pc, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{c.Addr()}), consumer.WithCredentials(credentials(c.Consumer)),
		consumer.WithGroupName(group), consumer.WithInstance(t.Name()+"/consumes"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	require.NoError(t, err)
	err = pc.Subscribe(topic, consumer.MessageSelector{}, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			if level := handle(string(m.Body)); level != 0 {
				concurrently, _ := primitive.GetConcurrentlyCtx(ctx)
				concurrently.DelayLevelWhenNextConsume = level
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	require.NoError(t, err)
	require.NoError(t, pc.Start())
	return func() { require.NoError(t, pc.Shutdown()) }
}

const (
	levelDead  = -1 // at once to the dead letters
	levelLater = 2  // in 5 s
)

// row is one line of mqadmin's table.
type row struct {
	topic                string
	id                   int
	max, committed, diff int64
}

// progress reads #Topic #Broker #QID #Broker Offset #Consumer Offset … #Diff, whose
// later columns differ by version.
func progress(t *testing.T, text string) []row {
	t.Helper()
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		require.NoError(t, err, text)
		return n
	}
	var rows []row
	for line := range strings.Lines(text) {
		column := strings.Fields(line)
		if len(column) < 6 || column[1] != "broker-a" {
			continue
		}
		rows = append(rows, row{column[0], int(number(column[2])), number(column[3]), number(column[4]), number(column[5])})
	}
	return rows
}

// Every figure of a group's backlog is what RocketMQ's own tool says, while nobody
// consumes.
func TestABacklogIsWhatTheToolSays(t *testing.T) {
	for _, version := range testenv.RocketMQVersions() {
		t.Run(version, func(t *testing.T) {
			c := testenv.RocketMQOf(t, version)
			topic, group := c.Topic(t, 4), c.Group(t)
			account := c.Consumer
			if version == testenv.RocketMQVersion5 {
				account = c.Admin // version 5 wants the permission to get, which no consumer needs
			}
			client := open(t, remoting.Config{NameServers: []string{c.Addr()}, Account: account})
			leaveWork(t, c, client, topic, group)

			testenv.Eventually(t, bound, "the retry is due", func() bool {
				b, err := client.Backlog(t.Context(), topic, group)
				require.NoError(t, err)
				return b.Retry.N == 1
			})
			before := time.Now()
			b, err := client.Backlog(t.Context(), topic, group)
			require.NoError(t, err)
			require.NoError(t, b.Missed)
			require.Equal(t, remoting.Figure{N: 13, Known: true}, b.Waiting)
			require.Equal(t, remoting.Figure{N: 1, Known: true}, b.Retry)
			require.Equal(t, remoting.Figure{N: 1, Known: true}, b.Dead)
			require.Empty(t, b.Members)
			require.NotNil(t, b.Members)
			require.True(t, b.Oldest.Known)
			// The retried message is the oldest: it was made before the tool's time.
			require.Greater(t, b.Oldest.D, 5*time.Second)
			require.Less(t, b.Oldest.D, time.Since(before)+2*bound)

			var waiting int64
			same := 0
			rows := progress(t, c.AdminTool(t, "consumerProgress", "-g", group))
			for _, r := range rows {
				waiting += r.diff
				for _, q := range b.Queues {
					if r.topic == topic && q.ID == r.id {
						require.Equal(t, row{topic, q.ID, q.Max, q.Committed.N, q.Waiting()}, r)
						same++
					}
				}
			}
			require.Len(t, rows, 5, "four queues and one of retries")
			require.Equal(t, 4, same)
			require.Equal(t, b.Waiting.N+b.Retry.N, waiting)
		})
	}
}

// leaveWork has a group do 40 messages, try one again, give one up, leave, and miss
// 13 more.
func leaveWork(t *testing.T, c *testenv.RocketMQCluster, client *remoting.Client, topic, group string) {
	t.Helper()
	send := sender(t, c, topic)
	for i := range 40 {
		send(fmt.Sprint("work ", i))
	}
	send("later")
	send("dead")
	var handled atomic.Int32
	stop := consume(t, c, topic, group, func(body string) int {
		handled.Add(1)
		switch body {
		case "later":
			return levelLater
		case "dead":
			return levelDead
		}
		return 0
	})
	testenv.Eventually(t, bound, "all were handled", func() bool { return handled.Load() >= 42 })
	members, err := client.Members(t.Context(), topic, group)
	require.NoError(t, err)
	require.Len(t, members, 1)
	require.Contains(t, members[0], t.Name())
	testenv.Eventually(t, bound, "the dead letter is stored", func() bool {
		b, err := client.Backlog(t.Context(), topic, group)
		require.NoError(t, err)
		return b.Dead.N == 1
	})
	stop()
	testenv.Eventually(t, bound, "the offsets are committed", func() bool {
		b, err := client.Backlog(t.Context(), topic, group)
		require.NoError(t, err)
		return b.Waiting.N == 0 && len(b.Members) == 0
	})
	for i := range 13 {
		send(fmt.Sprint("missed ", i))
	}
}

// stored reads from what RocketMQ's own tool prints of a topic's messages when the first
// of them was stored, and how many there are.
func stored(t *testing.T, text string) (first time.Time, n int) {
	t.Helper()
	for _, found := range regexp.MustCompile(`storeTimestamp=(\d+)`).FindAllStringSubmatch(text, -1) {
		ms, err := strconv.ParseInt(found[1], 10, 64)
		require.NoError(t, err)
		if at := time.UnixMilli(ms); n == 0 || at.Before(first) {
			first = at
		}
		n++
	}
	return first, n
}

// Of several queues the oldest message counts, by the broker's own stamp, which is the
// one that RocketMQ's tool shows; a group that has never come has it all before it.
func TestTheOldestAgeIsThatOfTheFirstUnfinishedMessage(t *testing.T) {
	for _, version := range testenv.RocketMQVersions() {
		t.Run(version, func(t *testing.T) {
			c := testenv.RocketMQOf(t, version)
			topic, group := c.Topic(t, 4), c.Group(t)
			send, client := sender(t, c, topic), c.Client(t)

			b, err := client.Backlog(t.Context(), topic, group)
			require.NoError(t, err)
			require.Equal(t, remoting.Age{Known: true}, b.Oldest, "nothing waits")

			earliest := time.Now()
			send("first")
			latest := time.Now()
			time.Sleep(1500 * time.Millisecond)
			for range 9 {
				send("younger")
			}
			asked := time.Now()
			b, err = client.Backlog(t.Context(), topic, group)
			answered := time.Now()
			require.NoError(t, err)
			require.NoError(t, b.Missed)
			require.EqualValues(t, 10, b.Waiting.N)
			const rounding = 2 * time.Millisecond // stamps are whole milliseconds
			require.GreaterOrEqual(t, b.Oldest.D, asked.Sub(latest)-rounding)
			require.LessOrEqual(t, b.Oldest.D, answered.Sub(earliest)+rounding)
			first, n := stored(t, c.AdminTool(t, "printMsg", "-n", c.Addr(), "-t", topic))
			require.Equal(t, 10, n)
			require.WithinRange(t, first, asked.Add(-b.Oldest.D-rounding), answered.Add(-b.Oldest.D+rounding))
		})
	}
}

func TestTheOffsetAtATime(t *testing.T) {
	c := testenv.RocketMQ(t)
	topic, group := c.Topic(t, 1), c.Group(t)
	send, client := sender(t, c, topic), c.Client(t)
	for range 5 {
		send("x")
		time.Sleep(20 * time.Millisecond)
	}
	queues, err := client.Route(t.Context(), topic)
	require.NoError(t, err)
	times, found, err := client.MessageTimes(t.Context(), queues[0], group, 3)
	require.NoError(t, err)
	require.True(t, found)
	at, err := client.OffsetAt(t.Context(), queues[0], times.Stored)
	require.NoError(t, err)
	require.EqualValues(t, 3, at)
	at, err = client.OffsetAt(t.Context(), queues[0], times.Stored.Add(-time.Hour))
	require.NoError(t, err)
	require.Zero(t, at)
	_, found, err = client.MessageTimes(t.Context(), queues[0], group, 5)
	require.NoError(t, err)
	require.False(t, found, "the next message is not written yet")
}

// What the account may not see is unknown, the rest is told.
func TestWhatIsRefusedIsUnknownAndNotZero(t *testing.T) {
	for _, version := range testenv.RocketMQVersions() {
		t.Run(version, func(t *testing.T) {
			c := testenv.RocketMQOf(t, version)
			topic, group := c.Topic(t, 2), c.Group(t)
			sender(t, c, topic)("x")
			client := open(t, remoting.Config{NameServers: []string{c.Addr()}, Account: c.Publisher})
			b, err := client.Backlog(t.Context(), topic, group)
			if version == testenv.RocketMQVersion5 {
				// It guards the offsets too: nothing can be learned.
				require.ErrorIs(t, err, remoting.ErrDenied)
				return
			}
			require.NoError(t, err)
			require.Equal(t, remoting.Figure{N: 1, Known: true}, b.Waiting)
			require.False(t, b.Oldest.Known)
			require.Nil(t, b.Members)
			require.ErrorIs(t, b.Missed, remoting.ErrDenied)
			require.ErrorContains(t, b.Missed, "oldest message of "+group)
		})
	}
}

// Each fault of a real cluster is told from the others, within its bound.
func TestEachFaultHasItsOwnError(t *testing.T) {
	c := testenv.PrivateRocketMQ(t)
	c.MakeTopic(t, "orders", 2)
	c.MakeGroup(t, "GID_orders")
	backlog := func(account remoting.Account, topic string) error {
		t.Helper()
		client := open(t, remoting.Config{NameServers: []string{c.Addr()}, Account: account, CallTimeout: quick})
		started := time.Now()
		_, err := client.Backlog(t.Context(), topic, "GID_orders")
		require.Less(t, time.Since(started), 2*quick+slack)
		return err
	}
	require.NoError(t, backlog(c.Admin, "orders"))
	require.ErrorIs(t, backlog(c.Admin, "absent"), remoting.ErrTopicMissing)

	wrong := remoting.Account{AccessKey: c.Admin.AccessKey, SecretKey: "the wrong secret"}
	for _, account := range []remoting.Account{wrong, {AccessKey: "nobody", SecretKey: "secret"}, {}} {
		err := backlog(account, "orders")
		require.ErrorIs(t, err, remoting.ErrDenied)
		require.NotContains(t, err.Error(), "the wrong secret")
		if account.AccessKey != "" {
			require.NotContains(t, err.Error(), account.AccessKey)
		}
	}

	require.NoError(t, c.Broker.Freeze())
	err := backlog(c.Admin, "orders")
	require.ErrorIs(t, err, remoting.ErrSilent)
	require.ErrorContains(t, err, c.Broker.Addr())
	require.NoError(t, c.Broker.Thaw())

	require.NoError(t, c.NameServer.Freeze())
	err = backlog(c.Admin, "orders")
	require.ErrorIs(t, err, remoting.ErrSilent)
	require.ErrorContains(t, err, "no name server answers")
	require.NoError(t, c.NameServer.Thaw())

	require.NoError(t, c.NameServer.Kill())
	err = backlog(c.Admin, "orders")
	require.ErrorIs(t, err, remoting.ErrUnreachable)
	require.NotErrorIs(t, err, remoting.ErrSilent)
}

func TestProvisioningTwiceChangesNothing(t *testing.T) {
	for _, version := range testenv.RocketMQVersions() {
		t.Run(version, func(t *testing.T) {
			c := testenv.RocketMQOf(t, version)
			client := c.Client(t)
			topic, group := c.Topic(t, 2), c.Group(t)
			sender(t, c, topic)("kept")
			require.NoError(t, client.CreateTopic(t.Context(), topic, 2))
			require.NoError(t, client.CreateGroup(t.Context(), group))
			b, err := client.Backlog(t.Context(), topic, group)
			require.NoError(t, err)
			require.EqualValues(t, 1, b.Waiting.N)

			require.NoError(t, client.CreateTopic(t.Context(), topic, 5), "more queues")
			queues, err := client.Route(t.Context(), topic)
			require.NoError(t, err)
			require.Len(t, queues, 5)
		})
	}
}
