package demo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seahub/seahub-mq/dev/books"
)

// Sabotage is a way to falsify the evidence of a good run, to see the books catch it.
type Sabotage struct {
	Name string
	Does string
	// do reports false when the run has nothing to falsify in this way.
	do func(e *evidence) bool
}

// Sabotages are all that there are.
func Sabotages() []Sabotage {
	return []Sabotage{
		{"lose-request", "FCM's record lacks all requests of one push", loseRequest},
		{"extra-request", "FCM's record has one accepted request twice", extraRequest},
		{"orphan-request", "FCM's record has a request for a push that was rolled back", orphanRequest},
		{"other-collapse-id", "one request carries another collapse id", otherCollapseID},
		{"dead-token-on", "one dead token is still on", deadTokenOn},
		{"unsent", "one push is still SENDING", unsent},
		{"unpublished", "one event is still PENDING", unpublished},
		{"fallback", "the poll stepped in once", fallback},
		{"coupon-early", "one coupon expired a second before its time", couponEarly},
		{"coupon-twice", "one coupon expired twice", couponTwice},
		{"coupon-missed", "one coupon that was due is still ISSUED", couponMissed},
		{"coupon-redeemed", "one redeemed coupon is EXPIRED", func(e *evidence) bool { return couponTaken(e, books.Redeemed) }},
		{"coupon-extended", "one extended coupon is EXPIRED", func(e *evidence) bool { return couponTaken(e, books.Kept) }},
		{"drop-product", "the table lacks one product", dropProduct},
		{"change-product", "one product has another price in the table", changeProduct},
		{"extra-call", "TikTok was asked for one share link twice", extraCall},
		{"lose-alert", "people heard nothing of one fault", loseAlert},
		{"alert-twice", "people heard of one fault twice", alertTwice},
	}
}

func sabotageNames() string {
	var names []string
	for _, s := range Sabotages() {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

func (r *run) falsify(e *evidence) error {
	for _, s := range Sabotages() {
		if s.Name != r.o.Sabotage {
			continue
		}
		if !s.do(e) {
			return fmt.Errorf("--sabotage=%s found nothing to falsify", s.Name)
		}
		r.say.printf("! the evidence is falsified (--sabotage=%s): %s", s.Name, s.Does)
	}
	return nil
}

// accepted finds a request that was accepted and heard.
func (e *evidence) accepted() int {
	return slices.IndexFunc(e.record.Requests, func(r books.Request) bool { return r.Accepted && !r.Unheard })
}

func loseRequest(e *evidence) bool {
	i := e.accepted()
	if i < 0 {
		return false
	}
	push := e.record.Requests[i].CollapseIDs[0]
	e.record.Requests = slices.DeleteFunc(e.record.Requests, func(r books.Request) bool { return slices.Contains(r.CollapseIDs, push) })
	return true
}

func extraRequest(e *evidence) bool {
	i := e.accepted()
	if i < 0 {
		return false
	}
	e.record.Requests = append(e.record.Requests, e.record.Requests[i])
	return true
}

func orphanRequest(e *evidence) bool {
	i := e.accepted()
	if i < 0 || len(e.plan.RolledBack) == 0 {
		return false
	}
	r := e.record.Requests[i]
	r.CollapseIDs = []string{e.plan.RolledBack[0]}
	e.record.Requests = append(e.record.Requests, r)
	return true
}

func otherCollapseID(e *evidence) bool {
	i := e.accepted()
	if i < 0 {
		return false
	}
	e.record.Requests[i].CollapseIDs = append(slices.Clone(e.record.Requests[i].CollapseIDs), "another")
	return true
}

func deadTokenOn(e *evidence) bool {
	i := slices.IndexFunc(e.tables.Devices, func(d books.DeviceRow) bool { return !d.Active })
	if i < 0 {
		return false
	}
	e.tables.Devices[i].Active = true
	return true
}

func unsent(e *evidence) bool {
	if len(e.tables.Pushes) == 0 {
		return false
	}
	e.tables.Pushes[0].Status = "SENDING"
	return true
}

func unpublished(e *evidence) bool {
	if len(e.tables.Events) == 0 {
		return false
	}
	e.tables.Events[0].Status = "PENDING"
	return true
}

func fallback(e *evidence) bool {
	if len(e.tables.Fallbacks) == 0 {
		return false
	}
	e.tables.Fallbacks[0].Runs++
	return true
}
