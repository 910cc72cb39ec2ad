package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/testenv"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

// subject is a service as the scenarios of the acceptance list see it: how work comes
// to be, and how it is seen that it was done, and done once.
type subject struct {
	service, flag string
	// env is added to what all services get; prepare, when set, is called before any
	// of them starts.
	env     map[string]string
	prepare func(w *world)
	// overdueBy is the bound of the fallback. announced says that the poll itself
	// writes the events, so that there is no event path without it.
	overdueBy time.Duration
	announced bool
	// statusSQL reads the status of a piece of work, final is that of one that is done,
	// doneSQL counts those.
	statusSQL, final, doneSQL string
	// atMost is how much undone work a load may pile up; patient makes the fallback wait
	// for so long that a slow machine does not pass for a broken event path.
	atMost  int
	patient map[string]string
	// one commits a piece of work that is due; writer makes a function for one of many
	// writers that does so; written is work that its transaction takes back.
	one    func(w *world) string
	writer func(w *world) func(ctx context.Context)
	undone func(w *world) string
	// aggregate is what the events of a piece of work are about.
	aggregate func(id string) string
	// onceEach demands one effect for each, and effects counts them all.
	onceEach func(w *world, ids ...string)
	effects  func(w *world) int
	// disturb makes the world outside refuse for a moment, where there is one.
	disturb func(w *world)
	// fails makes the handler fail, and the poll with it; mends ends that.
	fails, mends func(w *world)
}

func subjects() []subject { return []subject{pushSubject(), couponSubject(), campaignSubject()} }

func pushSubject() subject {
	return subject{
		service: "push-consumer", flag: "push-dispatch", overdueBy: overdueBy,
		statusSQL: "SELECT status FROM push_messages WHERE id = ?", final: "SENT",
		doneSQL: "SELECT COUNT(*) FROM push_messages WHERE status = 'SENT'", atMost: 50,
		patient: map[string]string{"SEAHUB_PUSH_OVERDUE_BY": patience.String()},
		one:     func(w *world) string { return w.push(w.user(1), 0) },
		writer: func(w *world) func(context.Context) {
			user := w.user(1)
			return func(ctx context.Context) { w.pushThrough(ctx, user) }
		},
		undone: func(w *world) string {
			tx := w.gorm.Begin()
			require.NoError(w.t, w.writePush(tx, "rolled-back", w.user(1), 0))
			require.NoError(w.t, tx.Rollback().Error)
			return "rolled-back"
		},
		aggregate: func(id string) string { return id },
		onceEach:  func(w *world, ids ...string) { w.onceEach(ids...) },
		effects:   func(w *world) int { return len(w.FCM.Requests()) },
		disturb: func(w *world) {
			w.FCM.Behave(fcmfake.Behaviour{Kind: fcmfake.Quota, RetryAfter: time.Second, For: 500 * time.Millisecond})
		},
		fails: func(w *world) { w.exec("RENAME TABLE mq_push_attempts TO mq_push_attempts_gone") },
		mends: func(w *world) { w.exec("RENAME TABLE mq_push_attempts_gone TO mq_push_attempts") },
	}
}

// patience is how long a row may be overdue where no fallback is to be seen.
const patience = 20 * time.Second

// couponOverdue is longer than a push's: the scan has to come by before the event does.
const couponOverdue = 10 * pollEvery

