package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

func eventCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "event EVENT_ID",
		Short: "Show where one event is, and why it may not have had its effect",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usage(cmd, "want one EVENT_ID, such as push:4711")
			}
			return nil
		},
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
			found, err := outbox.NewStore(pool).Find(ctx, args[0])
			if err != nil {
				return err
			}
			hints, err := t.hints(ctx, pool, found)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"found": orEmpty(found), "hints": hints})
			}
			return printSightings(cmd.OutOrStdout(), found, hints)
		})
	}
	return cmd
}

func printSightings(w io.Writer, found []outbox.Sighting, hints []string) error {
	if len(found) > 0 {
		err := table(w, func(w io.Writer) {
			_, _ = fmt.Fprintln(w, "TABLE\tSTATE\tTYPE\tROW\tGROUP\tATTEMPTS\tWRITTEN\tPUBLISHED\tNEXT\tREQUEUED\tWHY")
			for _, f := range found {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s %s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", f.Table, f.State, plain(string(f.Type)), plain(f.Aggregate), plain(f.AggregateID),
					f.Group, f.Attempts, f.Written.Format(time.RFC3339), timeOrDash(f.Published), timeOrDash(f.Next), timeOrDash(f.Requeued), plain(f.Why))
			}
		})
		if err != nil {
			return err
		}
	}
	for _, h := range hints {
		if _, err := fmt.Fprintln(w, h); err != nil {
			return err
		}
	}
	return nil
}

func timeOrDash(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}

// hints say what each sighting means, and what to do next.
func (t *tools) hints(ctx context.Context, pool *sql.DB, found []outbox.Sighting) ([]string, error) {
	if len(found) == 0 {
		return []string{"no such event: its transaction was rolled back or is still open, or the row was purged after " +
			t.cfg.Relay.Retention.String() + " (a business row without an event is the poll's)"}, nil
	}
	var hints []string
	for _, f := range found {
		switch f.State {
		case outbox.StatusPending:
			hints = append(hints, "PENDING: the relay has not published it; `relay status` says whether it works and what hinders it")
		case outbox.StatusFailed:
			hints = append(hints, "FAILED: the broker refused it, or its attempts are used up; see WHY, then `relay requeue` or `relay discard`")
		case outbox.StatusPublished:
			about, err := t.aboutFlag(ctx, pool, f)
			if err != nil {
				return nil, err
			}
			hints = append(hints, "PUBLISHED: the broker has it; `relay bus` shows whether its group lags, the consumer's log has its event_id where it failed", about)
		case "DELAYED":
			hints = append(hints, "DELAYED: it is published when it is due (NEXT)")
		case "DISCARDED":
			hints = append(hints, "DISCARDED: a person gave it up (WHY)")
		case outbox.DeadOpen:
			hints = append(hints, "OPEN dead letter: the group gave up on it; `relay dead show` and `relay dead replay`")
		default:
			hints = append(hints, f.State+" dead letter: a person has dealt with it; `relay dead list --status "+f.State+"`")
		}
	}
	return hints, nil
}

// flagOf is the flag that decides about an event, and whether its aggregate_id is what
// the rollout goes by.
func flagOf(t event.Type) (name flags.Name, byAggregate bool) {
	switch t {
	case event.PushDispatch:
		return flags.PushDispatch, true
	case event.CouponExpire:
		return flags.CouponExpire, true
	case event.CampaignProductSync:
		return flags.CampaignSync, false
	case event.OpsCounter:
		return flags.OpsSnapshot, false
	}
	return "", false
}

// aboutFlag says whether the row is the event path's now, as far as the database knows.
func (t *tools) aboutFlag(ctx context.Context, pool *sql.DB, s outbox.Sighting) (string, error) {
	name, byAggregate := flagOf(s.Type)
	if name == "" {
		return fmt.Sprintf("nothing here consumes %s", plain(string(s.Type))), nil
	}
	all, err := flags.New(pool, flags.Config{}, t.cfg.Base.Country, nil)
	if err == nil {
		err = all.Refresh(zerolog.Nop().WithContext(ctx)) // it would log each flag, as a service does
	}
	if err != nil {
		return "", err
	}
	state := all.Get(name)
	text := fmt.Sprintf("flag %s is off: the consumer skips the event, the poll does the work", name)
	switch {
	case state.Enabled && byAggregate && !state.On(s.AggregateID):
		text = fmt.Sprintf("flag %s is on for %.2f %%, and not for this row: the consumer skips the event, the poll does the work", name, float64(state.BasisPoints)/100)
	case state.Enabled && byAggregate:
		text = fmt.Sprintf("flag %s is on for this row: the consumer does the work", name)
	case state.Enabled:
		text = fmt.Sprintf("flag %s is on for %.2f %%", name, float64(state.BasisPoints)/100)
	}
	return text + " (now, and unless a process's environment says false: `relay flags list`)", nil
}
