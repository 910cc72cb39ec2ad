package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/task"
	"github.com/seahub/seahub-mq/pkg/testenv"
)

// The times of the simulated system; all that production counts in minutes, in the
// same proportions to each other and to the flags' hand-over.
const (
	simScanEvery = 30 * time.Second
	simOverdue   = 2 * simScanEvery
	simDelivery  = 25 * time.Second // the longest that the broker takes
	simRefresh   = 3 * time.Second  // within which a process reads the flags
)

// world is the system on a clock of the test's own: the database's, which a session can
// set. Everything that decides by time asks the database, so this moves it all.
type world struct {
	t     *testing.T
	rnd   *rand.Rand
	b     *bench
	clock time.Time
	log   []string

	// One process scans, one handles; each has its own idea of the flag.
	scanner, handler *flags.Flags
	read             map[*flags.Flags]time.Time
	consume          eventbus.Handler
	nextScan         time.Time

	// Flips come in bursts, with calm between them: in the calm the event path is
	// judged by what a burst may have made it lose.
	burstUntil, calmUntil time.Time

	coupons map[string]*modelCoupon
	queue   []flying
	// broken is set once an event was lost on purpose: then the fallback is right.
	broken    bool
	fallbacks int
}

// modelCoupon is what the coupon must look like.
type modelCoupon struct {
	status  string
	expires time.Time
}

func (c *modelCoupon) open() bool { return c.status != "USED" && c.status != statusExpired }

// flying is an event on its way.
type flying struct {
	id string
	at time.Time
}

func newWorld(t *testing.T, s *testenv.Schema, pool *gorm.DB, seed uint64) *world {
	t.Helper()
	for _, table := range []string{"user_coupons", "outbox_event", "mq_feature_flag", "mq_feature_flag_history"} {
		s.Exec(t, "DELETE FROM "+table)
	}
	w := &world{
		t: t, rnd: rand.New(rand.NewPCG(seed, 7)), coupons: map[string]*modelCoupon{}, read: map[*flags.Flags]time.Time{},
		b:     &bench{expirer: newExpirer(t, pool, func(c *Config) { c.ScanBatch = 3 }), s: s, gdb: pool},
		clock: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seed) * time.Hour),
	}
	w.setClock()
	w.nextScan = w.clock
	sqlPool, err := db.Pool(pool)
	require.NoError(t, err)
	for _, f := range []**flags.Flags{&w.scanner, &w.handler} {
		*f, err = flags.New(sqlPool, flags.Config{}, "id", nil)
		require.NoError(t, err)
		w.refresh(*f)
	}
	tk, err := task.New(task.Spec{
		Name: flags.CouponExpire, Country: "id", Instance: "sim", Config: task.Config{Role: task.RoleConsume, FailureLimit: 5},
		DB: sqlPool, Flags: w.handler, BusConfigured: true, Work: w.b, PollEvery: simScanEvery, OverdueBy: simOverdue,
	})
	require.NoError(t, err)
	w.consume = tk.Handler()
	for i := range 8 {
		id := fmt.Sprint("c", i)
		w.coupons[id] = &modelCoupon{status: "ISSUED", expires: w.clock.Add(w.soon())}
		w.sql("INSERT INTO user_coupons (id, user_id, coupon_id, status, expires_at) VALUES (?, ?, 'x', 'ISSUED', ?)", id, "u-"+id, w.coupons[id].expires)
	}
	return w
}

func (w *world) soon() time.Duration {
	return time.Duration(w.rnd.IntN(120_000)-10_000) * time.Millisecond
}

func (w *world) sql(query string, args ...any) {
	w.t.Helper()
	require.NoError(w.t, w.b.gdb.Exec(query, args...).Error)
}

func (w *world) setClock() {
	w.sql(fmt.Sprintf("SET SESSION timestamp = %d.%03d", w.clock.Unix(), w.clock.Nanosecond()/1e6))
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, w.clock.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *world) refresh(f *flags.Flags) {
	w.t.Helper()
	require.NoError(w.t, f.Refresh(w.t.Context()))
	w.read[f] = w.clock
}

// step lets a little time pass, does what is due, and then something of chance.
func (w *world) step() {
	w.clock = w.clock.Add(time.Duration(1+w.rnd.IntN(3000)) * time.Millisecond)
	w.setClock()
	for _, f := range []*flags.Flags{w.scanner, w.handler} {
		if w.clock.Sub(w.read[f]) > simRefresh-2*time.Second || w.rnd.IntN(4) == 0 {
			w.refresh(f)
		}
	}
	w.deliver()
	if !w.clock.Before(w.nextScan) {
		w.scan()
	}
	w.check() // business sees what the system has done
	w.chance()
	w.check()
}

