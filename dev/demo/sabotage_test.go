package demo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/books"
	"github.com/seahub/seahub-mq/dev/demo"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

// run is the evidence of a small good run: a push to a live and a dead device, and one
// that was rolled back.
func run() (books.Plan, books.Tables, []books.Request) {
	plan := books.Plan{
		Committed:  []books.Commit{{PushID: "p1", UserID: "u1", Text: "hello"}},
		RolledBack: []string{"r1"},
		DeadTokens: []string{"dead"},
	}
	tables := books.Tables{
		Pushes:    []books.PushRow{{ID: "p1", UserID: "u1", Status: "SENT"}},
		Devices:   []books.DeviceRow{{ID: "d1", UserID: "u1", Token: "live", Active: true}, {ID: "d2", UserID: "u1", Token: "dead"}},
		Events:    []books.EventRow{{EventID: "push:p1", AggregateID: "p1", Status: "PUBLISHED"}},
		Fallbacks: []books.Fallback{{Task: "push-dispatch", Instance: "one"}},
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return plan, tables, demo.Record([]fcmfake.Request{
		{At: at, Token: "live", CollapseID: "p1", Tag: "p1", Body: "hello", Verdict: "ambiguous-close", Accepted: true},
		{At: at.Add(time.Second), Token: "live", CollapseID: "p1", Tag: "p1", Body: "hello", Verdict: "accept", Accepted: true},
		{At: at, Token: "dead", CollapseID: "p1", Tag: "p1", Body: "hello", Verdict: "unregistered"},
	})
}

func TestTheGoodRunBalances(t *testing.T) {
	plan, tables, requests := run()
	v, err := demo.Judge("", plan, tables, requests)
	require.NoError(t, err)
	require.True(t, v.Balanced(), "%+v", v.Imbalances)
}

func TestEverySabotageIsCaught(t *testing.T) {
	for _, s := range demo.Sabotages() {
		t.Run(s.Name, func(t *testing.T) {
			plan, tables, requests := run()
			v, err := demo.Judge(s.Name, plan, tables, requests)
			require.NoError(t, err)
			require.False(t, v.Balanced())
		})
	}
}
