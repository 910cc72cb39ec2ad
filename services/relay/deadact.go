package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

// deadPick says which dead letters a command is for: ids, or a filter.
type deadPick struct {
	ids    []int64
	filter outbox.DeadLetterFilter
	all    bool
	limit  int
}

func (p *deadPick) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.filter.Group, "group", "", "all OPEN dead letters of this consumer group")
	cmd.Flags().StringVar(&p.filter.Tag, "tag", "", "all OPEN dead letters with this tag")
	cmd.Flags().BoolVar(&p.all, "all", false, "all OPEN dead letters")
	cmd.Flags().IntVar(&p.limit, "limit", 0, "most to take; 0 sets no limit")
}

// parse takes the arguments; ids and a filter exclude each other.
func (p *deadPick) parse(cmd *cobra.Command, args []string) error {
	p.filter.Status = outbox.DeadOpen
	for _, a := range args {
		id, err := strconv.ParseInt(a, 10, 64)
		if err != nil {
			return usage(cmd, "%q is not the ID of a dead letter, as `relay dead list` shows it", a)
		}
		p.ids = append(p.ids, id)
	}
	filtered := p.filter.Group != "" || p.filter.Tag != "" || p.all
	switch {
	case len(p.ids) == 0 && !filtered:
		return usage(cmd, "nothing is selected: name IDs, --group, --tag, or --all")
	case len(p.ids) > 0 && filtered:
		return usage(cmd, "name IDs or a filter, not both")
	case p.limit < 0:
		return usage(cmd, "--limit %d is negative", p.limit)
	}
	return nil
}

// show is the dry run: how many there are, and the first of them.
func (p *deadPick) show(ctx context.Context, cmd *cobra.Command, store *outbox.DeadLetterStore, asJSON bool) error {
	rows, count := []outbox.DeadLetterRow{}, int64(0)
	if len(p.ids) > 0 {
		for _, id := range p.ids {
			r, err := store.Get(ctx, id)
			if err != nil {
				return err
			}
			if r.Status != outbox.DeadOpen {
				return fmt.Errorf("%w: dead letter %d is %s, not %s", outbox.ErrNotFound, id, r.Status, outbox.DeadOpen)
			}
			rows = append(rows, r)
		}
		count = int64(len(rows))
	} else {
		n, err := store.Count(ctx, p.filter)
		if err != nil {
			return err
		}
		count = n
		if p.limit > 0 {
			count = min(count, int64(p.limit))
		}
		first := p.filter
		first.Limit = int(min(count, 20))
		if count > 0 {
			if rows, err = store.List(ctx, first); err != nil {
				return err
			}
		}
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]any{"count": count, "first": rows})
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%d dead letters\n", count); err != nil {
		return err
	}
	return printDead(cmd.OutOrStdout(), rows)
}

// each runs act on every chosen dead letter, at most so many a second, and returns how
// many it changed. It ends at the first failure: a broker that is away is away for the
// rest, too. One of a filter that somebody else has resolved meanwhile is passed over.
func (p *deadPick) each(ctx context.Context, store *outbox.DeadLetterStore, rate int, act func(id int64) error) (done int, err error) {
	pace := func() bool {
		return rate <= 0 || done == 0 || backoff.Sleep(ctx, time.Second/time.Duration(rate))
	}
	if len(p.ids) > 0 {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(p.ids))) {
			if !pace() {
				return done, ctx.Err()
			}
			if err := act(id); err != nil {
				return done, err
			}
			done++
		}
		return done, nil
	}
	f := p.filter
	f.Limit = 100
	for {
		rows, err := store.List(ctx, f)
		if err != nil || len(rows) == 0 {
			return done, err
		}
		for _, r := range rows {
			if p.limit > 0 && done == p.limit {
				return done, nil
			}
			if !pace() {
				return done, ctx.Err()
			}
			if err := act(r.ID); errors.Is(err, outbox.ErrNotFound) {
				continue
			} else if err != nil {
				return done, err
			}
			done++
		}
		f.After = rows[len(rows)-1].ID
	}
}

// deadActCommand finishes a command that resolves dead letters. prepare returns what
// is done with each, and what is to be closed afterwards.
func deadActCommand(t *tools, cmd *cobra.Command, done string,
	prepare func(cmd *cobra.Command) (act func(ctx context.Context, s *outbox.DeadLetterStore, id int64, a outbox.Act) error, end func(), err error),
) *cobra.Command {
	var a actFlags
	var p deadPick
	a.bind(cmd)
	a.bindRate(cmd)
	p.bind(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "show what would be chosen and change nothing")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := p.parse(cmd, args); err != nil {
			return err
		}
		if *dryRun {
			return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
				return p.show(ctx, cmd, outbox.NewDeadLetterStore(pool), *asJSON)
			})
		}
		who, err := a.act(cmd)
		if err != nil {
			return err
		}
		act, end, err := prepare(cmd)
		if err != nil {
			return err
		}
		defer end()
		return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
			store := outbox.NewDeadLetterStore(pool)
			n, err := p.each(ctx, store, who.Rate, func(id int64) error { return act(ctx, store, id, who) })
			return errors.Join(reportDead(cmd, done, n, *asJSON), err)
		})
	}
	return cmd
}

func reportDead(cmd *cobra.Command, done string, n int, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]int{done: n})
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d dead letters %s\n", n, done)
	return err
}
