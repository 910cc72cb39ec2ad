package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/service"
)

// tools is what the operator's commands share. The configuration is filled when one runs.
type tools struct{ cfg *Config }

// page reads one screen of a command and prints it.
type page func(ctx context.Context, r reader, out io.Writer, asJSON bool) error

// command makes a command of a page, with --json and --watch.
func (t *tools) command(use, short string, show func(*cobra.Command) page) *cobra.Command {
	var asJSON bool
	var every time.Duration
	cmd := &cobra.Command{Use: use, Short: short, Args: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("%w: unexpected argument %q; see `%s --help`", service.ErrUsage, args[0], cmd.CommandPath())
		}
		return nil
	}}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().DurationVar(&every, "watch", 0, "print again and again with this pause, such as --watch=5s")
	read := show(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		pool, err := db.OpenSQL(t.cfg.DB, db.WithPool(2))
		if err != nil {
			return err
		}
		defer func() { _ = pool.Close() }()
		st := store{pool: pool, country: t.cfg.Base.Country}
		for {
			if err := once(cmd, st, t.cfg.Sweep.StatementTimeout, read, asJSON); err != nil || every <= 0 {
				return err
			}
			if !backoff.Sleep(cmd.Context(), every) {
				return nil
			}
			if !asJSON {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", time.Now().UTC().Format(time.RFC3339))
			}
		}
	}
	return cmd
}

func once(cmd *cobra.Command, st store, limit time.Duration, read page, asJSON bool) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), 30*time.Second)
	defer cancel()
	r, err := st.reader(ctx, limit)
	if err != nil {
		return err
	}
	return errors.Join(read(ctx, r, cmd.OutOrStdout(), asJSON), r.close())
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// figureLine is one figure of the last sweep.
type figureLine struct {
	Name      string   `json:"name"`
	Subject   string   `json:"subject,omitempty"`
	Value     *float64 `json:"value"` // null: unknown
	Unit      string   `json:"unit,omitempty"`
	Threshold *float64 `json:"threshold,omitempty"`
	Source    string   `json:"source"`
	// Age is how long ago it was measured, in seconds.
	Age     float64 `json:"age_seconds"`
	Note    string  `json:"note,omitempty"`
	EventID string  `json:"event_id,omitempty"`
	Twelve  bool    `json:"business"`
}

func figuresCommand(t *tools) *cobra.Command {
	return t.command("figures", "Show the twelve figures and those of the pipe: value, source, age, threshold", func(cmd *cobra.Command) page {
		return func(ctx context.Context, r reader, out io.Writer, asJSON bool) error {
			lines, err := r.figureLines(ctx, t.cfg.Base.Country)
			if err != nil {
				return err
			}
			describeLines(lines, t.cfg.Thresholds.byName())
			if asJSON {
				return printJSON(out, lines)
			}
			return printFigures(out, lines)
		}
	})
}

// describeLines adds what stands in the code: unit and threshold.
func describeLines(lines []figureLine, thresholds map[string]float64) {
	units, limits := map[string]string{}, map[string]float64{}
	for _, d := range definitions() {
		units[d.Name] = d.Unit
	}
	for _, r := range rules() {
		if e, err := parseExpr(r.Expr, thresholds); err == nil && e.terms[0].op != opUnknown {
			limits[e.terms[0].figure] = e.terms[0].value
		}
	}
	for i := range lines {
		l := &lines[i]
		l.Unit, l.Twelve = units[l.Name], units[l.Name] != ""
		switch {
		case strings.HasSuffix(l.Name, "_age"), l.Name == "publish_silence", l.Name == "lease_held", l.Name == "zone_offset":
			l.Unit = unitSeconds
		case strings.HasSuffix(l.Name, "_share"):
			l.Unit = unitShare
		}
		if v, ok := limits[l.Name]; ok {
			l.Threshold = &v
		}
	}
}

