package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/outbox"
)

func requeueCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "requeue",
		Short: "Send FAILED or PUBLISHED events again, under their old event ids",
		Long: `Send FAILED or PUBLISHED events again, under their old event ids.

The rows become PENDING with a new count of attempts. Consumers that have handled an
event recognise it and change nothing. Running it twice, or twice at the same time,
requeues each event once per run at most; an interrupted run is given again.

After a broker lost its data: relay requeue --status PUBLISHED --from … --to … --rate 500 --reason …`,
		Args: noArgs,
	}
	var f filterFlags
	f.bind(cmd)
	f.bindAll(cmd)
	cmd.Flags().StringVar(&f.filter.Status, "status", outbox.StatusFailed, "which events: FAILED or PUBLISHED")
	return changeCommand(t, cmd, &f, "requeued", (*outbox.Store).Requeue)
}

// changeCommand finishes a command that changes the rows of a filter.
func changeCommand(t *tools, cmd *cobra.Command, f *filterFlags, done string,
	change func(s *outbox.Store, ctx context.Context, f outbox.Filter, a outbox.Act) (int64, error),
) *cobra.Command {
	var a actFlags
	a.bind(cmd)
	a.bindRate(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "show what would be chosen and change nothing")
	yes := cmd.Flags().Bool("yes", false, "do not ask; without a terminal nothing is asked")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, err := f.get(cmd)
		if err != nil {
			return err
		}
		if !filter.Selects() {
			return usage(cmd, "nothing is selected: name an id, event id, type, aggregate or time, or say --all")
		}
		if *dryRun {
			return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
				store := outbox.NewStore(pool)
				return errors.Join(showRows(ctx, cmd.OutOrStdout(), store, filter, 20, *asJSON), hintStatus(ctx, cmd, store, filter))
			})
		}
		act, err := a.act(cmd)
		if err != nil {
			return err
		}
		act.Progress = progress(cmd, done)
		return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
			store := outbox.NewStore(pool)
			if !*yes {
				if err := confirm(ctx, cmd, store, filter, done); err != nil {
					return err
				}
			}
			n, err := change(store, ctx, filter, act)
			if errors.Is(err, outbox.ErrNoFilter) {
				return usage(cmd, "%v", err)
			}
			if err == nil && n == 0 {
				err = hintStatus(ctx, cmd, store, filter)
			}
			return errors.Join(reportCount(cmd, done, n, *asJSON), err)
		})
	}
	return cmd
}

// hintStatus says on stderr what a filter that finds nothing would find in the other
// status that can be asked for.
func hintStatus(ctx context.Context, cmd *cobra.Command, store *outbox.Store, f outbox.Filter) error {
	if cmd.Flags().Lookup("status") == nil || f.Status != outbox.StatusFailed {
		return nil
	}
	if found, err := store.Count(ctx, f); err != nil || found.N > 0 {
		return err
	}
	f.Status = outbox.StatusPublished
	published, err := store.Count(ctx, f)
	if err == nil && published.N > 0 {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "no FAILED event is selected, but %s PUBLISHED: add --status PUBLISHED to send them again\n", published)
	}
	return err
}

func reportCount(cmd *cobra.Command, done string, n int64, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]int64{done: n})
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d events %s\n", n, done)
	return err
}

// progress tells on stderr how far a long command is: every few thousand rows, and
// every few seconds when it is slow.
func progress(cmd *cobra.Command, done string) func(int64) {
	const everyRows, every = 5000, 5 * time.Second
	var total, told int64
	last := time.Now()
	return func(n int64) {
		total += n
		if total-told >= everyRows || time.Since(last) >= every {
			told, last = total, time.Now()
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%d events %s so far\n", total, done)
		}
	}
}
