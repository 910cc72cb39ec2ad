package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

func eventType(s string) event.Type { return event.Type(s) }

func failedCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "failed",
		Short: "List FAILED events and why they failed, the oldest first",
		Args:  noArgs,
	}
	var f filterFlags
	f.bind(cmd)
	limit := cmd.Flags().Int("limit", 50, "most events to show")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter, err := f.get(cmd)
		if err != nil {
			return err
		}
		if *limit < 1 {
			return usage(cmd, "--limit %d: at least 1", *limit)
		}
		filter.Status = outbox.StatusFailed
		return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
			return showRows(ctx, cmd.OutOrStdout(), outbox.NewStore(pool), filter, *limit, *asJSON)
		})
	}
	return cmd
}

// showRows prints how many rows a filter selects, and the first of them.
func showRows(ctx context.Context, w io.Writer, store *outbox.Store, f outbox.Filter, limit int, asJSON bool) error {
	count, err := store.Count(ctx, f)
	if err != nil {
		return err
	}
	rows, err := store.List(ctx, f, limit)
	if err != nil {
		return err
	}
	if asJSON {
		if rows == nil {
			rows = []outbox.Row{}
		}
		return printJSON(w, map[string]any{"count": count, "events": rows})
	}
	if _, err := fmt.Fprintf(w, "%s events\n", count); err != nil || len(rows) == 0 {
		return err
	}
	return table(w, func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "CREATED\tEVENT\tTYPE\tSTATUS\tATTEMPTS\tLAST ERROR")
		for _, r := range rows {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", r.CreatedAt.Format(time.RFC3339), plain(r.EventID), plain(string(r.Type)), r.Status, r.RetryCount, plain(r.LastError))
		}
	})
}
