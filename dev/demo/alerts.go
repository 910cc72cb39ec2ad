package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/dev/books"
	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv/feishufake"
)

const (
	// alertTime bounds how long a fault lasts at most until people hear of it; what they
	// did not hear by then the verdict tells.
	alertTime = 30 * time.Second
	// cardsFile keeps the messages as they were sent; figuresFile what `figures` says at
	// the end. They stay after the run.
	cardsFile   = "feishu-cards.json"
	figuresFile = "figures.txt"
)

// thresholds scale the alerts down from minutes to seconds.
func thresholds() map[string]string {
	return map[string]string{
		"SEAHUB_OPS_SWEEP_EVERY":               "500ms",
		"SEAHUB_ALERT_FOR":                     "1s",
		"SEAHUB_ALERT_CLEAR_FOR":               "1s",
		"SEAHUB_ALERT_SEND_EVERY":              "200ms",
		"SEAHUB_OPS_THRESHOLD_OUTBOX_AGE":      "2500ms",
		"SEAHUB_OPS_THRESHOLD_PUBLISH_SILENCE": "2500ms",
		"SEAHUB_OPS_THRESHOLD_GROUP_AGE":       "6s",
	}
}

// startOps starts the watch: what it has to say goes to the fake of Feishu.
func (r *run) startOps(ctx context.Context) error {
	env := thresholds()
	env["SEAHUB_FEISHU_HOOK"], env["SEAHUB_FEISHU_SECRET"], env["SEAHUB_ALERT_SECOND_HOOK"] = r.feishu.Hook(), r.feishu.Secret(), r.feishu.Plain()
	s, err := r.stack.StartService(ctx, "ops-consumer", "ops", env, "run", "--role=all")
	if err != nil {
		return err
	}
	if err := s.AwaitReady(ctx); err != nil {
		return err
	}
	r.ops = s
	return nil
}

// introduceOps says where to look, and what was scaled down.
func (r *run) introduceOps() {
	keys := slices.Sorted(maps.Keys(thresholds()))
	for i, k := range keys {
		keys[i] = k + "=" + thresholds()[k]
	}
	r.say.printf("  alerts are scaled down from minutes to seconds (docs/configuration.md has what production uses):\n    %s", strings.Join(keys, "\n    "))
	r.say.printf("  while this runs: metrics of ops-consumer at http://%s/metrics, its figures and alerts by\n    SEAHUB_COUNTRY=%s SEAHUB_ENV=%s SEAHUB_DB_DSN='%s' %s figures   (or alerts)",
		r.ops.Admin, stack.Country, stack.Env, r.stack.DSN, r.inCheckout("bin", "ops-consumer"))
}

// inCheckout is a path below the run's folder, short where it can be.
func (r *run) inCheckout(parts ...string) string {
	path := filepath.Join(append([]string{r.o.Dir}, parts...)...)
	if short, err := filepath.Rel(r.o.Root, path); err == nil && !strings.HasPrefix(short, "..") {
		return short
	}
	return path
}

// chat shows each message in a line when it comes.
func (r *run) chat(ctx context.Context) {
	seen := 0
	for pause(ctx, 100*time.Millisecond) == nil {
		all := r.feishu.Shown()
		for _, m := range all[seen:] {
			r.say.printf("! Feishu: %s", m.Title)
		}
		seen = len(all)
	}
}

// untilTold waits until people hear of a rule by a message since then, or have waited
// long enough.
func (r *run) untilTold(ctx context.Context, rule string, since time.Time) error {
	return r.until(ctx, func(all []books.Told) bool {
		return slices.ContainsFunc(all, func(t books.Told) bool { return t.Rule == rule && !t.Resolved && t.At.After(since) })
	})
}

// untilResolved waits until no alert of a rule stands, or it has waited long enough.
func (r *run) untilResolved(ctx context.Context, rule string) error {
	return r.until(ctx, func(all []books.Told) bool {
		return unresolved(slices.DeleteFunc(all, func(t books.Told) bool { return t.Rule != rule })) == 0
	})
}

