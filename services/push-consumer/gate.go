package main

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/seahub/seahub-mq/pkg/backoff"
)

// gate holds loops back until the database has what they need, and names what it lacks.
type gate struct {
	store store
	open  chan struct{}
	why   chan string // holds the latest reason
}

func newGate(s store) *gate {
	g := &gate{store: s, open: make(chan struct{}), why: make(chan string, 1)}
	g.why <- "schema not checked yet"
	return g
}

// watch looks until everything is there, and then stays until ctx ends, as loops must.
func (g *gate) watch(ctx context.Context) error {
	wait := backoff.Policy{Base: 200 * time.Millisecond, Max: 10 * time.Second}
	told := ""
	for attempt := 1; ; attempt++ {
		lacks, err := g.store.missing(ctx)
		switch {
		case err != nil:
			lacks = "database is not reachable"
		case lacks == "":
			<-g.why
			g.why <- ""
			close(g.open)
			<-ctx.Done()
			return nil
		default:
			lacks = "the database lacks " + lacks + ": run `relay migrate` for our tables; the others are the app's"
		}
		if lacks != told && ctx.Err() == nil {
			told = lacks
			zerolog.Ctx(ctx).Error().AnErr("cause", err).Msg("push-consumer waits: " + lacks)
		}
		<-g.why
		g.why <- lacks
		if !backoff.Sleep(ctx, wait.Delay(attempt)) {
			return nil
		}
	}
}

func (g *gate) ready() (bool, string) {
	why := <-g.why
	g.why <- why
	return why == "", why
}

// then runs a loop once the gate is open. Until then it beats for the loop: waiting
// for a database is no reason to start the process again.
func (g *gate) then(beat func(), run func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(heartbeatLimit / 8)
		defer tick.Stop()
		for {
			select {
			case <-g.open:
				return run(ctx)
			case <-ctx.Done():
				return nil
			case <-tick.C:
				beat()
			}
		}
	}
}
