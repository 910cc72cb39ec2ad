package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/lease"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// childEnv holds the childSpec of a relay process: this test binary, run again.
const childEnv = "SEAHUB_OUTBOX_TEST_CHILD"

// childSpec says how a relay process works and where it is to stand still.
type childSpec struct {
	Name     string
	DB       db.Config
	RelayDSN string // of the relay's own pool, where it differs
	Relay    outbox.Config
	Redis    string
	Stream   string
	NoLease  bool
	NoLocks  bool
	// StallAt is the batch, counted from 1, of which half is sent before the process
	// reports "stalled" and waits for "go"; then it sends the rest, deadline or not.
	StallAt int
}

// runChild is main of a relay process.
func runChild(encoded string) int {
	var spec childSpec
	if err := json.Unmarshal([]byte(encoded), &spec); err != nil {
		fmt.Fprintln(os.Stderr, "spec:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := relayFor(zerolog.New(os.Stdout).With().Timestamp().Logger().WithContext(ctx), spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func relayFor(ctx context.Context, spec childSpec) error {
	main, err := db.OpenSQL(spec.DB)
	if err != nil {
		return err
	}
	defer func() { _ = main.Close() }()
	own := spec.DB
	if spec.RelayDSN != "" {
		own.DSN = spec.RelayDSN
	}
	pool, err := outbox.OpenPool(own, spec.Relay)
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	p := newStreamPublisher(spec)
	defer func() { _ = p.client.Close() }()
	r, err := outbox.NewRelay(spec.Relay, outbox.Deps{Pool: pool, Leases: lease.New(main), Publisher: p})
	if err != nil {
		return err
	}
	if spec.NoLease {
		outbox.WithoutLease(r)
	}
	if spec.NoLocks {
		outbox.WithoutRowLocks(r)
	}
	return r.Run(ctx)
}

// streamPublisher sends to a Redis stream. It is the test's own, so that it can stand
// still at a step.
type streamPublisher struct {
	spec    childSpec
	client  *redis.Client
	batches int
}

func newStreamPublisher(spec childSpec) *streamPublisher {
	redis.SetLogger(silent{}) // the relay's own lines are what is counted
	return &streamPublisher{spec: spec, client: redis.NewClient(&redis.Options{
		Addr: spec.Redis, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
	})}
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func (p *streamPublisher) PublishBatch(ctx context.Context, recs []outbox.Record) []outbox.Outcome {
	p.batches++
	if p.batches != p.spec.StallAt {
		return p.send(ctx, recs)
	}
	half := len(recs) / 2
	outs := p.send(ctx, recs[:half])
	background := context.Background()
	p.client.Set(background, p.spec.Stream+":stalled", len(recs), 0)
	for p.client.Exists(background, p.spec.Stream+":go").Val() == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	return append(outs, p.send(background, recs[half:])...)
}

func (p *streamPublisher) send(ctx context.Context, recs []outbox.Record) []outbox.Outcome {
	pipe := p.client.Pipeline()
	cmds := make([]*redis.StringCmd, len(recs))
	for i, r := range recs {
		cmds[i] = pipe.XAdd(ctx, &redis.XAddArgs{Stream: p.spec.Stream, Values: []any{"event_id", r.EventID, "by", p.spec.Name}})
	}
	_, _ = pipe.Exec(ctx)
	outs := make([]outbox.Outcome, len(recs))
	for i, c := range cmds {
		outs[i].Err = c.Err()
		var refused redis.Error
		switch {
		case c.Err() == nil:
			outs[i].Class = outbox.Confirmed
		case redis.HasErrorPrefix(c.Err(), "LOADING"): // it has only just been started
		case errors.As(c.Err(), &refused):
			outs[i].Class = outbox.Failed
		}
	}
	return outs
}

// startChild starts a relay process; it ends with the test.
func startChild(t testing.TB, spec childSpec) *testenv.Child {
	t.Helper()
	encoded, err := json.Marshal(spec)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	child, err := testenv.StartChild(testenv.ChildSpec{
		Path: self, Env: []string{childEnv + "=" + string(encoded)}, Dir: t.TempDir(),
		Log: logFile(t, spec.Name),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s ended with:\n%s", spec.Name, child.LogTail())
		}
		_ = child.Kill()
	})
	return child
}

// logFile is where startChild puts a child's output, in the test's own folder.
func logFile(t testing.TB, name string) string {
	return filepath.Join(t.ArtifactDir(), name+".log")
}

// stream is what the test reads of the broker.
type stream struct {
	client *redis.Client
	key    string
}

// sent counts the entries per event_id, and per sender.
func (s stream) sent(t testing.TB) (perEvent, perSender map[string]int) {
	t.Helper()
	entries, err := s.client.XRange(context.Background(), s.key, "-", "+").Result()
	require.NoError(t, err)
	perEvent, perSender = map[string]int{}, map[string]int{}
	for _, e := range entries {
		perEvent[e.Values["event_id"].(string)]++
		perSender[e.Values["by"].(string)]++
	}
	return perEvent, perSender
}

// duplicates is the number of entries beyond the first of each event.
func duplicates(perEvent map[string]int) int {
	n := 0
	for _, c := range perEvent {
		n += c - 1
	}
	return n
}

func (s stream) stalled(t testing.TB) (batch int) {
	t.Helper()
	testenv.Eventually(t, soon, "the relay stands in mid-batch", func() bool {
		n, err := s.client.Get(context.Background(), s.key+":stalled").Int()
		batch = n
		return err == nil
	})
	return batch
}

func (s stream) goOn(t testing.TB) {
	t.Helper()
	require.NoError(t, s.client.Set(context.Background(), s.key+":go", 1, 0).Err())
}
