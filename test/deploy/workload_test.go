package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The components: what a pod does.
const (
	componentRelay   = "relay"
	componentConsume = "consume"
	componentPoll    = "poll"
)

// workload is a Deployment or a Job.
type workload struct {
	kind, name string
	meta       metav1.ObjectMeta // of the pods
	pod        corev1.PodSpec
	deployment *appsv1.Deployment // nil for a Job
}

func (w workload) String() string    { return w.kind + " " + w.name }
func (w workload) component() string { return w.meta.Labels["app.kubernetes.io/component"] }

// service is the service whose image runs.
func (w workload) service() string {
	image, _, _ := strings.Cut(path.Base(w.container().Image), ":")
	return image
}

// container is the only one: more, or none, is a problem of its own.
func (w workload) container() corev1.Container {
	if len(w.pod.Containers) != 1 {
		return corev1.Container{}
	}
	return w.pod.Containers[0]
}

func (r *rendered) workloads() []workload {
	var out []workload
	for i := range r.Deployments {
		d := &r.Deployments[i]
		out = append(out, workload{"Deployment", d.Name, d.Spec.Template.ObjectMeta, d.Spec.Template.Spec, d})
	}
	for i := range r.Jobs {
		j := &r.Jobs[i]
		out = append(out, workload{"Job", j.Name, j.Spec.Template.ObjectMeta, j.Spec.Template.Spec, nil})
	}
	return out
}

// selects says whether a selector takes the workload's pods.
func (w workload) selects(selector *metav1.LabelSelector) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(w.meta.Labels))
}

// environment is what a pod's process would see. Values from secrets are made up.
type environment struct {
	values map[string]string
	secret map[string]bool // came by reference
}

// madeUp stand for secrets whose form is checked.
var madeUp = map[string]string{
	"SEAHUB_DB_DSN":            "user:password@tcp(database.example.com:3306)/app",
	"SEAHUB_FEISHU_HOOK":       "https://feishu.example.com/hook",
	"SEAHUB_ALERT_SECOND_HOOK": "https://second.example.com/hook",
}

func (r *rendered) environment(w workload) (environment, []string) {
	e := environment{map[string]string{}, map[string]bool{}}
	var out []string
	for _, from := range w.container().EnvFrom {
		found := false
		for _, m := range r.ConfigMaps {
			if from.ConfigMapRef != nil && m.Name == from.ConfigMapRef.Name {
				maps.Copy(e.values, m.Data)
				found = true
			}
		}
		if !found {
			out = append(out, fmt.Sprintf("%s takes its environment from something that is not a ConfigMap of this overlay", w))
		}
	}
	for _, v := range w.container().Env {
		if v.ValueFrom == nil {
			e.values[v.Name] = v.Value
			continue
		}
		ref := v.ValueFrom.SecretKeyRef
		if ref == nil || ref.Name == "" || ref.Key == "" {
			out = append(out, fmt.Sprintf("%s: %s is referred to, but not to a key of a Secret", w, v.Name))
			continue
		}
		e.secret[v.Name] = true
		if e.values[v.Name] = madeUp[v.Name]; madeUp[v.Name] == "" {
			e.values[v.Name] = "made-up"
		}
	}
	return e, out
}

// value is what a service goes by: what it is given, else its default.
func (p *project) value(e environment, service, variable string) string {
	if v, ok := e.values[variable]; ok {
		return v
	}
	return p.keys[service][variable].Default
}

// metrics are the names that the services of an overlay export.
func (p *project) metrics(ctx context.Context, r *rendered) (map[string]bool, error) {
	out := map[string]bool{}
	asked := map[string]bool{}
	for _, w := range r.workloads() {
		if w.deployment == nil || asked[w.service()+w.component()] {
			continue
		}
		asked[w.service()+w.component()] = true
		env, _ := r.environment(w)
		text, complaints, err := p.run(ctx, w.service(), env.values, "metrics", "--json")
		if err != nil {
			return nil, fmt.Errorf("%s metrics: %w: %s", w.service(), err, complaints)
		}
		var list []struct{ Name string }
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, fmt.Errorf("%s metrics: %w", w.service(), err)
		}
		for _, m := range list {
			out[m.Name] = true
		}
	}
	return out, nil
}
