package deploy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/seahub/seahub-mq/pkg/service"
)

// complain collects problems of one workload.
type complain struct {
	about string
	list  []string
}

func (c *complain) when(bad bool, format string, args ...any) {
	if bad {
		c.list = append(c.list, c.about+": "+fmt.Sprintf(format, args...))
	}
}

// restrictedProblems: the profile "restricted" admits every pod, and is what the namespace enforces.
func restrictedProblems(_ *project, r *rendered) []string {
	var c complain
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return []string{err.Error()}
	}
	restricted := psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	for _, w := range r.workloads() {
		c.about = w.String()
		result := policy.AggregateCheckResults(checks.EvaluatePod(restricted, &w.meta, &w.pod))
		c.when(!result.Allowed, "not admitted by the restricted profile: %s", result.ForbiddenDetail())
	}
	c.about = r.name
	c.when(len(r.Namespaces) != 1, "has %d namespaces", len(r.Namespaces))
	for _, n := range r.Namespaces {
		c.when(n.Labels["pod-security.kubernetes.io/enforce"] != "restricted", "namespace %s does not enforce the restricted profile", n.Name)
		for _, d := range r.Deployments {
			c.when(d.Namespace != n.Name, "%s is in namespace %s, not %s", d.Name, d.Namespace, n.Name)
		}
	}
	return c.list
}

// podProblems are the house's rules for every pod.
func podProblems(_ *project, r *rendered) []string {
	var c complain
	tags := map[string]bool{}
	for _, w := range r.workloads() {
		c.about = w.String()
		c.when(len(w.pod.Containers) != 1 || len(w.pod.InitContainers) > 0, "has not exactly one container: migrations are a Job")
		box := w.container()
		c.when(box.SecurityContext == nil || box.SecurityContext.ReadOnlyRootFilesystem == nil || !*box.SecurityContext.ReadOnlyRootFilesystem, "its root file system is writable")
		c.when(w.pod.EnableServiceLinks == nil || *w.pod.EnableServiceLinks, "gets variables of other Services")
		for _, label := range []string{"name", "component", "part-of"} {
			c.when(w.meta.Labels["app.kubernetes.io/"+label] == "", "lacks the label %s", label)
		}
		image := regexp.MustCompile(`^\S+/seahub-mq/[a-z-]+:([^:@]+)(@sha256:[0-9a-f]{64})?$`).FindStringSubmatch(box.Image)
		c.when(image == nil || image[1] == "latest" || image[1] == "dev", "image %q is not pinned", box.Image)
		if image != nil {
			tags[image[1]] = true
		}
		accountProblems(&c, r, w)
		resourceProblems(&c, box)
	}
	c.about = r.name
	c.when(len(tags) != 1, "mixes versions: %v", tags)
	return c.list
}

func accountProblems(c *complain, r *rendered, w workload) {
	c.when(w.pod.AutomountServiceAccountToken == nil || *w.pod.AutomountServiceAccountToken, "mounts a token")
	for _, a := range r.Accounts {
		if a.Name == w.pod.ServiceAccountName {
			c.when(a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken, "its account %s mounts a token", a.Name)
			return
		}
	}
	c.when(true, "has no account of its own: %q", w.pod.ServiceAccountName)
}

// resourceProblems: requests and limits; the Go runtime is told of the memory's limit, with
// room for what it does not count, and learns of the CPU's by itself.
func resourceProblems(c *complain, box corev1.Container) {
	cpu, memory := box.Resources.Requests.Cpu(), box.Resources.Requests.Memory()
	c.when(cpu.IsZero() || memory.IsZero(), "requests no CPU or memory")
	limit := box.Resources.Limits.Memory()
	c.when(limit.IsZero() || limit.Cmp(*memory) < 0, "has no limit of memory above its request")
	env := map[string]string{}
	for _, v := range box.Env {
		env[v.Name] = v.Value
	}
	c.when(box.Resources.Limits.Cpu().IsZero() && env["GOMAXPROCS"] == "", "has neither a CPU limit nor GOMAXPROCS")
	soft, err := resource.ParseQuantity(strings.TrimSuffix(env["GOMEMLIMIT"], "B"))
	share := float64(soft.Value()) / max(1, float64(limit.Value()))
	c.when(err != nil || share < 0.85 || share > 0.92, "GOMEMLIMIT %q is not about 90 %% of the limit %s", env["GOMEMLIMIT"], limit)
}

