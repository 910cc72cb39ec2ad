package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
)

// The forms in which `relay topics` prints what a broker needs.
const (
	formatTable   = "table"
	formatMqadmin = "mqadmin"
	formatConsole = "console"
)

var topicFormats = []string{formatTable, formatMqadmin, formatConsole}

func topicsCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topics",
		Short: "Show the topic, groups and permissions that this country needs on the broker, or make them",
		Long: `Show the topic, groups and permissions that this country needs on the broker.

--format mqadmin prints commands for a self-hosted RocketMQ, --format console what is to
be entered in the console of Alibaba Cloud, where only a person or its own API may make
them. --apply makes what is missing, on a cluster of your own and with an account that
may; what exists is left as it is, so it may be repeated.`,
		Args: noArgs,
	}
	format := cmd.Flags().String("format", formatTable, "table, mqadmin or console")
	apply := cmd.Flags().Bool("apply", false, "make what is missing")
	cluster := cmd.Flags().String("cluster", "DefaultCluster", "name of the cluster in mqadmin's commands")
	timeout := cmd.Flags().Duration("timeout", 30*time.Second, "longest wait for the broker")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains(topicFormats, *format) {
			return usage(cmd, "--format %q: allowed are %s", *format, strings.Join(topicFormats, ", "))
		}
		if *apply && *format != formatTable {
			return usage(cmd, "--apply and --format %s exclude each other", *format)
		}
		need := needsOf(t.cfg)
		if *apply {
			if err := applyTopics(cmd.Context(), t.cfg, need, *timeout); err != nil {
				return err
			}
			need.Applied = true
		}
		w := cmd.OutOrStdout()
		switch {
		case *asJSON:
			return printJSON(w, need)
		case *format == formatMqadmin:
			return printMqadmin(w, need, strings.Join(t.cfg.MQ.RocketMQ.NameServers, ";"), *cluster)
		case *format == formatConsole:
			return printConsole(w, need)
		}
		return printTopics(w, need)
	}
	return cmd
}

// topicNeeds is what one country needs on its broker.
type topicNeeds struct {
	Country   string       `json:"country"`
	Namespace string       `json:"namespace,omitempty"`
	Topic     string       `json:"topic"`
	Queues    int          `json:"queues"`
	Groups    []groupNeeds `json:"groups"`
	// Publisher is who publishes, and its group, which brokers ask for people only.
	Publisher string `json:"publisher"`
	Applied   bool   `json:"applied"`
}

type groupNeeds struct {
	Group   string `json:"group"`
	Service string `json:"service"`
	Tag     string `json:"tag"`
}

func needsOf(cfg *Config) topicNeeds {
	country, mq := cfg.Base.Country, cfg.MQ.RocketMQ
	group := func(task, service string, tag event.Type) groupNeeds {
		return groupNeeds{Group: eventbus.Group(country, task), Service: service, Tag: string(tag)}
	}
	return topicNeeds{
		Country: country, Namespace: mq.Namespace, Topic: eventbus.Topic(country), Queues: max(1, mq.Queues),
		Publisher: mq.ProducerGroup,
		Groups: []groupNeeds{
			group("push_dispatch", "push-consumer", event.PushDispatch),
			group("coupon_expire", "coupon-consumer", event.CouponExpire),
			group("campaign_sync", "campaign-consumer", event.CampaignProductSync),
			group("ops_snapshot", "ops-consumer", event.OpsCounter),
		},
	}
}

func applyTopics(ctx context.Context, cfg *Config, need topicNeeds, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	bus, err := openBus(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = bus.Close(context.WithoutCancel(ctx)) }()
	maker := bus.Provisioner()
	if maker == nil {
		return errors.New("topics of this broker are made by a person: see --format console")
	}
	groups := make([]string, 0, len(need.Groups))
	for _, g := range need.Groups {
		groups = append(groups, g.Group)
	}
	if err := maker.Ensure(ctx, need.Topic, groups); err != nil {
		return fmt.Errorf("make topic and groups: %w; --format console and --format mqadmin print what somebody else can do", err)
	}
	return nil
}

func printTopics(w io.Writer, need topicNeeds) error {
	return table(w, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "KIND\tNAME\tDETAIL\tUSED BY\tPERMISSION\n")
		_, _ = fmt.Fprintf(w, "topic\t%s\t%d queues\trelay\tpublish to the topic\n", need.Topic, need.Queues)
		for _, g := range need.Groups {
			_, _ = fmt.Fprintf(w, "group\t%s\ttag %s\t%s\tsubscribe to %s, use the group\n", g.Group, g.Tag, g.Service, need.Topic)
		}
		if need.Applied {
			_, _ = fmt.Fprintln(w, "all of these exist now")
		}
	})
}

// printMqadmin prints commands for mqadmin of RocketMQ 4.9 and 5. The topics of
// retries are made too: the broker would make them when the first retry is due, and a
// client that is at work learns of them half a minute later.
func printMqadmin(w io.Writer, need topicNeeds, nameServers, cluster string) error {
	where := fmt.Sprintf("-n %s -c %s", shellQuote(nameServers), shellQuote(cluster))
	var b strings.Builder
	fmt.Fprintf(&b, "mqadmin updateTopic %s -t %s -r %d -w %d -p 6\n", where, need.Topic, need.Queues, need.Queues)
	for _, g := range need.Groups {
		fmt.Fprintf(&b, "mqadmin updateSubGroup %s -g %s -s true -m true -d false -r 16\n", where, g.Group)
		fmt.Fprintf(&b, "mqadmin updateTopic %s -t %s -r 1 -w 1 -p 6\n", where, shellQuote("%RETRY%"+g.Group))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func shellQuote(s string) string {
	if s == "" {
		return "NAME_SERVER:9876"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func printConsole(w io.Writer, need topicNeeds) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Instance: the one of country %s", need.Country)
	if need.Namespace != "" {
		fmt.Fprintf(&b, ", %s", need.Namespace)
	}
	fmt.Fprintf(&b, "\n\nTopics > Create Topic\n  Name: %s\n  Message type: normal message\n", need.Topic)
	b.WriteString("\nGroups > Create Group ID (protocol TCP, one each)\n")
	for _, g := range need.Groups {
		fmt.Fprintf(&b, "  %s  (%s, tag %s)\n", g.Group, g.Service, g.Tag)
	}
	fmt.Fprintf(&b, "\nRAM permissions\n  relay: publish (PUB) to %s\n", need.Topic)
	for _, g := range need.Groups {
		fmt.Fprintf(&b, "  %s: subscribe (SUB) to %s, and to group %s\n", g.Service, need.Topic, g.Group)
	}
	b.WriteString("\nKeep dead letters and message retention at their defaults (3 days). Every member of a\ngroup must subscribe to the same tag: a changed tag needs a new group.\n")
	_, err := io.WriteString(w, b.String())
	return err
}
