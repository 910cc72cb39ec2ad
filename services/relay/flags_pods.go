package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/flags"
)

// lookAgain is how often a waiting command looks at what the pods go by.
const lookAgain = 250 * time.Millisecond

// errLag: the change is written, and some pod has not seen it.
var errLag = errors.New("the change is written, but not every pod goes by it yet")

// printPods shows which version of its flag each pod goes by. rows are versions of the
// flags; of several of one flag the highest counts.
func printPods(w io.Writer, rows []flags.Row, pods []flags.Pod) error {
	if len(pods) == 0 {
		_, err := fmt.Fprintf(w, "\nno pod gave a sign of life within %s\n", flags.PodAlive)
		return err
	}
	_, _ = fmt.Fprintln(w)
	return table(w, func(out io.Writer) {
		_, _ = fmt.Fprintln(out, "POD\tROLE\tFLAG\tCOUNTRY\tVERSION SEEN\tSINCE\tDECIDED BY\tSIGN OF LIFE")
		for _, p := range pods {
			version := fmt.Sprint(p.Version)
			if latest := latestOf(rows, p); p.Lags(latest) {
				version += fmt.Sprintf(" LAGS behind %d", latest)
			}
			_, _ = fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s ago\t%s\t%s ago\n", p.Instance, p.Role, p.Flag, p.Country, version,
				p.Since.Round(time.Second), p.GoesBy, p.Seen.Round(time.Second))
		}
	})
}

func latestOf(rows []flags.Row, p flags.Pod) int64 {
	var latest int64
	for _, r := range rows {
		if r.Flag == p.Flag && r.Country == p.Country {
			latest = max(latest, r.Version)
		}
	}
	return latest
}

// awaitPods waits until every pod has seen the row, no longer than bound, and returns
// errLag with the names of those that have not. A bound of 0 asks for nothing.
func awaitPods(ctx context.Context, w io.Writer, pool *sql.DB, row flags.Row, bound time.Duration) error {
	if bound <= 0 {
		return nil
	}
	began := time.Now()
	for {
		pods, err := flags.PodsOf(ctx, pool, row.Flag, row.Country)
		if err != nil {
			return fmt.Errorf("the change is written; %w", err)
		}
		lag := lagging(pods, row.Version)
		if len(lag) == 0 {
			return tellSeen(w, pods, time.Since(began))
		}
		if time.Since(began) >= bound {
			return fmt.Errorf("%w after %s: %s", errLag, bound, strings.Join(lag, "; "))
		}
		if !backoff.Sleep(ctx, min(lookAgain, bound)) {
			return fmt.Errorf("%w: %w", errLag, context.Cause(ctx))
		}
	}
}

// lagging describes the pods that go by an older version.
func lagging(pods []flags.Pod, version int64) (lag []string) {
	for _, p := range pods {
		if p.Lags(version) {
			lag = append(lag, fmt.Sprintf("%s (%s) is at version %d, its last sign of life was %s ago", p.Instance, p.Role, p.Version, p.Seen.Round(time.Second)))
		}
	}
	return lag
}

func tellSeen(w io.Writer, pods []flags.Pod, took time.Duration) error {
	if len(pods) == 0 {
		_, err := fmt.Fprintf(w, "no pod of this flag gave a sign of life within %s\n", flags.PodAlive)
		return err
	}
	var stubborn []string
	for _, p := range pods {
		if p.GoesBy != flags.SourceRow {
			stubborn = append(stubborn, fmt.Sprintf("%s (%s) goes by its %s", p.Instance, p.Role, p.GoesBy))
		}
	}
	_, err := fmt.Fprintf(w, "seen by all %d pods after %s\n", len(pods), took.Round(100*time.Millisecond))
	if len(stubborn) > 0 {
		_, err = fmt.Fprintf(w, "seen, but not followed: %s\n", strings.Join(stubborn, "; "))
	}
	return err
}

// orEmpty makes an empty list of none, for JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
