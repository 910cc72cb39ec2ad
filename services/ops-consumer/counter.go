package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/seahub/seahub-mq/pkg/event"
	"github.com/seahub/seahub-mq/pkg/eventbus"
	"github.com/seahub/seahub-mq/pkg/task"
)

// errCountry: the event belongs to another country's deployment.
var errCountry = errors.New("event of another country")

// counter is the event side: it counts. A metric that has no figure (yet) is counted as
// well: its writer may be ahead of this process.
type counter struct {
	store    store
	lateness time.Duration // the window and the lateness together
	metrics  *metrics
	names    *regexp.Regexp
}

func newCounter(s store, c SweepConfig, m *metrics) *counter {
	return &counter{store: s, lateness: c.Window + c.Lateness, metrics: m, names: regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)}
}

// RowID implements task.Work. The rollout goes by the metric: a count of which a share
// is missing would never agree with SQL.
func (c *counter) RowID(d eventbus.Delivery) (string, error) {
	p, _, err := event.DecodeOpsCounter(d.Body)
	if err != nil {
		return "", err
	}
	if !c.names.MatchString(string(p.Metric)) {
		return "", fmt.Errorf("%w: the metric's name is not usable", event.ErrPayload)
	}
	if p.Country != c.store.country {
		return "", fmt.Errorf("%w: %w", event.ErrPayload, errCountry)
	}
	return string(p.Metric), nil
}

// Handle implements task.Work.
func (c *counter) Handle(ctx context.Context, metric string, d eventbus.Delivery) eventbus.Outcome {
	_, at, err := event.DecodeOpsCounter(d.Body)
	if err != nil || d.Key == "" {
		return eventbus.Dead("a counter event needs an event_id and a time", err)
	}
	result, err := c.store.count(ctx, d.Key, metric, at, c.lateness)
	if err != nil {
		return task.Retry(err, d.Attempt)
	}
	c.metrics.counted.WithLabelValues(result.String()).Inc()
	return task.Done("counted " + result.String())
}

func (c counted) String() string {
	return [...]string{"in_time", "apart", "before"}[c]
}
