package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/budget"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/feishufake"
)

// quick is a budget that does not slow a test down.
func quick() budget.Spec {
	return budget.Spec{Name: "feishu:id", Start: 200, Least: 1, Most: 200, Recover: 100, Burst: 50}
}

// queue puts a message of each severity given into the queue, in this order.
func (b *bench) queue(t *testing.T, route string, severities ...string) {
	t.Helper()
	err := db.InTx(t.Context(), b.store.sweep, func(tx *gorm.DB) error {
		for i, severity := range severities {
			m := sample(1)
			m.Severity, m.Rule = severity, fmt.Sprintf("Rule%d", i)
			if err := enqueue(tx, route, m); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
}

func (b *bench) waiting(t *testing.T) int {
	t.Helper()
	return b.number(t, "SELECT COUNT(*) FROM mq_alert_message WHERE status = 'QUEUED'")
}

// Feishu answers in every odd way that there is; nothing is lost, the oldest critical one
// goes first, and what is refused for good does not block the others.
func TestOddAnswersLoseNothing(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	fake := startFeishu(t, feishufake.Options{Secret: "s", PerSecond: 1000, PerMinute: 1000})
	f := newFeishu(fake.Hook(), fake.Secret(), time.Second)
	t.Cleanup(f.close)
	b.queue(t, routeFeishu, severityInfo, severityWarning, severityCritical, severityWarning, severityCritical)
	fake.Behave(
		feishufake.Behaviour{Kind: feishufake.Limited, Times: 1}, feishufake.Behaviour{Kind: feishufake.Throttled, Times: 1},
		feishufake.Behaviour{Kind: feishufake.BadSign, Times: 1}, feishufake.Behaviour{Kind: feishufake.HTML, Times: 1},
		feishufake.Behaviour{Kind: feishufake.Nothing, Times: 1}, feishufake.Behaviour{Kind: feishufake.Empty, Times: 1},
		feishufake.Behaviour{Kind: feishufake.Internal, Times: 1}, feishufake.Behaviour{Kind: feishufake.Odd, Times: 1},
		feishufake.Behaviour{Kind: feishufake.TooLarge, Times: 1}, feishufake.Behaviour{Kind: feishufake.OK, Times: 2},
		feishufake.Behaviour{Kind: feishufake.BadBody, Times: 2}, feishufake.Behaviour{Kind: feishufake.OK},
	)
	b.relayAlive(t, 0)
	b.startSender(t, routeFeishu, f.send, quick())
	testenv.Eventually(t, time.Minute, "the queue is empty", func() bool { return b.waiting(t) == 0 })
	var order []string
	for _, m := range fake.Shown() {
		title := m.Title
		if title == "" { // a text: its first line
			title, _, _ = strings.Cut(m.Text, "\n")
		}
		order = append(order, title)
	}
	require.Equal(t, []string{"[critical][id] Rule2", "[critical][id] Rule4", "[warning][id] Rule3", "[info][id] Rule0"}, order)
	require.Equal(t, "Rule1", b.text(t, "SELECT rule FROM mq_alert_message WHERE status = 'REFUSED'"), "refused as a card and as text")
	require.Equal(t, 9, b.number(t, "SELECT attempts FROM mq_alert_message WHERE rule = 'Rule2'"), "the card that was too large went as text at once")
	b.sweepNow(t)
	require.Contains(t, b.messages(t), "firing FeishuRefused QUEUED")
	require.Equal(t, routeSecond, b.text(t, "SELECT route FROM mq_alert_message WHERE rule = 'FeishuRefused'"))
}

// A card that meets a code which nobody knows, again and again, goes as text in the end:
// it must not hold up what waits behind it.
func TestAnUnknownCodeDoesNotBlockForEver(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	fake := startFeishu(t, feishufake.Options{PerSecond: 1000, PerMinute: 1000})
	f := newFeishu(fake.Hook(), "", time.Second)
	t.Cleanup(f.close)
	fake.Behave(feishufake.Behaviour{Kind: feishufake.Odd, Times: oddEnough})
	b.queue(t, routeFeishu, severityCritical, severityWarning)
	b.startSender(t, routeFeishu, f.send, quick())
	testenv.Eventually(t, 30*time.Second, "the queue is empty", func() bool { return b.waiting(t) == 0 })
	shown := fake.Shown()
	require.Len(t, shown, 2)
	require.Equal(t, []string{"text", "interactive"}, []string{shown[0].Type, shown[1].Type})
}

// While Feishu is away alerts wait, the second route is told, and all arrive later.
func TestTheSecondRouteIsTold(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t), func(c *Config) { c.Thresholds.AlertsWaiting = 0 })
	fake := startFeishu(t, feishufake.Options{})
	fake.Behave(feishufake.Behaviour{Kind: feishufake.Internal})
	f, w := newFeishu(fake.Hook(), "", time.Second), newWebhook(fake.Plain(), time.Second)
	t.Cleanup(f.close)
	t.Cleanup(w.close)
	b.relayAlive(t, 0)
	b.queue(t, routeFeishu, severityCritical, severityWarning)
	b.startSender(t, routeFeishu, f.send, quick())
	spec := quick()
	spec.Name = "second"
	b.startSender(t, routeSecond, w.send, spec)
	time.Sleep(10 * time.Millisecond) // so that the messages have an age
	b.sweepNow(t)
	told := func() int {
		n := 0
		for _, m := range fake.Messages() {
			if m.Plain {
				n++
				require.Contains(t, m.Text, "FeishuFailing")
			}
		}
		return n
	}
	testenv.Eventually(t, 20*time.Second, "the second route is told", func() bool { return told() == 1 })
	require.Equal(t, 2, b.number(t, "SELECT COUNT(*) FROM mq_alert_message WHERE route = 'feishu' AND status = 'QUEUED'"))
	fake.Behave()
	testenv.Eventually(t, 30*time.Second, "all arrive", func() bool { return len(fake.Shown()) == 2 })
	testenv.Eventually(t, 20*time.Second, "its end is told", func() bool { b.sweepNow(t); return told() == 2 })
}

// A message that was taken while the answer got lost, or whose sender died before it
// could mark it, comes again under the same fingerprint and episode: at least once.
func TestTakenButUnansweredComesAgain(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	fake := startFeishu(t, feishufake.Options{})
	f := newFeishu(fake.Hook(), "", time.Second)
	t.Cleanup(f.close)
	fake.Behave(feishufake.Behaviour{Kind: feishufake.TakenThenNothing, Times: 1})
	b.queue(t, routeFeishu, severityCritical)
	b.startSender(t, routeFeishu, f.send, quick())
	testenv.Eventually(t, 20*time.Second, "it is sent", func() bool { return b.waiting(t) == 0 })
	shown := fake.Shown(fmt.Sprintf("%032d, episode 1", 0))
	require.Len(t, shown, 2)
}

// Three replicas keep the limits together, with the budget that production has.
func TestLimitsAreShared(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	fake := startFeishu(t, feishufake.Options{})
	f := newFeishu(fake.Hook(), "", time.Second)
	t.Cleanup(f.close)
	severities := make([]string, 15)
	for i := range severities {
		severities[i] = severityWarning
	}
	b.queue(t, routeFeishu, severities...)
	began := time.Now()
	stops := []func(){}
	for range 3 {
		stops = append(stops, b.startSender(t, routeFeishu, f.send, feishuBudget("feishu:id")))
	}
	testenv.Eventually(t, 20*time.Second, "some are sent", func() bool { return len(fake.Shown()) >= 5 })
	stops[0]() // perhaps the one that sends
	testenv.Eventually(t, time.Minute, "all are sent", func() bool { return b.waiting(t) == 0 })
	require.Len(t, fake.Messages(), 15, "none was refused, none went twice")
	require.Greater(t, time.Since(began), 8*time.Second, "(15 - 3) / 1.4 a second")
	// The budget is one row for whoever sends, past any lease.
	one, err := budget.New(b.store.pool, feishuBudget("feishu:id"))
	require.NoError(t, err)
	other, err := budget.New(b.pool, feishuBudget("feishu:id"))
	require.NoError(t, err)
	granted := 0
	for range 10 {
		for _, bu := range []*budget.Budget{one, other} {
			if _, err := bu.Take(context.Background(), 1, 0); err == nil {
				granted++
			}
		}
	}
	require.LessOrEqual(t, granted, feishuBurst+1)
}

func TestOffMark(t *testing.T) {
	at := func(s float64) time.Time {
		return time.Unix(1_700_000_040, 0).Add(time.Duration(s * float64(time.Second)))
	} // a full minute
	require.Zero(t, at(0).Second())
	for s, want := range map[float64]time.Duration{
		0: 4 * time.Second, 2.5: 1500 * time.Millisecond, 3: 0, 15: 0, 28.9: 0, 29.5: 4500 * time.Millisecond, 30: 4 * time.Second, 33: 0, 59.5: 4500 * time.Millisecond,
	} {
		require.Equal(t, want, offMark(at(s), time.Second), "%v s", s)
	}
}

// Without an address messages go to the log and do not pile up.
func TestWithoutAnAddress(t *testing.T) {
	b := newBench(t, testenv.MariaDB(t))
	b.queue(t, routeFeishu, severityCritical)
	b.startSender(t, routeFeishu, nil, quick())
	testenv.Eventually(t, 20*time.Second, "it is logged", func() bool {
		return b.number(t, "SELECT COUNT(*) FROM mq_alert_message WHERE status = 'LOGGED'") == 1
	})
}
