package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/lease"
)

// trust tells how long a relay may go on believing that it is the one that works.
type trust interface {
	ValidFor(d time.Duration) bool
}

// errLate: the pass ran out of its time before it could send; nothing happened.
var errLate = errors.New("pass is past its deadline, nothing was sent")

// place is a row's place in the order of claims.
type place struct {
	at time.Time
	id string
}

func (p place) before(q place) bool {
	return p.at.Before(q.at) || p.at.Equal(q.at) && p.id < q.id
}

// passResult is what the loop needs to know of a pass.
type passResult struct {
	claimed   int
	more      bool
	confirmed int
	// trouble is Confirmed, or the class of an outage that left rows untouched.
	trouble Class
	err     error
	oldest  time.Duration
	// oldestNew is the age of the oldest event that no attempt was made for before.
	oldestNew time.Duration
	// first and last are the created_at of the first and the last claimed row.
	first, last time.Time
	lastID      string
}

// batch is claimed rows and the transaction that holds their locks.
type batch struct {
	ctx      context.Context
	cancel   context.CancelFunc
	tx       *sql.Tx
	deadline time.Time
	recs     []Record
	// more: there may be further rows behind these.
	more bool
}

// release gives back what was not committed.
func (b *batch) release() {
	_ = b.tx.Rollback() // after a commit it does nothing
	b.cancel()
}

// span says where the batch lies.
func (b *batch) span() passResult {
	last := b.recs[len(b.recs)-1]
	return passResult{
		claimed: len(b.recs), more: b.more,
		first: b.recs[0].CreatedAt, last: last.CreatedAt, lastID: last.ID,
	}
}

// pass claims, publishes, marks and commits one batch. An error means that the
// database failed: nothing was marked, or (if COMMIT failed) it is not known.
func (w *worker) pass(ctx context.Context, where scope, limit int) (passResult, error) {
	b, err := w.claim(ctx, where, w.size.limit(limit))
	if err != nil || b == nil {
		return passResult{trouble: Confirmed}, err
	}
	return w.finish(b)
}

// claim begins a pass: it locks and reads rows. It returns nil if there are none.
func (w *worker) claim(ctx context.Context, where scope, limit int) (*batch, error) {
	b := &batch{deadline: time.Now().Add(w.cfg.PassTimeout)}
	b.ctx, b.cancel = passContext(ctx, b.deadline)
	var err error
	if b.tx, err = w.store.db.BeginTx(b.ctx, nil); err != nil {
		b.cancel()
		return nil, fmt.Errorf("begin a pass: %w", err)
	}
	b.recs, b.more, err = w.store.claim(b.ctx, b.tx, where, limit, w.cfg.BatchBytes)
	if err != nil || len(b.recs) == 0 {
		b.release()
		return nil, err
	}
	return b, nil
}

// finish publishes, marks and commits a batch.
func (w *worker) finish(b *batch) (passResult, error) {
	outs, err := w.send(b)
	if err != nil {
		return passResult{}, err
	}
	m, err := w.mark(b, outs)
	if err != nil {
		return m.res, err
	}
	return m.res, w.committed(m, m.commit())
}

// send publishes a batch. With an error nothing was sent, and the batch is released.
func (w *worker) send(b *batch) ([]Outcome, error) {
	w.size.learn(b.recs)
	if w.unproven {
		if err := w.store.proveWritable(b.ctx, b.tx, b.recs[0].ID); err != nil {
			b.release()
			return nil, err
		}
	}
	// The process may have been frozen since the claim: its rows and its lease may be
	// another's by now. Nothing between this check and the send takes time.
	if time.Until(b.deadline) <= 0 || !w.trust.ValidFor(0) {
		b.release()
		return nil, errLate
	}
	return w.publish(b.ctx, b.recs), nil
}

// passContext ends at deadline or when the lease is lost. A stop of the process does
// not end it: a batch that is under way is finished, so that it needs no repeat.
func passContext(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	passCtx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), lease.ErrLost) {
			cancel()
		}
	})
	return passCtx, func() { stop(); cancel() }
}

func (w *worker) publish(ctx context.Context, recs []Record) []Outcome {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.PublishTimeout)
	defer cancel()
	began := time.Now()
	outs := publishSafely(ctx, w.publisher, recs)
	took := time.Since(began)
	w.metrics.publishSeconds.Observe(took.Seconds())
	w.size.published(len(recs), took, w.cfg.PublishTimeout)
	return outs
}

// marked is a batch whose marks are written and not committed yet.
type marked struct {
	b    *batch
	v    verdict
	lost int
	res  passResult
}