func printFigures(out io.Writer, lines []figureLine) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "FIGURE\tABOUT\tVALUE\tTHRESHOLD\tSOURCE\tAGE\tNOTE")
	for _, twelve := range []bool{true, false} {
		for _, l := range lines {
			if l.Twelve != twelve {
				continue
			}
			limit := "–"
			if l.Threshold != nil {
				limit = show(l.Threshold, l.Unit)
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Name, l.Subject, show(l.Value, l.Unit), limit, l.Source,
				time.Duration(l.Age*float64(time.Second)).Round(time.Second), clean(l.Note, 100))
		}
	}
	if len(lines) == 0 {
		_, _ = fmt.Fprintln(w, "no sweep has run yet")
	}
	return w.Flush()
}

// alertPage is what `alerts` shows.
type alertPage struct {
	Open   []alertLine    `json:"open"`
	Recent []alertLine    `json:"recent"`
	Queue  map[string]int `json:"messages"` // by route and status
}

type alertLine struct {
	State     string   `json:"state"`
	Severity  string   `json:"severity"`
	Rule      string   `json:"rule"`
	Subject   string   `json:"subject,omitempty"`
	Task      string   `json:"task"`
	Value     *float64 `json:"value"`
	Threshold *float64 `json:"threshold,omitempty"`
	Unit      string   `json:"unit,omitempty"`
	Since     string   `json:"since"`
	Resolved  string   `json:"resolved,omitempty"`
	Episode   int      `json:"episode"`
	TraceID   string   `json:"trace_id,omitempty"`
	RequestID string   `json:"request_id,omitempty"`
	Print     string   `json:"fingerprint"`
}

func lineOf(a alert) alertLine {
	l := alertLine{
		State: a.State, Severity: a.Severity, Rule: a.Rule, Subject: a.Subject, Task: a.Detail.Task, Value: a.Value,
		Threshold: a.Threshold, Unit: a.Detail.Unit, Since: event.FormatTime(a.Since), Episode: a.Episode,
		TraceID: a.Detail.TraceID, RequestID: a.Detail.RequestID, Print: a.Fingerprint,
	}
	if a.ResolvedAt != nil {
		l.Resolved = event.FormatTime(*a.ResolvedAt)
	}
	return l
}

func alertsCommand(t *tools) *cobra.Command {
	return t.command("alerts", "Show the open alerts, the recent ones, and the messages that wait", func(cmd *cobra.Command) page {
		return func(ctx context.Context, r reader, out io.Writer, asJSON bool) error {
			p := alertPage{Open: []alertLine{}, Recent: []alertLine{}}
			open, recent, err := r.alertList(ctx, t.cfg.Base.Country)
			if err != nil {
				return err
			}
			for _, a := range open {
				p.Open = append(p.Open, lineOf(a))
			}
			for _, a := range recent {
				p.Recent = append(p.Recent, lineOf(a))
			}
			if p.Queue, err = r.messageCounts(ctx, t.cfg.Base.Country); err != nil {
				return err
			}
			if asJSON {
				return printJSON(out, p)
			}
			return printAlerts(out, p)
		}
	})
}

func printAlerts(out io.Writer, p alertPage) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "STATE\tSEVERITY\tRULE\tABOUT\tVALUE\tTHRESHOLD\tSINCE\tRESOLVED\tTRACE OR REQUEST")
	for _, l := range append(p.Open, p.Recent...) {
		id := l.TraceID
		if id == "" {
			id = l.RequestID
		}
		limit := "–"
		if l.Threshold != nil {
			limit = show(l.Threshold, l.Unit)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.State, l.Severity, l.Rule, clean(l.Subject, 60), show(l.Value, l.Unit),
			limit, l.Since, l.Resolved, id)
	}
	if len(p.Open) == 0 {
		_, _ = fmt.Fprintln(w, "no alert is open")
	}
	for key, n := range p.Queue {
		_, _ = fmt.Fprintf(w, "messages %s: %d\n", key, n)
	}
	return w.Flush()
}