func (w *world) chance() {
	if w.burstUntil.After(w.clock) && w.rnd.IntN(3) == 0 {
		w.flip()
	}
	id := fmt.Sprint("c", w.rnd.IntN(len(w.coupons)))
	c := w.coupons[id]
	switch w.rnd.IntN(12) {
	case 0: // a redeem, of what is not due only, as the app has it
		if c.open() && c.expires.After(w.clock) {
			c.status = "USED"
			w.say("redeem %s", id)
			w.sql("UPDATE user_coupons SET status = 'USED' WHERE id = ? AND status IN ('CLAIMABLE', 'ISSUED', 'ACTIVE') AND expires_at > NOW(3)", id)
		}
	case 1: // an extension, also of what is due and has its event in flight
		if c.open() {
			c.expires = w.clock.Add(w.soon() + 10*time.Second)
			w.say("extend %s to %s", id, c.expires.Format("15:04:05.000"))
			w.sql("UPDATE user_coupons SET expires_at = ? WHERE id = ? AND status IN ('CLAIMABLE', 'ISSUED', 'ACTIVE')", c.expires, id)
		}
	case 2: // issued again, from a final status
		if !c.open() {
			c.status, c.expires = openStatuses()[w.rnd.IntN(3)], w.clock.Add(w.soon()+10*time.Second)
			w.say("issue %s again until %s", id, c.expires.Format("15:04:05.000"))
			w.sql("UPDATE user_coupons SET status = ?, expires_at = ? WHERE id = ?", c.status, c.expires, id)
		}
	case 3:
		if c.open() { // claimed, activated
			c.status = openStatuses()[w.rnd.IntN(3)]
			w.sql("UPDATE user_coupons SET status = ? WHERE id = ?", c.status, id)
		}
	case 4:
		if w.clock.After(w.calmUntil) {
			w.burstUntil = w.clock.Add(20 * time.Second)
			w.calmUntil = w.burstUntil.Add(3 * simScanEvery)
		}
	case 5: // a duplicate, a replay by hand
		w.queue = append(w.queue, flying{id, w.clock.Add(time.Duration(w.rnd.IntN(60)) * time.Second)})
	}
}

func (w *world) flip() {
	on, points := w.rnd.IntN(3) > 0, []int{1000, 5000, 10_000, 10_000}[w.rnd.IntN(4)]
	w.say("flag on=%t points=%d", on, points)
	pool, err := db.Pool(w.b.gdb)
	require.NoError(w.t, err)
	_, err = flags.Set(w.t.Context(), pool, flags.Change{Flag: flags.CouponExpire, Country: "id", Enabled: on, BasisPoints: points, Who: "t", Why: "t"})
	require.NoError(w.t, err)
}

// scan is a tick of the poll: look, scan, and the fallback where it is called for. It
// may crash after any batch; then another process does the whole of it a little later.
func (w *world) scan() {
	ctx, crash := context.WithCancel(w.t.Context())
	defer crash()
	batches, last := 0, -1
	if w.rnd.IntN(5) == 0 {
		last = w.rnd.IntN(4)
	}
	beat := func() {
		if batches++; batches > last && last >= 0 {
			crash()
		}
	}
	state := w.scanner.Get(flags.CouponExpire)
	eventOnly := func(id string, at time.Time) bool { return !state.PollOwns(id, at) }
	o, err := w.b.Overdue(ctx, simOverdue, eventOnly)
	require.NoError(w.t, err)
	if o.Rows > 0 {
		w.fallbacks++
		require.True(w.t, w.broken && state.Enabled, "fallback for %d coupons, %s late, without a failure of the event path\n%s", o.Rows, o.Oldest, w.story())
	}
	var done tally
	err = w.b.scan(ctx, task.Scope{Owns: state.PollOwns, Beat: beat}, &done)
	if err == nil && o.Rows > 0 {
		err = w.b.scan(ctx, task.Scope{Owns: eventOnly, OverdueBy: simOverdue, Fallback: true, Beat: beat}, &done)
	}
	w.nextScan = w.clock.Add(simScanEvery)
	if err != nil {
		require.Error(w.t, ctx.Err(), err)
		w.nextScan = w.clock.Add(time.Second)
	}
	w.say("scan: %d expired, %d events, crash=%t", done.expired, done.appended, err != nil)
	w.publish()
}