func couponSubject() subject {
	return subject{
		service: "coupon-consumer", flag: "coupon-expire", overdueBy: couponOverdue, announced: true,
		statusSQL: "SELECT status FROM user_coupons WHERE id = ?", final: "EXPIRED",
		doneSQL: "SELECT COUNT(*) FROM user_coupons WHERE status = 'EXPIRED'", atMost: 50,
		patient: map[string]string{"SEAHUB_COUPON_OVERDUE_SCANS": fmt.Sprint(int(patience / pollEvery))},
		env: map[string]string{
			"SEAHUB_COUPON_EXPIRE_SCAN_DELAY_MS": fmt.Sprint(pollEvery.Milliseconds()),
			"SEAHUB_COUPON_OVERDUE_SCANS":        fmt.Sprint(int(couponOverdue / pollEvery)),
			"SEAHUB_COUPON_SCAN_LEASE":           "2s",
		},
		// The database keeps the book of what was expired.
		prepare: func(w *world) {
			w.exec("CREATE TABLE expirations (n BIGINT AUTO_INCREMENT PRIMARY KEY, id VARCHAR(64) NOT NULL, early INT NOT NULL)")
			w.exec(`CREATE TRIGGER book AFTER UPDATE ON user_coupons FOR EACH ROW BEGIN
				IF NEW.status = 'EXPIRED' AND OLD.status <> 'EXPIRED' THEN
					INSERT INTO expirations (id, early) VALUES (NEW.id, OLD.expires_at > NOW(3)); END IF; END`)
		},
		one: func(w *world) string {
			id, err := w.writeCoupon(w.t.Context())
			require.NoError(w.t, err)
			return id
		},
		writer: func(w *world) func(context.Context) {
			return func(ctx context.Context) {
				if _, err := w.writeCoupon(ctx); err != nil {
					w.t.Errorf("commit a coupon: %v", err)
				}
			}
		},
		undone: func(w *world) string {
			tx := w.gorm.Begin()
			require.NoError(w.t, tx.Exec(insertCoupon, "rolled-back", "rolled-back").Error)
			require.NoError(w.t, tx.Rollback().Error)
			return "rolled-back"
		},
		aggregate: func(id string) string { return id },
		onceEach: func(w *world, ids ...string) {
			for _, id := range ids {
				require.Equal(w.t, 1, w.count("SELECT COUNT(*) FROM expirations WHERE id = ? AND early = 0", id), "coupon %s", id)
			}
			require.Zero(w.t, w.count("SELECT COUNT(*) FROM expirations WHERE early = 1"))
		},
		effects: func(w *world) int { return w.count("SELECT COUNT(*) FROM expirations") },
		disturb: func(*world) {},
		fails: func(w *world) {
			w.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON user_coupons FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by the test'`)
		},
		mends: func(w *world) { w.exec("DROP TRIGGER refuse") },
	}
}

const insertCoupon = `INSERT INTO user_coupons (id, user_id, coupon_id, status, expires_at, created_at, updated_at)
	VALUES (?, CONCAT('u-', ?), 'c1', 'ISSUED', NOW(3), NOW(3) - INTERVAL 30 DAY, NOW(3))`

// writeCoupon commits a coupon whose time has just come, weeks after it was issued.
func (w *world) writeCoupon(ctx context.Context) (string, error) {
	id := fmt.Sprintf("uc%d", w.ids.Add(1))
	for {
		err := w.gorm.WithContext(ctx).Exec(insertCoupon, id, id).Error
		if err == nil || db.IsDuplicate(err) {
			w.remember(id)
			return id, nil
		}
		if !db.IsUnavailable(err) || ctx.Err() != nil {
			return "", err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// some commits n pieces of work.
func (w *world) some(n int) []string {
	w.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = w.sub.one(w)
	}
	return ids
}

// statusOf reads a piece of work, "" while nothing is known of it.
func (w *world) statusOf(id string) string {
	w.t.Helper()
	var s string
	err := w.DB.QueryRowContext(w.t.Context(), w.sub.statusSQL, id).Scan(&s)
	if !errors.Is(err, sql.ErrNoRows) {
		require.NoError(w.t, err)
	}
	return s
}

// events counts the events of a piece of work.
func (w *world) events(id string) int {
	w.t.Helper()
	return w.count("SELECT COUNT(*) FROM outbox_event WHERE aggregate_id = ?", w.sub.aggregate(id))
}

// awaitDone waits until all of it is done.
func (w *world) awaitDone(bound time.Duration, ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		testenv.Eventually(w.t, bound, w.sub.service+": "+id+" is "+w.sub.final, func() bool { return w.statusOf(id) == w.sub.final })
	}
}

// eventPath starts what it takes to work by events alone.
func (w *world) eventPath() {
	w.t.Helper()
	w.consumer("consume-1", "consume")
	if w.sub.announced {
		w.consumer("poll-1", "poll")
	}
}
