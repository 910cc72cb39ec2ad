package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/service"
)

// aliveWithin is how recent a process's sign of life must be to be listed.
const aliveWithin = flags.PodAlive

// flagTools is what the flag commands need of the relay: its pool, opened when a
// command runs, and its country, known once the configuration is loaded.
type flagTools struct {
	open    func() (*sql.DB, error)
	country func() string
}

// flagsCommand is `relay flags list|set|history`.
func flagsCommand(open func() (*sql.DB, error), country func() string) *cobra.Command {
	t := flagTools{open: open, country: country}
	cmd := &cobra.Command{Use: "flags", Short: "Show and change what runs by events and what by the poll"}
	var asJSON bool
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(t.listCommand(&asJSON), t.setCommand(&asJSON), t.historyCommand(&asJSON))
	return cmd
}

// withPool runs a command's work with a pool that is closed after it.
func (t flagTools) withPool(cmd *cobra.Command, work func(ctx context.Context, pool *sql.DB) error) (err error) {
	pool, err := t.open()
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := pool.Close(); closeErr != nil && err == nil {
			err = closeErr
		}
	}()
	return work(cmd.Context(), pool)
}

func (t flagTools) listCommand(asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the flags of all countries, and which version each pod goes by, since when",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
				rows, err := flags.List(ctx, pool)
				if err != nil {
					return err
				}
				pods, err := flags.Pods(ctx, pool)
				if err != nil {
					return err
				}
				if *asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"flags": orEmpty(rows), "pods": orEmpty(pods)})
				}
				return printFlagList(cmd.OutOrStdout(), rows, pods)
			})
		},
	}
}

func printFlagList(w io.Writer, rows []flags.Row, pods []flags.Pod) error {
	if err := printFlagRows(w, rows); err != nil {
		return err
	}
	if len(rows) == 0 {
		_, _ = fmt.Fprintln(w, "no rows: the environment of each process decides, off unless it says true")
	}
	return printPods(w, rows, pods)
}

func printFlagRows(w io.Writer, rows []flags.Row) error {
	return table(w, func(out io.Writer) {
		_, _ = fmt.Fprintln(out, "FLAG\tCOUNTRY\tSTATE\tROLLOUT\tVERSION\tBINDING FROM\tWHO\tWHY")
		for _, r := range rows {
			state := "off"
			if r.Enabled {
				state = "on"
			}
			_, _ = fmt.Fprintf(out, "%s\t%s\t%s\t%.2f %%\t%d\t%s\t%s\t%s\n", r.Flag, r.Country, state, float64(r.BasisPoints)/100,
				r.Version, r.EffectiveAt.Format("2006-01-02 15:04:05 Z07:00"), r.UpdatedBy, r.Reason)
		}
	})
}

// setArgs are the options of `relay flags set`.
type setArgs struct {
	percent float64
	country string
	who     string
	reason  string
	version int64
	wait    time.Duration
}

func (t flagTools) setCommand(asJSON *bool) *cobra.Command {
	var a setArgs
	cmd := &cobra.Command{
		Use:   "set FLAG on|off",
		Short: "Turn a flag on, for some or all rows, or off",
		Long: fmt.Sprintf(`Turn a flag on, for some or all rows, or off.

Every process acts on it within %s; until then both paths may work on a row, never
neither. An explicit false in a process's environment beats what is set here. With
--wait the command tells when all pods have seen it, or which of them have not; the
change is written either way.`, flags.HandOver),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 || (args[1] != "on" && args[1] != "off") {
				return usage(cmd, "want FLAG on|off")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := t.change(cmd, args, a)
			if err != nil {
				return err
			}
			return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
				row, err := flags.Set(ctx, pool, change)
				if errors.Is(err, flags.ErrInvalidChange) {
					return fmt.Errorf("%w: %w", service.ErrUsage, err)
				}
				if err != nil {
					return err
				}
				if *asJSON {
					err = printJSON(cmd.OutOrStdout(), row)
				} else {
					err = printFlagRows(cmd.OutOrStdout(), []flags.Row{row})
				}
				return errors.Join(err, awaitPods(ctx, cmd.ErrOrStderr(), pool, row, a.wait))
			})
		},
	}
	f := cmd.Flags()
	f.Float64Var(&a.percent, "percent", 100, "share of rows to give to events, in steps of 0.01 (with on)")
	f.StringVar(&a.country, "country", "", "country of the flag (default: SEAHUB_COUNTRY)")
	f.StringVar(&a.who, "who", "", "who changes it (default: the user of this system)")
	f.StringVar(&a.reason, "reason", "", "why (required)")
	f.DurationVar(&a.wait, "wait", 0, "wait so long for every pod to go by it; exit 1 and name those that do not")
	f.Int64Var(&a.version, "version", -1, "refuse unless the flag is at this version (0: has no row)")
	return cmd
}

func (t flagTools) change(cmd *cobra.Command, args []string, a setArgs) (flags.Change, error) {
	c := flags.Change{Flag: flags.Name(args[0]), Country: a.country, Enabled: args[1] == "on", Who: a.who, Why: a.reason}
	if c.Country == "" {
		c.Country = t.country()
	}
	if c.Who == "" {
		if u, err := user.Current(); err == nil {
			c.Who = u.Username
		}
	}
	if c.Enabled {
		c.BasisPoints = int(a.percent*100 + 0.5)
	}
	if a.version >= 0 {
		c.Version = &a.version
	}
	switch {
	case strings.TrimSpace(a.reason) == "":
		return c, usage(cmd, "--reason is missing: whoever reads the history wants to know why")
	case !c.Enabled && cmd.Flags().Changed("percent"):
		return c, usage(cmd, "--percent goes with on only")
	case a.wait < 0:
		return c, usage(cmd, "--wait %s is negative", a.wait)
	case a.percent < 0 || a.percent > 100:
		return c, usage(cmd, "--percent %v: from 0 to 100", a.percent)
	}
	return c, nil
}

func (t flagTools) historyCommand(asJSON *bool) *cobra.Command {
	var country string
	var limit int
	cmd := &cobra.Command{
		Use:   "history FLAG",
		Short: "Show who changed a flag, when and why, the latest first, and which version each pod goes by",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || limit < 1 {
				return usage(cmd, "want one FLAG and a positive limit")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if country == "" {
				country = t.country()
			}
			return t.withPool(cmd, func(ctx context.Context, pool *sql.DB) error {
				rows, err := flags.History(ctx, pool, flags.Name(args[0]), country, limit)
				if err != nil {
					return err
				}
				pods, err := flags.PodsOf(ctx, pool, flags.Name(args[0]), country)
				if err != nil {
					return err
				}
				if *asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"history": orEmpty(rows), "pods": orEmpty(pods)})
				}
				if err := printFlagRows(cmd.OutOrStdout(), rows); err != nil {
					return err
				}
				return printPods(cmd.OutOrStdout(), rows, pods)
			})
		},
	}
	cmd.Flags().StringVar(&country, "country", "", "country of the flag (default: SEAHUB_COUNTRY)")
	cmd.Flags().IntVar(&limit, "limit", 20, "most changes to show")
	return cmd
}
