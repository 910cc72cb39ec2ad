package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/service"
)

// tools is what the operator's commands share. The configuration is filled when one
// of them runs.
type tools struct {
	cfg *Config
}

// withStore runs work with a store whose pool is closed afterwards.
func (t *tools) withPool(cmd *cobra.Command, work func(ctx context.Context, pool *sql.DB) error) (err error) {
	pool, err := t.pool()
	if err != nil {
		return err
	}
	defer func() {
		if e := pool.Close(); e != nil && err == nil {
			err = e
		}
	}()
	return work(cmd.Context(), pool)
}

// usage is an error of how a command was called.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return fmt.Errorf("%w: %s; see `%s --help`", service.ErrUsage, fmt.Sprintf(format, args...), cmd.CommandPath())
}

// noArgs refuses arguments, with the exit code of wrong usage.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, "unexpected argument %q", args[0])
	}
	return nil
}

func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON")
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// table writes tab-separated lines in columns.
func table(w io.Writer, write func(w io.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	write(t)
	return t.Flush()
}

// plain shows a text that somebody else wrote in one line of a table: a control
// character would break the line, or speak to the terminal.
func plain(s string) string {
	if strings.ContainsFunc(s, unicode.IsControl) {
		s = strings.Trim(strconv.Quote(s), `"`)
	}
	return s
}

// actFlags are the flags of a command that changes something.
type actFlags struct {
	who, reason string
	rate        int
}

func (a *actFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.who, "who", "", "who acts (default: the user of this system)")
	cmd.Flags().StringVar(&a.reason, "reason", "", "why (required); it is kept in mq_audit")
}

func (a *actFlags) bindRate(cmd *cobra.Command) {
	cmd.Flags().IntVar(&a.rate, "rate", 0, "most events a second; 0 sets no limit")
}

func (a *actFlags) act(cmd *cobra.Command) (outbox.Act, error) {
	if strings.TrimSpace(a.reason) == "" {
		return outbox.Act{}, usage(cmd, "--reason is missing: whoever reads the audit wants to know why")
	}
	if a.rate < 0 {
		return outbox.Act{}, usage(cmd, "--rate %d is negative", a.rate)
	}
	who := a.who
	if who == "" {
		if u, err := user.Current(); err == nil {
			who = u.Username
		}
	}
	if who == "" {
		return outbox.Act{}, usage(cmd, "--who is missing, and this system knows no user name")
	}
	return outbox.Act{Who: who, Reason: a.reason, Rate: a.rate}, nil
}

// filterFlags select rows of outbox_event.
type filterFlags struct {
	filter   outbox.Filter
	typ      string
	from, to string
}

func (f *filterFlags) bind(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.filter.ID, "id", "", "the row's id")
	fs.StringVar(&f.filter.EventID, "event-id", "", "the event's id")
	fs.StringVar(&f.typ, "type", "", "event type, such as PUSH_DISPATCH")
	fs.StringVar(&f.filter.AggregateType, "aggregate-type", "", "such as push_task")
	fs.StringVar(&f.filter.AggregateID, "aggregate-id", "", "id of the business row")
	fs.StringVar(&f.from, "from", "", "created at or after this time (RFC 3339, such as 2026-07-19T08:00:00+07:00)")
	fs.StringVar(&f.to, "to", "", "created before this time")
}

func (f *filterFlags) bindAll(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.filter.All, "all", false, "all rows of the status; needed where nothing else selects")
}

func (f *filterFlags) get(cmd *cobra.Command) (outbox.Filter, error) {
	out := f.filter
	out.Type = eventType(f.typ)
	for _, t := range []struct {
		name, text string
		into       *time.Time
	}{{"from", f.from, &out.From}, {"to", f.to, &out.To}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, t.text)
		if err != nil {
			return out, usage(cmd, "--%s %q is not of the form 2026-07-19T08:00:00+07:00", t.name, t.text)
		}
		*t.into = at
	}
	if !out.From.IsZero() && !out.To.IsZero() && !out.From.Before(out.To) {
		return out, usage(cmd, "--from must be before --to")
	}
	return out, nil
}
