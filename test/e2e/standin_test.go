package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
)

// javaApp stands in for the Java application: its relay, its poll and its consumer, with
// the SQL and the broker commands that it speaks. It knows its own ten columns of
// outbox_event, whole seconds, and the server's default isolation level; its messages
// have tag, key and body, nothing more.
type javaApp struct {
	w     *world
	db    *sql.DB
	redis *redis.Client
	// unlocked makes its relay read without row locks, as one does that trusts in its
	// distributed lock alone.
	unlocked bool
	// crash, when set, ends one pass of the relay between publishing and COMMIT.
	crash atomic.Bool

	published, deadlocks atomic.Int64

	mu   sync.Mutex
	sent map[string]int // by push id: what its poll or consumer sent
}

func newJavaApp(w *world) *javaApp {
	w.t.Helper()
	pool, err := sql.Open("mysql", w.DSN)
	require.NoError(w.t, err)
	c := redis.NewClient(&redis.Options{Addr: w.Redis.Addr()})
	w.t.Cleanup(func() { _ = pool.Close(); _ = c.Close() })
	return &javaApp{w: w, db: pool, redis: c, sent: map[string]int{}}
}

// start runs one of its scheduled methods until stop.
func (j *javaApp) start(every time.Duration, method func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(j.w.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := method(context.WithoutCancel(ctx)); err != nil && ctx.Err() == nil {
				if !db.IsRetryable(err) {
					j.w.t.Errorf("the app's own job: %v", err)
					return
				}
				j.deadlocks.Add(1)
			}
			select {
			case <-ctx.Done():
			case <-time.After(every):
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// relayOnce is OutboxRelayService: select PENDING rows, publish each, mark it.
func (j *javaApp) relayOnce(ctx context.Context) error {
	tx, err := j.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	query := "SELECT id, event_id, event_type, payload_json FROM outbox_event WHERE status = 'PENDING' ORDER BY created_at LIMIT 20"
	if !j.unlocked {
		query += " FOR UPDATE SKIP LOCKED"
	}
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	var claimed [][4]string
	for rows.Next() {
		var r [4]string
		if err := rows.Scan(&r[0], &r[1], &r[2], &r[3]); err != nil {
			return err
		}
		claimed = append(claimed, r)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, r := range claimed {
		if err := j.redis.XAdd(ctx, &redis.XAddArgs{Stream: streamKey, Values: []string{"tag", r[2], "key", r[1], "body", r[3]}}).Err(); err != nil {
			return err
		}
		j.published.Add(1)
		if _, err := tx.ExecContext(ctx, "UPDATE outbox_event SET status = 'PUBLISHED', published_at = NOW() WHERE id = ?", r[0]); err != nil {
			return err
		}
	}
	if len(claimed) > 0 && j.crash.CompareAndSwap(true, false) {
		return nil // the rollback leaves the rows PENDING, and the messages are out
	}
	return tx.Commit()
}

// pollOnce is PushDispatcherService.dispatchDueMessages: read due rows, lease each, send.
func (j *javaApp) pollOnce(ctx context.Context) error {
	rows, err := j.db.QueryContext(ctx, "SELECT id FROM push_messages WHERE status = 'PENDING' AND due_at <= NOW(3) ORDER BY due_at LIMIT 50")
	if err != nil {
		return err
	}
	var due []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		due = append(due, id)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, id := range due {
		if err := j.dispatch(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// dispatch is what its poll and its consumer share: leaseMessageIfDue, send, finish.
func (j *javaApp) dispatch(ctx context.Context, id string) error {
	owner := fmt.Sprintf("java-%s-%d", id, time.Now().UnixNano())
	res, err := j.db.ExecContext(ctx, `UPDATE push_messages SET status = 'SENDING', lease_owner = ?, lease_until = NOW(3) + INTERVAL 30 SECOND,
		attempt = attempt + 1, updated_at = NOW(3) WHERE id = ? AND due_at <= NOW(3)
		AND (status = 'PENDING' OR (status = 'SENDING' AND lease_until < NOW(3)))`, owner, id)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err
	}
	j.mu.Lock()
	j.sent[id]++
	j.mu.Unlock()
	_, err = j.db.ExecContext(ctx, "UPDATE push_messages SET status = 'SENT', sent_at = NOW(3), updated_at = NOW(3) WHERE id = ? AND lease_owner = ?", id, owner)
	return err
}

func (j *javaApp) sentTo(id string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sent[id]
}

func (j *javaApp) total() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, times := range j.sent {
		n += times
	}
	return n
}

const pushGroup = "GID_id_push_dispatch"

// consumeOnce is its PushEventConsumer, in the very group that ours will use. dies makes
// it go without acknowledging what it read.
func (j *javaApp) consumeOnce(ctx context.Context, dies bool) error {
	err := j.redis.XGroupCreateMkStream(ctx, streamKey, pushGroup, "0").Err()
	if err != nil && !strings.HasPrefix(err.Error(), "BUSYGROUP") {
		return err
	}
	read, err := j.redis.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: pushGroup, Consumer: "java-1", Streams: []string{streamKey, ">"}, Count: 10, Block: 100 * time.Millisecond,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil || dies {
		return err
	}
	for _, m := range read[0].Messages {
		key, _ := m.Values["key"].(string)
		if err := j.dispatch(ctx, strings.TrimPrefix(key, "push:")); err != nil {
			return err
		}
		if err := j.redis.XAck(ctx, streamKey, pushGroup, m.ID).Err(); err != nil {
			return err
		}
	}
	return nil
}