func (r *run) until(ctx context.Context, what func([]books.Told) bool) error {
	for end := time.Now().Add(alertTime); time.Now().Before(end) && !what(told(r.feishu.Shown())); {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// unresolved counts the alerts that people heard of and got no all-clear for.
func unresolved(all []books.Told) int {
	open := map[string]bool{}
	for _, t := range all {
		key := t.Alert + "#" + strconv.Itoa(t.Episode)
		if t.Resolved {
			delete(open, key)
		} else {
			open[key] = true
		}
	}
	return len(open)
}

// told turns the fake's record into evidence. A message may be about several alerts.
func told(messages []feishufake.Message) []books.Told {
	title := regexp.MustCompile(`^\[([^]]+)\]\[([^]]+)\] (\w+)$`)
	alert := regexp.MustCompile(`(?m)^alert: (\S+), episode (\d+)$`)
	var out []books.Told
	for _, m := range messages {
		t := books.Told{At: m.At, Lacks: lacks(m)}
		if parts := title.FindStringSubmatch(m.Title); parts != nil {
			t.Resolved, t.Rule = parts[1] == "resolved", parts[3]
		} else {
			t.Lacks = "a title"
		}
		for _, parts := range alert.FindAllStringSubmatch(m.Text, -1) {
			t.Alert = parts[1]
			t.Episode, _ = strconv.Atoi(parts[2]) // the pattern has digits only
			out = append(out, t)
		}
	}
	return out
}

// lacks says what a message should have said.
func lacks(m feishufake.Message) string {
	for _, part := range []string{stack.Env, stack.Country, "task: ", "value: ", "since: ", "runbook"} {
		if !strings.Contains(m.Text, part) {
			return strings.TrimSuffix(part, ": ")
		}
	}
	if !strings.Contains(m.Text, "trace: ") && !strings.Contains(m.Text, "request: ") {
		return "trace or request"
	}
	return ""
}

// cards are the messages for a person to read: the first of each title in full, of the
// all-clears one.
func cards(messages []feishufake.Message) string {
	var text strings.Builder
	shown := map[string]bool{}
	for _, m := range messages {
		clears := strings.HasPrefix(m.Title, "[resolved]")
		kind := m.Title
		if clears {
			kind = "[resolved]"
		}
		if shown[m.Title] {
			continue
		}
		fmt.Fprintf(&text, "  ┌ %s   %s\n", m.Title, m.At.UTC().Format("15:04:05"))
		if !shown[kind] {
			for line := range strings.SplitSeq(m.Text, "\n") {
				fmt.Fprintf(&text, "  │ %s\n", strings.ReplaceAll(line, "**", ""))
			}
		}
		shown[m.Title], shown[kind] = true, true
	}
	return text.String()
}

// showCards prints what people read, and keeps it with the figures.
func (r *run) showCards(ctx context.Context) error {
	messages := r.feishu.Shown()
	bodies := make([]json.RawMessage, 0, len(messages))
	for _, m := range messages {
		bodies = append(bodies, json.RawMessage(m.Body))
	}
	raw, err := json.MarshalIndent(bodies, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the cards: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.o.Dir, cardsFile), raw, 0o600); err != nil {
		return fmt.Errorf("keep the cards: %w", err)
	}
	figures, code, err := r.stack.Command(ctx, "ops-consumer", thresholds(), "figures")
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if err != nil {
		return fmt.Errorf("ops-consumer figures: %w: %s", err, figures)
	}
	if err := os.WriteFile(filepath.Join(r.o.Dir, figuresFile), []byte(figures), 0o600); err != nil {
		return fmt.Errorf("keep the figures: %w", err)
	}
	r.say.printf("\nWhat people read in Feishu (each title once, %d messages in all; as JSON in %s):\n%s", len(messages), r.inCheckout(cardsFile), cards(messages))
	r.say.printf("The figures at the end are in %s; `make up` leaves a system running that shows them live.", r.inCheckout(figuresFile))
	return nil
}
