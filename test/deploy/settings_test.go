package deploy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// settingProblems: names are keys, what is required is there, secrets come by reference,
// and nobody gets more of them than it needs.
func settingProblems(p *project, r *rendered) []string {
	var c complain
	for _, w := range r.workloads() {
		c.about = w.String()
		env, problems := r.environment(w)
		c.list = append(c.list, problems...)
		for _, problem := range environmentProblems(env.values, p.keys, w.service()) {
			c.when(true, "%s", problem)
		}
		for name := range env.values {
			if k, ok := p.keys[w.service()][name]; ok && k.Secret {
				c.when(!env.secret[name], "the secret %s is written out", name)
			}
			broker := strings.HasSuffix(name, "_ACCESS_KEY") || strings.HasSuffix(name, "_SECRET_KEY") || name == "SEAHUB_REDIS_PASSWORD"
			c.when(broker && w.component() == componentPoll, "a poll has no business with the broker's %s", name)
		}
		for _, v := range w.container().Env { // of its own, not the common ConfigMap's
			_, own := p.keys[w.service()][v.Name]
			c.when(!own && !foreign[v.Name], "%s does not read %s", w.service(), v.Name)
			if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil && v.ValueFrom.SecretKeyRef.Name == "seahub-mq-database" {
				key := v.ValueFrom.SecretKeyRef.Key
				c.when(key != "" && key != w.service(), "has the database account of %s", key)
			}
		}
		role := env.values["SEAHUB_TASK_ROLE"]
		c.when(w.deployment != nil && w.component() != componentRelay && role != w.component(), "component %s has the role %q", w.component(), role)
	}
	secretText(&c, p, r)
	return c.list
}

// secretText: nothing that a service calls a secret is in a ConfigMap.
func secretText(c *complain, p *project, r *rendered) {
	for _, m := range r.ConfigMaps {
		c.about = "ConfigMap " + m.Name
		for name := range m.Data {
			for service := range p.keys {
				c.when(p.keys[service][name].Secret, "holds the secret %s", name)
			}
		}
	}
}

// roleProblems: of each consumer both roles are there, under the names that operators know.
func roleProblems(p *project, r *rendered) []string {
	c := complain{about: r.name}
	var want, got []string
	for _, service := range p.services() {
		if service == "relay" {
			want = append(want, "relay relay")
			continue
		}
		want = append(want, service+" "+componentConsume, service+"-poll "+componentPoll)
	}
	for _, d := range r.Deployments {
		got = append(got, d.Name+" "+d.Labels["app.kubernetes.io/component"])
		c.when(!maps.Equal(d.Spec.Selector.MatchLabels, map[string]string{
			"app.kubernetes.io/name": d.Labels["app.kubernetes.io/name"], "app.kubernetes.io/component": d.Labels["app.kubernetes.io/component"],
		}), "%s selects by %v: name and component, for selectors never change", d.Name, d.Spec.Selector.MatchLabels)
	}
	slices.Sort(want)
	slices.Sort(got)
	c.when(!slices.Equal(want, got), "has Deployments %v, wanted are %v", got, want)
	return c.list
}

// factProblems: an overlay's facts agree with its name and configuration.
func factProblems(p *project, r *rendered) []string {
	c := complain{about: r.name}
	for _, w := range r.workloads() {
		env, _ := r.environment(w)
		country, _, _ := strings.Cut(r.name, "-")
		c.when(env.values["SEAHUB_ENV"] != r.name, "%s runs as env %q", w, env.values["SEAHUB_ENV"])
		c.when(env.values["SEAHUB_COUNTRY"] != country, "%s runs for country %q", w, env.values["SEAHUB_COUNTRY"])
		if w.deployment == nil {
			continue
		}
		c.when(env.values["SEAHUB_DB_TIME_ZONE"] == "", "%s is not told the app's time zone", w)
		broker := map[string]string{"test": "redis-streams", "prod": "rocketmq"}[r.name[len(country)+1:]]
		c.when(env.values["SEAHUB_MQ_PROVIDER"] != broker, "%s uses %q", w, env.values["SEAHUB_MQ_PROVIDER"])
	}
	for _, n := range r.Namespaces {
		c.when(n.Name != "seahub-mq-"+r.name, "is deployed into %s", n.Name)
	}
	return c.list
}

// refusedProblems asks each service whether it would start with what its pods are given.
func refusedProblems(ctx context.Context, p *project, r *rendered) []string {
	c := complain{about: r.name}
	asked := map[string]bool{}
	for _, w := range r.workloads() {
		env, _ := r.environment(w)
		same := w.service() + fmt.Sprint(env.values)
		if asked[same] {
			continue
		}
		asked[same] = true
		if err := p.accepts(ctx, w.service(), env.values); err != nil {
			c.when(true, "%s: %v", w, err)
		}
	}
	return c.list
}

// secretProblems: every key that a pod refers to is in the list of secrets, which is what
// a person makes them by.
func secretProblems(p *project, r *rendered) []string {
	c := complain{about: k8s + "/README.md"}
	listed := map[string]string{}
	for line := range strings.SplitSeq(p.tree[k8s+"/README.md"], "\n") {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			listed[strings.Trim(cells[1], " `")] = cells[2]
		}
	}
	for _, w := range r.workloads() {
		need := func(secret, key string) {
			c.when(!strings.Contains(listed[secret], "`"+key+"`"), "%s needs the key %s of secret %s, which is not listed", w, key, secret)
		}
		for _, v := range w.container().Env {
			if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
				need(v.ValueFrom.SecretKeyRef.Name, v.ValueFrom.SecretKeyRef.Key)
			}
		}
		for _, v := range w.pod.Volumes {
			if v.Secret != nil {
				for _, item := range v.Secret.Items {
					need(v.Secret.SecretName, item.Key)
				}
			}
		}
	}
	return c.list
}