// lifeProblems: how a Deployment's pods start, are watched, replaced and stopped.
func lifeProblems(p *project, r *rendered) []string {
	var c complain
	for _, w := range r.workloads() {
		if w.deployment == nil {
			continue
		}
		c.about = w.String()
		env, _ := r.environment(w)
		strategy := w.deployment.Spec.Strategy.RollingUpdate
		c.when(strategy == nil || strategy.MaxSurge == nil || strategy.MaxSurge.String() != "0" || strategy.MaxUnavailable.String() != "1",
			"a rollout must replace one pod at a time, without a further one")
		// Members of a RocketMQ group look for their share every 20 s.
		least := map[string]int32{componentRelay: int32(p.seconds(env, w, "SEAHUB_RELAY_LEASE_TTL")), componentConsume: 25, componentPoll: 5}[w.component()]
		c.when(w.deployment.Spec.MinReadySeconds < least || least == 0, "minReadySeconds is %d, less than %d", w.deployment.Spec.MinReadySeconds, least)
		probeProblems(&c, w.container(), p.value(env, w.service(), "SEAHUB_ADMIN_ADDR"))
		graceProblems(&c, p, env, w)
		spreadProblems(&c, w)
		for _, other := range r.workloads() {
			same := other.kind == w.kind && other.name == w.name
			c.when(other.selects(w.deployment.Spec.Selector) != same, "its selector and the pods of %s: wrong", other)
		}
		budgets := 0
		for _, b := range r.Budgets {
			if w.selects(b.Spec.Selector) {
				budgets++
				c.when(b.Spec.MaxUnavailable == nil || b.Spec.MaxUnavailable.String() != "1" || b.Spec.MinAvailable != nil, "its disruption budget is not maxUnavailable 1")
				c.when(b.Spec.UnhealthyPodEvictionPolicy == nil || *b.Spec.UnhealthyPodEvictionPolicy != "AlwaysAllow", "its disruption budget protects pods that do not work")
			}
		}
		c.when(budgets != 1, "has %d disruption budgets", budgets)
	}
	return c.list
}

func (p *project) seconds(e environment, w workload, variable string) float64 {
	d, err := time.ParseDuration(p.value(e, w.service(), variable))
	if err != nil {
		return 0
	}
	return d.Seconds()
}

// graceProblems: the kubelet waits for longer than the process may take to stop.
func graceProblems(c *complain, p *project, env environment, w workload) {
	drain := p.seconds(env, w, "SEAHUB_DRAIN_TIMEOUT")
	c.when(p.seconds(env, w, "SEAHUB_BUS_DRAIN_TIMEOUT") >= drain, "handlers may drain for longer than the process")
	if w.pod.TerminationGracePeriodSeconds == nil {
		c.when(true, "has no grace period")
		return
	}
	need := drain + service.StopMargin.Seconds()
	if l := w.container().Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
		need += float64(l.PreStop.Sleep.Seconds)
	}
	c.when(float64(*w.pod.TerminationGracePeriodSeconds) <= need, "grace of %d s does not exceed the %.0f s of its stop", *w.pod.TerminationGracePeriodSeconds, need)
}

func probeProblems(c *complain, box corev1.Container, admin string) {
	want := ""
	for _, port := range box.Ports {
		if strings.HasSuffix(admin, ":"+strconv.Itoa(int(port.ContainerPort))) {
			want = port.Name
		}
	}
	c.when(want == "", "the admin listener %s is no port of the container", admin)
	for name, probe := range map[string]*corev1.Probe{"startup /livez": box.StartupProbe, "liveness /livez": box.LivenessProbe, "readiness /readyz": box.ReadinessProbe} {
		_, path, _ := strings.Cut(name, " ")
		c.when(probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != want, "probe %s is not on the admin listener", name)
	}
	if s := box.StartupProbe; s != nil {
		c.when(s.PeriodSeconds*s.FailureThreshold < 60, "has %d s to start", s.PeriodSeconds*s.FailureThreshold)
	}
}

func spreadProblems(c *complain, w workload) {
	var over []string
	for _, s := range w.pod.TopologySpreadConstraints {
		over = append(over, s.TopologyKey)
		c.when(!slices.Contains(s.MatchLabelKeys, "pod-template-hash"), "spread over %s counts pods of other revisions", s.TopologyKey)
		own := slices.Contains(s.MatchLabelKeys, "app.kubernetes.io/name") && slices.Contains(s.MatchLabelKeys, "app.kubernetes.io/component")
		c.when(!own || !w.selects(s.LabelSelector), "spread over %s does not count its own pods", s.TopologyKey)
		c.when(s.WhenUnsatisfiable != corev1.ScheduleAnyway, "spread over %s may keep a pod from running", s.TopologyKey)
	}
	slices.Sort(over)
	c.when(!slices.Equal(over, []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone"}), "is spread over %v", over)
}

// jobProblems: a Job ends, and one that failed is not repeated for ever.
func jobProblems(_ *project, r *rendered) []string {
	var c complain
	migrations := 0
	for _, j := range r.Jobs {
		c.about = "Job " + j.Name
		c.when(j.Spec.ActiveDeadlineSeconds == nil || j.Spec.TTLSecondsAfterFinished == nil || j.Spec.BackoffLimit == nil, "lacks a deadline, a limit of tries or a time to live")
		c.when(j.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyNever, "does not fail fast")
		args := j.Spec.Template.Spec.Containers[0].Args
		if len(args) == 1 && args[0] == "migrate" {
			migrations++
		}
	}
	c.about = r.name
	c.when(migrations != 1, "has %d migrations", migrations)
	return c.list
}
