package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/task"
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
			st, err := t.status(ctx, pool)
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

// status is what the tables say, and what the relays say of themselves.
type status struct {
	outbox.Status
	// PurgeLag is how much older than its retention the oldest published event is.
	PurgeLag time.Duration   `json:"purge_lag_ns"`
	Relays   []task.Reported `json:"relays"`
}

func (t *tools) status(ctx context.Context, pool *sql.DB) (status, error) {
	st := status{Relays: []task.Reported{}}
	var err error
	if st.Status, err = outbox.NewStore(pool).Status(ctx); err != nil {
		return st, err
	}
	if st.OldestPublished != nil {
		st.PurgeLag = max(0, time.Since(*st.OldestPublished)-t.cfg.Relay.Retention)
	}
	relays, err := task.Reports(ctx, pool, reportTask, task.RoleRelay, aliveWithin)
	if relays != nil {
		st.Relays = relays
	}
	return st, err
}

func printStatus(out io.Writer, st status) error {
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
			line("oldest published event", "%s, %s past its retention", st.OldestPublished.Format(time.RFC3339), st.PurgeLag.Round(time.Minute))
		}
		if st.HistoryList != nil {
			line("changes not yet purged by the server", "%d", *st.HistoryList)
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
		for _, r := range st.Relays {
			line("relay "+r.Instance, "%s", aboutRelay(r))
		}
	})
	if err == nil && st.Zone.Hint != "" {
		_, err = fmt.Fprintln(out, "warning:", st.Zone.Hint)
	}
	return err
}

func aboutRelay(r task.Reported) string {
	ago := func(d time.Duration) string {
		if d < 0 {
			return "never"
		}
		return d.Round(time.Second).String() + " ago"
	}
	text := fmt.Sprintf("last pass %s, last confirm %s", ago(r.LastPass), ago(r.LastConfirm))
	if r.Note != "" {
		text += "; " + r.Note
	}
	return text
}
