package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/outbox"
)

// purgeLeast is the youngest age that may be purged by hand: what a broker may have
// lost within its retention must still be there to be requeued.
const purgeLeast = 96 * time.Hour

func purgeCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete PUBLISHED events past their retention now, in small batches",
		Args:  noArgs,
	}
	age := cmd.Flags().Duration("older-than", 0, "age from which on (default: SEAHUB_RELAY_RETENTION), at least 96h")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("older-than") {
			*age = t.cfg.Relay.Retention
		}
		if *age < purgeLeast {
			return usage(cmd, "--older-than %s: at least %s, for younger events may have to be requeued", *age, purgeLeast)
		}
		return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
			n, err := outbox.NewStore(pool).Purge(ctx, outbox.PurgeRequest{OlderThan: *age, Progress: progress(cmd, "purged")})
			return errors.Join(reportCount(cmd, "purged", n, *asJSON), err)
		})
	}
	return cmd
}