// publish is the relay: what is PENDING goes on its way. Some events are lost in a
// broken world, as if their dead letters waited for a person.
func (w *world) publish() {
	var ids []string
	require.NoError(w.t, w.b.gdb.Raw("SELECT aggregate_id FROM outbox_event WHERE status = 'PENDING' ORDER BY created_at").Scan(&ids).Error)
	w.sql("UPDATE outbox_event SET status = 'PUBLISHED' WHERE status = 'PENDING'")
	for _, id := range ids {
		if w.broken && w.rnd.IntN(2) == 0 {
			w.say("event of %s is lost", id)
			continue
		}
		for range 1 + w.rnd.IntN(2) {
			w.queue = append(w.queue, flying{id, w.clock.Add(time.Duration(w.rnd.Int64N(int64(simDelivery))))})
		}
	}
}

// deliver hands over what has arrived. A handler may crash before its effect or after
// it; either way the event comes again.
func (w *world) deliver() {
	sort.Slice(w.queue, func(i, j int) bool { return w.queue[i].at.Before(w.queue[j].at) })
	for len(w.queue) > 0 && !w.queue[0].at.After(w.clock) {
		f := w.queue[0]
		w.queue = w.queue[1:]
		out := w.consume.Handle(w.t.Context(), delivery(w.t, "u-"+f.id, f.id, 1))
		w.say("event of %s: %s", f.id, out.Reason)
		require.NoError(w.t, out.Err)
		if again := w.rnd.IntN(5) == 0; again || out.Verdict == eventbus.VerdictRetry {
			w.queue = append(w.queue, flying{f.id, w.clock.Add(max(out.After, time.Second))})
			sort.Slice(w.queue, func(i, j int) bool { return w.queue[i].at.Before(w.queue[j].at) })
		}
	}
}

// check compares all statuses with the model. The only thing that the system may do by
// itself is to expire what is open and due, and it must have done so in time.
func (w *world) check() {
	w.t.Helper()
	var rows []struct {
		ID, Status string
		ExpiresAt  time.Time
	}
	require.NoError(w.t, w.b.gdb.Raw("SELECT id, status, expires_at FROM user_coupons").Scan(&rows).Error)
	require.Len(w.t, rows, len(w.coupons))
	for _, r := range rows {
		c := w.coupons[r.ID]
		if r.Status == statusExpired && c.open() {
			require.False(w.t, c.expires.After(w.clock), "%s was expired early\n%s", r.ID, w.story())
			c.status = statusExpired
		}
		require.Equal(w.t, c.status, r.Status, "%s\n%s", r.ID, w.story())
		require.True(w.t, c.expires.Equal(r.ExpiresAt), "%s\n%s", r.ID, w.story())
		late := w.clock.Sub(c.expires)
		require.False(w.t, c.open() && late > simOverdue+simScanEvery+10*time.Second, "%s is open, and due for %s\n%s", r.ID, late, w.story())
	}
}

func (w *world) story() string { return strings.Join(w.log[max(0, len(w.log)-60):], "\n") }

// TestRandomWorldsAgreeWithTheModel runs scans, handlers, duplicates, redeems,
// extensions, re-issues, flips of the flag and crashes in random order. In a world
// whose event path works the fallback never has a reason, whatever the flag does.
func TestRandomWorldsAgreeWithTheModel(t *testing.T) {
	testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
		newBench(t, s)          // the tables
		pool := openDB(t, s, 1) // one session, whose clock is set
		fallbacks, expired := 0, 0
		for seed := range uint64(24) {
			w := newWorld(t, s, pool, seed)
			w.broken = seed%4 == 3
			for range 150 {
				w.step()
			}
			w.settle()
			fallbacks += w.fallbacks
			expired += strings.Count(strings.Join(w.log, "\n"), "coupon is EXPIRED\n")
		}
		require.Positive(t, fallbacks, "no broken world needed its fallback")
		require.Positive(t, expired, "no event ever had an effect")
		t.Logf("%d fallbacks in broken worlds, %d coupons expired by events", fallbacks, expired)
	})
}

// settle lets time pass without business until everything is as the model ends.
func (w *world) settle() {
	for range 12 {
		w.clock = w.clock.Add(20 * time.Second)
		w.setClock()
		w.refresh(w.scanner)
		w.refresh(w.handler)
		w.deliver()
		w.scan()
	}
	w.check()
	for id, c := range w.coupons {
		require.True(w.t, c.status == "USED" || (c.status == statusExpired) == !c.expires.After(w.clock), "%s ends as %s\n%s", id, c.status, w.story())
	}
}

func scopeOf(s flags.State) task.Scope { return task.Scope{Owns: s.PollOwns} }
