package deploy

import (
	"errors"
	"fmt"
	"path"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/yaml"
)

// rendered is what one overlay would send to a cluster.
type rendered struct {
	name string

	Namespaces  []corev1.Namespace
	Accounts    []corev1.ServiceAccount
	ConfigMaps  []corev1.ConfigMap
	Services    []corev1.Service
	Deployments []appsv1.Deployment
	Jobs        []batchv1.Job
	Policies    []networkingv1.NetworkPolicy
	Budgets     []policyv1.PodDisruptionBudget
	Scalers     []scaledObject
	Monitors    []podMonitor
}

const k8s = "deploy/k8s"

// renderAll renders every overlay that there is.
func renderAll(f tree) ([]*rendered, error) {
	var out []*rendered
	var errs []error
	overlays := f.folders(k8s + "/overlays")
	if len(overlays) == 0 {
		return nil, errors.New("there is no overlay in " + k8s + "/overlays")
	}
	for _, dir := range overlays {
		r, err := render(f, dir)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path.Base(dir), err))
			continue
		}
		out = append(out, r)
	}
	return out, errors.Join(errs...)
}

// render builds dir with kustomize and decodes every object strictly.
func render(f tree, dir string) (*rendered, error) {
	fs, err := f.disk()
	if err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	built, err := krusty.MakeKustomizer(options).Run(fs, "/"+dir)
	if err != nil {
		return nil, fmt.Errorf("kustomize: %w", err)
	}
	r := &rendered{name: path.Base(dir)}
	var errs []error
	for _, one := range built.Resources() {
		text, err := one.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.CurId(), err)
		}
		if err := r.decode(one.GetApiVersion()+"/"+one.GetKind(), text); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", one.GetKind(), one.GetName(), err))
		}
	}
	return r, errors.Join(errs...)
}

// decode puts an object where its kind belongs. Fields that the kind does not have, and
// kinds that nothing here checks, are errors.
func (r *rendered) decode(kind string, text []byte) error {
	switch kind {
	case "v1/Namespace":
		return add(&r.Namespaces, text)
	case "v1/ServiceAccount":
		return add(&r.Accounts, text)
	case "v1/ConfigMap":
		return add(&r.ConfigMaps, text)
	case "v1/Service":
		return add(&r.Services, text)
	case "apps/v1/Deployment":
		return add(&r.Deployments, text)
	case "batch/v1/Job":
		return add(&r.Jobs, text)
	case "networking.k8s.io/v1/NetworkPolicy":
		return add(&r.Policies, text)
	case "policy/v1/PodDisruptionBudget":
		return add(&r.Budgets, text)
	case "keda.sh/v1alpha1/ScaledObject":
		return add(&r.Scalers, text)
	case "monitoring.coreos.com/v1/PodMonitor":
		return add(&r.Monitors, text)
	case "v1/Secret":
		return errors.New("secrets are referred to by name, never kept here")
	}
	return fmt.Errorf("no check knows %s", kind)
}

func add[T any](list *[]T, text []byte) error {
	var one T
	if err := yaml.UnmarshalStrict(text, &one); err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	*list = append(*list, one)
	return nil
}
