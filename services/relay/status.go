package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/outbox"
)

func statusCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the backlog, failures, delayed events and who works",
		Args:  noArgs,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
			st, err := outbox.NewStore(pool).Status(ctx)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), st)
			}
			return printStatus(cmd.OutOrStdout(), st)
		})
	}
	return cmd
}

func printStatus(out io.Writer, st outbox.Status) error {
	err := table(out, func(w io.Writer) {
		line := func(name, format string, args ...any) {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
		}
		line("pending", "%s, the oldest for %s", st.Pending, st.OldestPending.Round(time.Millisecond))
		line("  of these backed off", "%s", st.BackedOff)
		line("failed", "%s", st.Failed)
		line("delayed", "%s, the next is due in %s", st.Delayed, st.NextDelayed.Round(time.Second))
		line("published in the last minute", "%s", st.PublishedLastMinute)
		line("open dead letters", "%s", st.DeadLetters)
		if st.OldestPublished != nil {
			line("oldest published event", "%s", st.OldestPublished.Format(time.RFC3339))
		}
		for _, l := range st.Leases {
			if l.Held {
				line(l.Name, "%s, for %s", l.Owner, l.HeldFor.Round(time.Second))
			} else {
				line(l.Name, "free")
			}
		}
		if len(st.Leases) == 0 {
			line(outbox.LeasePrefix+"0", "no relay has worked here yet")
		}
	})
	if err == nil && st.Zone.Hint != "" {
		_, err = fmt.Fprintln(out, "warning:", st.Zone.Hint)
	}
	return err
}
