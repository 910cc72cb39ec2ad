package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

func deadCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Dead letters: events that a consumer group gave up on",
	}
	cmd.AddCommand(deadListCommand(t), deadShowCommand(t), deadReplayCommand(t), deadDiscardCommand(t))
	return cmd
}

func deadListCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List dead letters, the oldest first", Args: noArgs}
	var f outbox.DeadLetterFilter
	cmd.Flags().StringVar(&f.Status, "status", outbox.DeadOpen, "OPEN, REPLAYED or DISCARDED; empty for all")
	cmd.Flags().StringVar(&f.Group, "group", "", "consumer group")
	cmd.Flags().StringVar(&f.Tag, "tag", "", "tag (event type)")
	cmd.Flags().Int64Var(&f.After, "after", 0, "begin behind this id")
	cmd.Flags().IntVar(&f.Limit, "limit", 50, "most to show")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains([]string{"", outbox.DeadOpen, outbox.DeadReplayed, outbox.DeadDiscarded}, f.Status) {
			return usage(cmd, "--status %q: there are OPEN, REPLAYED and DISCARDED", f.Status)
		}
		if f.Limit < 1 {
			return usage(cmd, "--limit %d: at least 1", f.Limit)
		}
		return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
			rows, err := outbox.NewDeadLetterStore(pool).List(ctx, f)
			if err != nil {
				return err
			}
			if *asJSON {
				if rows == nil {
					rows = []outbox.DeadLetterRow{}
				}
				return printJSON(cmd.OutOrStdout(), rows)
			}
			return printDead(cmd.OutOrStdout(), rows)
		})
	}
	return cmd
}

func printDead(out io.Writer, rows []outbox.DeadLetterRow) error {
	return table(out, func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "ID\tSTATUS\tSINCE\tGROUP\tTAG\tEVENT\tATTEMPTS\tDEATHS\tREASON\tLAST ERROR")
		for _, r := range rows {
			_, _ = fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", r.ID, r.Status, r.UpdatedAt.Format(time.RFC3339),
				r.Group, plain(r.Tag), plain(r.EventID), r.Attempts, r.Deaths, plain(r.Reason), plain(r.LastError))
		}
	})
}

// oneID is the argument of a command on one dead letter.
func oneID(cmd *cobra.Command, args []string) error {
	if _, err := idOf(args); err != nil {
		return usage(cmd, "want the ID of a dead letter, as `relay dead list` shows it")
	}
	return nil
}

func idOf(args []string) (int64, error) {
	if len(args) != 1 {
		return 0, fmt.Errorf("%d arguments", len(args))
	}
	return strconv.ParseInt(args[0], 10, 64)
}

func deadShowCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show one dead letter; its body only when asked for", Args: oneID,
	}
	body := cmd.Flags().Bool("body", false, "print the event's body too; it may hold personal data")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := idOf(args)
		if err != nil {
			return err
		}
		return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
			r, err := outbox.NewDeadLetterStore(pool).Get(ctx, id)
			if err != nil {
				return err
			}
			if *asJSON {
				out := map[string]any{"dead_letter": r}
				if *body {
					out["body"] = string(r.Body)
				}
				return printJSON(cmd.OutOrStdout(), out)
			}
			if err := printDead(cmd.OutOrStdout(), []outbox.DeadLetterRow{r}); err != nil {
				return err
			}
			for _, k := range slices.Sorted(maps.Keys(r.Headers)) {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "header %s: %s\n", plain(k), plain(r.Headers[k]))
			}
			if *body {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", r.Body)
			}
			return err
		})
	}
	return cmd
}

func deadReplayCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay [ID...]",
		Short: "Send OPEN dead letters' events again, and mark each once the broker has it",
		Long: `Send OPEN dead letters' events again, and mark each once the broker has it.

Every group that takes the event's tag receives it; those that have handled it
recognise it by its event id. Whoever replays, when and why is kept in mq_audit.`,
	}
	return deadActCommand(t, cmd, "replayed", func(cmd *cobra.Command) (func(context.Context, *outbox.DeadLetterStore, int64, outbox.Act) error, func(), error) {
		bus, err := openBus(cmd.Context(), t.cfg)
		if err != nil {
			return nil, nil, err
		}
		p := publisher{bus: bus.Publisher(), env: t.cfg.Base.Env, country: t.cfg.Base.Country}
		act := func(ctx context.Context, s *outbox.DeadLetterStore, id int64, a outbox.Act) error {
			return s.Replay(ctx, id, a, p.replay)
		}
		return act, func() { _ = bus.Close(context.WithoutCancel(cmd.Context())) }, nil
	})
}

// replay sends a dead letter again, as it was.
func (p publisher) replay(ctx context.Context, dl event.DeadLetter) outbox.Outcome {
	r := p.bus.PublishBatch(ctx, []eventbus.Message{{
		Topic: dl.Topic, Tag: dl.Tag, Key: dl.EventID, Body: dl.Body, Headers: dl.Headers,
	}})[0]
	return outbox.Outcome{Class: classOf(r.Status), Err: r.Err}
}

func deadDiscardCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{Use: "discard [ID...]", Short: "Close OPEN dead letters for good; the rows stay"}
	return deadActCommand(t, cmd, "discarded", func(*cobra.Command) (func(context.Context, *outbox.DeadLetterStore, int64, outbox.Act) error, func(), error) {
		act := func(ctx context.Context, s *outbox.DeadLetterStore, id int64, a outbox.Act) error {
			return s.Discard(ctx, id, a)
		}
		return act, func() {}, nil
	})
}
