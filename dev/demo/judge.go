package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/dev/books"
	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

// judgeTime bounds reading the books, shownCases how many ids an imbalance shows.
const (
	judgeTime  = 30 * time.Second
	shownCases = 10
)

// evidence is what the verdict rests on.
type evidence struct {
	plan   books.Plan
	tables books.Tables
	record books.Record
}

// judge reads the books and prints the table.
func (r *run) judge(ctx context.Context) (books.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, judgeTime)
	defer cancel()
	r.say.stopLine()
	tables, err := books.Read(ctx, r.stack.DB)
	if err != nil {
		return books.Verdict{}, err
	}
	e := &evidence{r.plan(), tables, books.Record{
		Requests: record(r.stack.FCM.Requests()), Calls: calls(r.stack.TikTok.Requests()), Told: told(r.feishu.Shown()),
	}}
	if err := r.showCards(ctx); err != nil {
		return books.Verdict{}, err
	}
	if err := r.falsify(e); err != nil {
		return books.Verdict{}, err
	}
	v := books.Check(e.plan, e.tables, e.record)
	suppressed, err := r.suppressed(ctx, len(e.tables.Events))
	if err != nil {
		return books.Verdict{}, err
	}
	r.printTable(v, e, suppressed)
	return v, nil
}

// plan is all that was done, by whom ever.
func (r *run) plan() books.Plan {
	plan := r.feed.done()
	plan.Country, plan.Coupons, plan.Campaigns, plan.MustTell = stack.Country, r.coupons.done(), r.campaigns, r.faults.mustHaveTold()
	return plan
}

// record turns the fake's record into evidence.
func record(requests []fcmfake.Request) []books.Request {
	unheard := []string{string(fcmfake.AmbiguousClose), string(fcmfake.AmbiguousLate), string(fcmfake.UnavailableAccepted)}
	out := make([]books.Request, 0, len(requests))
	for _, r := range requests {
		out = append(out, books.Request{At: r.At, Token: r.Token, CollapseIDs: []string{r.CollapseID, r.Tag},
			Text: r.Body, Accepted: r.Accepted, Unheard: slices.Contains(unheard, r.Verdict)})
	}
	return out
}

// suppressed counts deliveries that came to an end beyond one for each event: each of
// them found its work done and left it alone, or the books would not balance.
func (r *run) suppressed(ctx context.Context, events int) (int, error) {
	ended := r.faults.endedBefore()
	for _, s := range r.stack.Services() {
		if !consumes(s) {
			continue
		}
		n, err := endedDeliveries(ctx, s)
		if err != nil {
			return 0, err
		}
		ended += n
	}
	return max(0, ended-events), nil
}

func endedDeliveries(ctx context.Context, s *stack.Service) (int, error) {
	ended := 0.0
	for _, result := range []string{"done", "skip"} {
		v, err := s.Metric(ctx, "seahub_consumer_messages_total", map[string]string{"result": result})
		if err != nil {
			return 0, fmt.Errorf("count deliveries of %s: %w", s.Name, err)
		}
		ended += v
	}
	return int(ended), nil
}

func (r *run) printTable(v books.Verdict, e *evidence, suppressed int) {
	windows, redone := r.faults.past()
	all, calm := books.Latencies(e.plan, e.record.Requests), books.Latencies(e.plan, e.record.Requests, windows...)
	t := v.Totals
	var text strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&text, "  %-24s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("pushes", "%d committed: %d SENT, %d FAILED (no live device)", t.Committed, t.Sent, t.Failed)
	row("rolled back", "%d", t.RolledBack)
	row("events", "%d", t.Events)
	row("published", "%d, and %d again by hand", t.Published, redone)
	row("delivered", "%d requests accepted for %d devices; %d of them repeat one whose answer was lost", t.Accepted, t.Owed, t.Repeats)
	row("duplicates suppressed", "%d deliveries of events that were done, at least", suppressed)
	row("dead tokens", "%d, %d of them switched off", t.DeadTokens, t.Off)
	row("coupons", "%d EXPIRED once (%d of them extended before), %d redeemed, %d extended beyond the run", t.Expired, t.PutOff, t.Redeemed, t.Kept)
	row("campaigns", "%d with %d products, as TikTok has them, by %d requests", t.Campaigns, t.Products, t.Calls)
	row("alerts", "%d told and resolved", t.Alerts)
	row("fallback runs", "%d", t.Fallbacks)
	row("commit to FCM", "p50 %s  p99 %s  (whole run)", ms(all, 0.5), ms(all, 0.99))
	row("", "p50 %s  p99 %s  (while nothing was broken)", ms(calm, 0.5), ms(calm, 0.99))
	r.say.printf("\n%s", text.String())
}

func ms(sorted []time.Duration, q float64) string {
	if len(sorted) == 0 {
		return "-"
	}
	return books.Quantile(sorted, q).Round(100 * time.Microsecond).String()
}

// conclude tidies up and writes the last line.
func (r *run) conclude(v books.Verdict) error {
	if !v.Balanced() {
		for _, i := range v.Imbalances {
			r.say.printf("NOT TRUE: %s (%d cases)", i.Promise, len(i.Cases))
			for _, c := range i.Cases[:min(shownCases, len(i.Cases))] {
				r.say.printf("    %s", c)
			}
		}
		r.say.printf("logs: %s", filepath.Join(r.o.Dir, "logs"))
		r.say.printf("BOOKS DO NOT BALANCE: %d of %d promises broken, see above", len(v.Imbalances), books.Promises())
		return ErrUnbalanced
	}
	if r.o.Keep {
		r.say.printf("logs: %s", filepath.Join(r.o.Dir, "logs"))
	} else if err := r.tidy(); err != nil {
		return err
	}
	t := v.Totals
	r.say.printf("BOOKS BALANCE: %d pushes reached each of their %d live devices exactly once, %d rolled back ones none; %d coupons expired once, none early, %d redeemed or extended ones did not; %d products of %d campaigns are as TikTok has them; %d alerts told and resolved once",
		t.Committed, t.Owed, t.RolledBack, t.Expired, t.Redeemed+t.Kept, t.Products, t.Campaigns, t.Alerts)
	return nil
}
