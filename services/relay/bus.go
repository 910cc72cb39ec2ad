package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

// knownTasks are the tasks whose groups a deployment has; one that is not on the broker
// shows as such.
var knownTasks = []string{"push_dispatch", "coupon_expire", "campaign_sync", "ops_snapshot"}

func busCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bus",
		Short: "Show topics, groups, members, backlog, parked messages and oldest ages on the broker",
		Long: `Show topics, groups, members, backlog, parked messages and oldest ages on the broker.

BACKLOG is what a group has still to finish: unread, in flight and parked. OLDEST is
the age of the oldest of these. A figure that the broker does not tell is printed as
"unknown", in JSON as null; it is never zero.`,
		Args: noArgs,
	}
	group := cmd.Flags().String("group", "", "this consumer group only")
	timeout := cmd.Flags().Duration("timeout", 10*time.Second, "longest wait for the broker")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		bus, err := openBus(ctx, t.cfg)
		if err != nil {
			return err
		}
		defer func() { _ = bus.Close(context.WithoutCancel(ctx)) }()
		view, err := lookAtBus(ctx, bus.Inspector(), t.cfg.Base.Country, *group)
		if err != nil {
			return err
		}
		view.Warnings = bus.Warnings()
		if *asJSON {
			return printJSON(cmd.OutOrStdout(), view)
		}
		return printBus(cmd.OutOrStdout(), view)
	}
	return cmd
}

// busView is what `relay bus` shows.
type busView struct {
	Topics   []topicView `json:"topics"`
	Warnings []string    `json:"warnings,omitempty"`
}

type topicView struct {
	Topic  string      `json:"topic"`
	Groups []groupView `json:"groups"`
}

// groupView has nil for what is unknown.
type groupView struct {
	Group            string   `json:"group"`
	Members          []string `json:"members"`
	Backlog          *int64   `json:"backlog"`
	InFlight         *int64   `json:"in_flight"`
	Parked           *int64   `json:"parked"`
	OldestAgeSeconds *float64 `json:"oldest_age_seconds"`
	Error            string   `json:"error,omitempty"`
}

// lookAtBus asks for every topic of the deployment and its groups. What one group does
// not tell takes nothing from the others; an error means that nothing could be learned.
func lookAtBus(ctx context.Context, broker driver.Inspector, country, only string) (busView, error) {
	topics, err := broker.Topics(ctx)
	if err != nil {
		return busView{}, err
	}
	if own := eventbus.Topic(country); !slices.Contains(topics, own) {
		topics = append(topics, own)
	}
	view := busView{Topics: []topicView{}}
	for _, topic := range topics {
		groups, err := groupsOf(ctx, broker, topic, country)
		if err != nil {
			return busView{}, err
		}
		tv := topicView{Topic: topic, Groups: []groupView{}}
		for _, g := range groups {
			if only == "" || g == only {
				tv.Groups = append(tv.Groups, lookAtGroup(ctx, broker, topic, g))
			}
		}
		view.Topics = append(view.Topics, tv)
	}
	return view, nil
}

// groupsOf joins the groups that the broker has with those that it should have.
func groupsOf(ctx context.Context, broker driver.Inspector, topic, country string) ([]string, error) {
	var groups []string
	if lister, ok := broker.(driver.GroupLister); ok {
		var err error
		if groups, err = lister.Groups(ctx, topic); err != nil {
			return nil, err
		}
	}
	if topic == eventbus.Topic(country) {
		for _, task := range knownTasks {
			groups = append(groups, eventbus.Group(country, task))
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), nil
}

func lookAtGroup(ctx context.Context, broker driver.Inspector, topic, group string) groupView {
	g, err := broker.Group(ctx, topic, group)
	v := groupView{Group: group, Members: []string{}}
	switch {
	case errors.Is(err, driver.ErrNoGroup):
		v.Error = "not on the broker: no consumer of it has run yet"
		return v
	case err != nil:
		v.Error = err.Error()
		return v
	}
	known := func(c driver.Count) *int64 {
		if !c.Known {
			return nil
		}
		return &c.N
	}
	v.Backlog, v.InFlight, v.Parked = known(g.Backlog), known(g.InFlight), known(g.Parked)
	if g.OldestAge.Known {
		seconds := g.OldestAge.D.Seconds()
		v.OldestAgeSeconds = &seconds
	}
	v.Members = append(v.Members, g.Members...)
	return v
}

func printBus(out io.Writer, view busView) error {
	err := table(out, func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "TOPIC\tGROUP\tMEMBERS\tBACKLOG\tIN FLIGHT\tPARKED\tOLDEST\tNOTE")
		for _, t := range view.Topics {
			for _, g := range t.Groups {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", t.Topic, g.Group, len(g.Members),
					countText(g.Backlog), countText(g.InFlight), countText(g.Parked), ageText(g.OldestAgeSeconds), g.Error)
			}
		}
	})
	for _, t := range view.Topics {
		for _, g := range t.Groups {
			if err == nil && len(g.Members) > 0 {
				_, err = fmt.Fprintf(out, "members of %s: %s\n", g.Group, strings.Join(g.Members, ", "))
			}
		}
	}
	for _, w := range view.Warnings {
		if err == nil {
			_, err = fmt.Fprintln(out, "warning:", w)
		}
	}
	return err
}

func countText(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return strconv.FormatInt(*n, 10)
}

func ageText(seconds *float64) string {
	if seconds == nil {
		return "unknown"
	}
	return time.Duration(*seconds * float64(time.Second)).Round(time.Millisecond).String()
}
