package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/db/migrations"
)

func migrateCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database up to what this version needs, without rebuilding the app's table",
		Long: `Bring the database up to what this version needs.

Our own tables are made; to outbox_event, where the app has it already, nullable
columns and the index are added in place. A step that would rebuild the table is refused
with the statement to run by hand. Running it again, or twice at the same time, is safe.`,
		Args: noArgs,
	}
	check := cmd.Flags().Bool("check", false, "change nothing; exit 1 and say what is missing")
	to := cmd.Flags().Int64("to", math.MaxInt64, "stop after this version")
	patience := cmd.Flags().Duration("wait", 30*time.Second, "how long to wait for a database that does not answer")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
			waitCtx, cancel := context.WithTimeout(ctx, *patience)
			defer cancel()
			if err := db.WaitReady(waitCtx, pool); err != nil {
				return err
			}
			if *check {
				return checkSchema(ctx, cmd, pool, *asJSON)
			}
			quiet := stillAtWork(cmd)
			done, err := migrations.UpTo(ctx, pool, *to)
			quiet()
			return errors.Join(reportSteps(cmd, done, *asJSON), err)
		})
	}
	return cmd
}

// stillAtWork tells on stderr every few seconds that a step is going on: an index on a
// large table takes its time.
func stillAtWork(cmd *cobra.Command) (quiet func()) {
	began := time.Now()
	tick := time.NewTicker(10 * time.Second)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "migrating for %s so far; interrupting it is safe\n", time.Since(began).Round(time.Second))
			}
		}
	})
	return func() {
		tick.Stop()
		close(done)
		wg.Wait()
	}
}

func reportSteps(cmd *cobra.Command, done []string, asJSON bool) error {
	if asJSON {
		if done == nil {
			done = []string{}
		}
		return printJSON(cmd.OutOrStdout(), map[string]any{"done": done})
	}
	for _, step := range done {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "done:", step); err != nil {
			return err
		}
	}
	if len(done) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "nothing to do")
		return err
	}
	return nil
}

func checkSchema(ctx context.Context, cmd *cobra.Command, pool *sql.DB, asJSON bool) error {
	err := migrations.Check(ctx, pool)
	if err != nil && !errors.Is(err, migrations.ErrPending) {
		return err
	}
	if !asJSON {
		if err == nil {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "up to date")
		}
		return err
	}
	steps, listErr := migrations.Status(ctx, pool)
	if listErr != nil {
		return listErr
	}
	return errors.Join(printJSON(cmd.OutOrStdout(), map[string]any{"up_to_date": err == nil, "steps": steps}), err)
}
