package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/rmqfake"
)

// saidWithin is how soon after its start a service says what is wrong with its broker.
const saidWithin = 10 * time.Second

// saysAndPolls demands that the service names what is wrong, and that its poll delivers
// a push all the same.
func (w *world) saysAndPolls(name string, service *stack.Service, want ...string) {
	w.t.Helper()
	began := time.Now()
	testenv.Eventually(w.t, saidWithin, name+": the readiness names it", func() bool {
		_, body, err := service.Get(w.t.Context(), "/readyz")
		for _, part := range want {
			if err != nil || !strings.Contains(body, part) {
				return false
			}
		}
		return true
	})
	w.t.Logf("%s: named after %s", name, time.Since(began).Round(time.Millisecond))
	id := w.push(w.user(1), 0)
	w.awaitSent(overdueBy+soon, id)
	require.Len(w.t, w.FCM.Accepted(id), 1)
	status, body, err := service.Get(w.t.Context(), "/livez")
	require.NoError(w.t, err)
	require.Equal(w.t, 200, status, body)
}

// Every wrong setting of a consumer is named in its readiness, and its poll goes on.
// What a real broker answers is tested beside the driver; here a fake says the same.
func TestAConsumerThatCannotConsumeSaysWhyAndPolls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.flagSince()
	topic := eventbus.Topic("id")
	without, err := rmqfake.Start(rmqfake.Options{Topics: map[string]int{"another": 1}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, without.Close()) })
	const (
		wrongKey  = "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=x"
		forbidden = "org.apache.rocketmq.acl.common.AclException: No default permission for " + "beex-id-events"
	)
	for _, wrong := range []struct {
		name     string
		env      []string
		behave   rmqfake.Behaviour // of the look at the group
		noTopic  bool
		nobody   bool
		readyzAs []string
	}{
		{name: "name server", nobody: true, readyzAs: []string{"SEAHUB_ROCKETMQ_NAME_SERVERS", "127.0.0.1:1"}},
		{name: "topic", noTopic: true, readyzAs: []string{topic, "does not exist"}},
		{name: "group", behave: rmqfake.Behaviour{Code: 26, Remark: "subscription group not exist"}, readyzAs: []string{eventbus.Group("id", "push_dispatch"), "does not exist"}},
		{name: "key", behave: rmqfake.Behaviour{Code: rmqfake.CodeError, Remark: wrongKey}, readyzAs: []string{"SEAHUB_ROCKETMQ_SECRET_KEY"}},
		{name: "permission", behave: rmqfake.Behaviour{Code: rmqfake.CodeError, Remark: forbidden}, readyzAs: []string{"no permission", topic}},
		{name: "namespace", env: []string{"SEAHUB_ROCKETMQ_NAMESPACE", "MQ_INST_other"}, readyzAs: []string{"wrong namespace", "MQ_INST_other"}},
	} {
		fake := startFake(t)
		fake.Behave(rmqfake.Pull, wrong.behave)
		server := fake.Addr()
		if wrong.noTopic {
			server = without.Addr()
		}
		if wrong.nobody {
			server = "127.0.0.1:1"
		}
		consumer := w.consumer("wrong-"+strings.ReplaceAll(wrong.name, " ", "-"), "all", append([]string{
			"SEAHUB_MQ_PROVIDER", "rocketmq", "SEAHUB_ROCKETMQ_NAME_SERVERS", server, "SEAHUB_ROCKETMQ_CALL_TIMEOUT", "1s",
		}, wrong.env...)...)
		w.saysAndPolls(wrong.name, consumer, wrong.readyzAs...)
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		require.NoError(t, consumer.Stop(ctx))
		cancel()
	}
}

// wantOthers joins push-consumer's group with a subscription of its own, as a program of
// another version would.
func (w *world) wantOthers() (leave func()) {
	w.t.Helper()
	var cfg provider.Config
	cfg.Provider = provider.RocketMQ
	cfg.RocketMQ.NameServers = []string{w.RocketMQ.Addr()}
	cfg.RocketMQ.AccessKey, cfg.RocketMQ.SecretKey = w.RocketMQ.Admin.AccessKey, w.RocketMQ.Admin.SecretKey
	bus, err := provider.Open(cfg, w.Env["SEAHUB_ENV"], "id", zerolog.Nop(), eventbus.WithDeadLetters(outbox.NewDeadLetterStore(w.DB)))
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	group := eventbus.Group("id", "push_dispatch")
	ended := make(chan error, 1)
	go func() {
		ended <- bus.Subscribe(ctx, eventbus.Subscription{Topic: eventbus.Topic("id"), Group: group, Tags: []string{string(event.OpsCounter)}},
			eventbus.HandlerFunc(func(context.Context, eventbus.Delivery) eventbus.Outcome { return eventbus.Done() }))
	}()
	testenv.Eventually(w.t, 3*soon, "the other program is a member", func() bool { return bus.State(group).Connected })
	return func() {
		cancel()
		require.NoError(w.t, <-ended)
		require.NoError(w.t, bus.Close(context.Background()))
	}
}
