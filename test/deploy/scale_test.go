package deploy

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seahub/seahub-mq/pkg/eventbus"
)

// tasks are the last parts of the consumer groups.
var tasks = map[string]string{
	"push-consumer": "push_dispatch", "coupon-consumer": "coupon_expire",
	"campaign-consumer": "campaign_sync", "ops-consumer": "ops_snapshot",
}

// scaleProblems: each consume Deployment has one scaler, which knows its group, never goes
// beyond what the broker can feed, and lets go slowly.
func scaleProblems(p *project, r *rendered) []string {
	var c complain
	scaled := map[string]int{}
	for _, s := range r.Scalers {
		c.about = "ScaledObject " + s.Metadata.Name
		scaled[s.Spec.ScaleTargetRef.Name]++
		i := slices.IndexFunc(r.workloads(), func(w workload) bool { return w.deployment != nil && w.name == s.Spec.ScaleTargetRef.Name })
		if i < 0 {
			c.when(true, "scales %q, which there is not", s.Spec.ScaleTargetRef.Name)
			continue
		}
		w := r.workloads()[i]
		c.when(w.deployment.Spec.Replicas != nil, "every apply of %s would reset the number of replicas", w)
		env, _ := r.environment(w)
		queues, err := strconv.Atoi(p.value(env, w.service(), "SEAHUB_ROCKETMQ_QUEUES"))
		c.when(err != nil || s.Spec.MaxReplicaCount > queues, "goes to %d members, the topic has %d queues", s.Spec.MaxReplicaCount, queues)
		c.when(s.Spec.MinReplicaCount < 1 || s.Spec.MinReplicaCount > s.Spec.MaxReplicaCount, "goes down to %d members: what is pending would wait", s.Spec.MinReplicaCount)
		f := s.Spec.Fallback
		c.when(f.Behavior != "currentReplicasIfHigher" || f.FailureThreshold < 1 || f.Replicas < s.Spec.MinReplicaCount, "takes a silent Prometheus for a lack of work")
		down := s.Spec.Advanced.HPA.Behavior.ScaleDown
		c.when(down.StabilizationWindowSeconds < 300 || len(down.Policies) != 1 || down.Policies[0].Value != 1, "scales down fast: every leave moves queues")
		c.when(len(s.Spec.Triggers) != 2, "has %d triggers, wanted are backlog and age", len(s.Spec.Triggers))
		for _, t := range s.Spec.Triggers {
			triggerProblems(&c, t, r, w, env.values["SEAHUB_COUNTRY"])
		}
	}
	for _, w := range r.workloads() {
		c.about = w.String()
		want := map[string]int{componentConsume: 1}[w.component()]
		c.when(scaled[w.name] != want, "has %d scalers, wanted is %d", scaled[w.name], want)
		c.when(w.deployment != nil && want == 0 && w.deployment.Spec.Replicas == nil, "has no number of replicas")
	}
	return c.list
}

var (
	metricInQuery = regexp.MustCompile(`\b(seahub_[a-z0-9_]+)\{([^}]*)\}`)
	labelInQuery  = regexp.MustCompile(`([a-z_]+)=(~?)"([^"]*)"`)
)

func triggerProblems(c *complain, t trigger, r *rendered, w workload, country string) {
	c.when(t.Type != "prometheus" || t.MetricType != "AverageValue", "trigger %s is not an average over replicas from Prometheus", t.Name)
	c.when(t.Metadata.IgnoreNullValues != "false", "trigger %s takes unknown for zero", t.Name)
	c.when(!strings.HasPrefix(t.Metadata.ServerAddress, "http"), "trigger %s asks %q", t.Name, t.Metadata.ServerAddress)
	threshold, err := strconv.ParseFloat(t.Metadata.Threshold, 64)
	c.when(err != nil || threshold <= 0, "trigger %s has the threshold %q", t.Name, t.Metadata.Threshold)
	first := map[string]string{"backlog": "seahub_bus_backlog", "age": "seahub_bus_oldest_age_seconds"}[t.Name]
	c.when(!strings.HasPrefix(t.Metadata.Query, "max("+first+"{") || first == "", "trigger %s does not go by our own gauge first: %s", t.Name, t.Metadata.Query)
	c.when(!strings.Contains(t.Metadata.Query, ") or max("), "trigger %s has nothing to go by when the broker does not tell", t.Name)
	task := tasks[w.service()]
	for _, m := range metricInQuery.FindAllStringSubmatch(t.Metadata.Query, -1) {
		labels := map[string]string{}
		for _, l := range labelInQuery.FindAllStringSubmatch(m[2], -1) {
			labels[l[1]] = l[3]
		}
		c.when(len(r.Namespaces) == 1 && labels["namespace"] != r.Namespaces[0].Name, "%s is taken from namespace %q", m[1], labels["namespace"])
		if group, ok := labels["consumer_group"]; ok {
			matches, err := regexp.MatchString("^(?:"+group+")$", eventbus.Group(country, task))
			c.when(err != nil || !matches, "%s of group %s is not that of %s", m[1], group, w)
		} else {
			c.when(labels["task"] != strings.ReplaceAll(task, "_", "-"), "%s of task %q is not that of %s", m[1], labels["task"], w)
		}
	}
}

// monitorProblems: every pod is scraped where it serves metrics, and Alertmanager's way to
// the receiver ends at a pod.
func monitorProblems(_ *project, r *rendered) []string {
	c := complain{about: r.name}
	c.when(len(r.Monitors) != 1, "has %d PodMonitors", len(r.Monitors))
	for _, w := range r.workloads() {
		if w.deployment == nil {
			continue
		}
		c.about = w.String()
		for _, m := range r.Monitors {
			c.when(!w.selects(&m.Spec.Selector), "is not scraped")
			for _, e := range m.Spec.PodMetricsEndpoints {
				has := len(w.container().Ports) == 1 && w.container().Ports[0].Name == e.Port
				c.when(!has || e.Path != "/metrics", "is scraped at %s%s, which it does not serve", e.Port, e.Path)
			}
		}
	}
	for _, s := range r.Services {
		c.about = "Service " + s.Name
		n := 0
		for _, w := range r.workloads() {
			if w.deployment != nil && selectsAll(s.Spec.Selector, w.meta.Labels) {
				n++
			}
		}
		c.when(n != 1, "leads to the pods of %d Deployments", n)
	}
	return c.list
}

func selectsAll(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

// metricProblems: what a scaler asks for is exported by the services of that overlay.
func metricProblems(ctx context.Context, p *project, r *rendered) []string {
	c := complain{about: r.name}
	exported, err := p.metrics(ctx, r)
	if err != nil {
		return []string{err.Error()}
	}
	for _, s := range r.Scalers {
		for _, t := range s.Spec.Triggers {
			for _, m := range metricInQuery.FindAllStringSubmatch(t.Metadata.Query, -1) {
				c.when(!exported[m[1]], "scaler %s asks for %s, which no service exports", s.Metadata.Name, m[1])
			}
		}
	}
	return c.list
}