// mark writes the verdict; a commit is to follow. With an error the batch is released.
func (w *worker) mark(b *batch, outs []Outcome) (marked, error) {
	recs := b.recs
	v := judge(recs, outs, failurePolicy{
		alive:       time.Since(w.lastConfirm) <= aliveFor,
		isolated:    w.suspect.isolated(len(recs)),
		maxAttempts: w.cfg.MaxAttempts,
		retry:       backoff.Policy{Base: w.cfg.RetryMin, Max: w.cfg.RetryMax},
	})
	res := b.span()
	res.confirmed, res.trouble, res.err = len(v.confirmed), v.trouble, v.err
	res.oldest, res.oldestNew = oldest(recs)
	if len(v.confirmed) > 0 {
		w.lastConfirm = time.Now()
	}
	m := marked{b: b, v: v, res: res}
	var err error
	if m.writes() {
		m.lost, err = w.write(b.ctx, b.tx, v)
	}
	if err != nil {
		w.unproven = true
		b.release()
	}
	return m, err
}

func (m marked) writes() bool { return m.v.untouched < len(m.b.recs) }

// commit ends the transaction, and may run beside whatever the worker does. If there is
// nothing to write the rollback frees the rows.
func (m marked) commit() error {
	defer m.b.release()
	if !m.writes() {
		return nil
	}
	if err := m.b.tx.Commit(); err != nil {
		return fmt.Errorf("commit %d marked rows (they may be sent again): %w", len(m.b.recs)-m.v.untouched, err)
	}
	return nil
}

// committed keeps the books on a commit that came to err, which it returns.
func (w *worker) committed(m marked, err error) error {
	if m.writes() {
		w.unproven = err != nil
		if err == nil {
			w.account(m.b.ctx, m.b.recs, m.v, m.lost)
		}
	}
	return err
}

// write runs the marking statements. A row that was no longer PENDING is counted as
// lost, and the others are marked all the same: they were confirmed.
func (w *worker) write(ctx context.Context, tx *sql.Tx, v verdict) (lost int, err error) {
	lost, err = w.store.markPublished(ctx, tx, v.confirmed)
	if err != nil {
		return lost, err
	}
	each := func(fs []failure, mark func(f failure) (int, error)) error {
		for _, f := range fs {
			n, err := mark(f)
			if err != nil {
				return err
			}
			lost += n
		}
		return nil
	}
	if err := each(v.refused, func(f failure) (int, error) { return w.store.markFailed(ctx, tx, "refused", f) }); err != nil {
		return lost, err
	}
	if err := each(v.exhausted, func(f failure) (int, error) { return w.store.markFailed(ctx, tx, "attempts used up", f) }); err != nil {
		return lost, err
	}
	return lost, each(v.retried, func(f failure) (int, error) { return w.store.markRetry(ctx, tx, f) })
}

// account counts and reports what was committed.
func (w *worker) account(ctx context.Context, recs []Record, v verdict, lost int) {
	m := w.metrics
	m.published.Add(float64(len(v.confirmed)))
	m.retried.Add(float64(len(v.retried)))
	m.failed.WithLabelValues("refused").Add(float64(len(v.refused)))
	m.failed.WithLabelValues("attempts").Add(float64(len(v.exhausted)))
	if lost > 0 {
		// The row locks forbid it: a writer that ignores them, or a proxy that
		// miscounts. The events were sent, so nothing is lost but the certainty.
		m.markLost.Add(float64(lost))
		w.logs.warn(ctx, "mark-lost", nil, "published rows were no longer PENDING when they were marked: another writer changes rows that this relay has locked")
	}
	if len(v.confirmed) == len(recs) {
		for i := range recs {
			m.age.Observe(recs[i].Age.Seconds())
		}
	}
	for _, f := range v.refused {
		w.logs.event(ctx, "refused", zerolog.ErrorLevel, f, "broker refuses the event for good: it is FAILED until a person requeues or discards it")
	}
	for _, f := range v.exhausted {
		w.logs.event(ctx, "exhausted", zerolog.ErrorLevel, f, "event failed its last attempt: it is FAILED until a person requeues or discards it")
	}
	for _, f := range v.retried {
		w.logs.event(ctx, "retried", zerolog.WarnLevel, f, "event failed while others pass: it is tried again later")
	}
}

func oldest(recs []Record) (all, unattempted time.Duration) {
	for i := range recs {
		all = max(all, recs[i].Age)
		if recs[i].RetryCount == 0 {
			unattempted = max(unattempted, recs[i].Age)
		}
	}
	return all, unattempted
}
