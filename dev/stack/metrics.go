package stack

import (
	"context"
	"fmt"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metric sums all series of a counter or gauge whose labels include those given. A
// metric that has no series yet is 0.
func (s *Service) Metric(ctx context.Context, name string, labels map[string]string) (float64, error) {
	_, body, err := s.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("metrics of %s: %w", s.Name, err)
	}
	var sum float64
	for _, m := range families[name].GetMetric() {
		if matches(m, labels) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return sum, nil
}

func matches(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, l := range m.GetLabel() {
		if want, ok := labels[l.GetName()]; ok {
			if l.GetValue() != want {
				return false
			}
			found++
		}
	}
	return found == len(labels)
}
