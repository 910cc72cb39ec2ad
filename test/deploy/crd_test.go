package deploy

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The parts of foreign kinds that are used here. Their own modules are large, and strict
// decoding into these refuses whatever is not written down.

// scaledObject is keda.sh/v1alpha1.
type scaledObject struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            struct {
		ScaleTargetRef struct {
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		PollingInterval int `json:"pollingInterval"`
		MinReplicaCount int `json:"minReplicaCount"`
		MaxReplicaCount int `json:"maxReplicaCount"`
		Fallback        struct {
			FailureThreshold int    `json:"failureThreshold"`
			Replicas         int    `json:"replicas"`
			Behavior         string `json:"behavior"`
		} `json:"fallback"`
		Advanced struct {
			HPA struct {
				Behavior struct {
					ScaleUp   scalingRules `json:"scaleUp"`
					ScaleDown scalingRules `json:"scaleDown"`
				} `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []trigger `json:"triggers"`
	} `json:"spec"`
}

type scalingRules struct {
	StabilizationWindowSeconds int `json:"stabilizationWindowSeconds"`
	Policies                   []struct {
		Type          string `json:"type"`
		Value         int    `json:"value"`
		PeriodSeconds int    `json:"periodSeconds"`
	} `json:"policies"`
}

type trigger struct {
	Type       string `json:"type"`
	Name       string `json:"name"`
	MetricType string `json:"metricType"`
	Metadata   struct {
		ServerAddress    string `json:"serverAddress"`
		Query            string `json:"query"`
		Threshold        string `json:"threshold"`
		IgnoreNullValues string `json:"ignoreNullValues"`
	} `json:"metadata"`
}

// podMonitor is monitoring.coreos.com/v1.
type podMonitor struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
			Relabel  []struct {
				From []string `json:"sourceLabels"`
				To   string   `json:"targetLabel"`
			} `json:"relabelings"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}
