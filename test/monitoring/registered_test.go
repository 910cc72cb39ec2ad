package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
	"github.com/seahub/seahub-mq/pkg/testenv/fcmfake"
)

// scrapeLabels are given to every series by whoever scrapes (prometheus.yml, the
// PodMonitor of deploy/k8s).
var scrapeLabels = []string{"env", "country", "job", "role", "instance", "namespace", "pod"}

// listed is what `<service> metrics --json` says of one metric.
type listed struct {
	Name, Kind string
	Labels     []string
	Const      map[string]string
}

// metric is what all services together register under one name.
type metric struct {
	histogram bool
	labels    []string
	values    map[string][]string // of labels that have the same value for ever
}

// registry is what a scrape of all services can hold.
type registry map[string]*metric

// add joins what a service says into the registry.
func (r registry) add(m listed) {
	all := r[m.Name]
	if all == nil {
		all = &metric{values: map[string][]string{}}
		r[m.Name] = all
	}
	all.histogram = all.histogram || m.Kind == "histogram"
	all.labels = append(all.labels, m.Labels...)
	for label, value := range m.Const {
		all.labels = append(all.labels, label)
		all.values[label] = append(all.values[label], value)
	}
}

// notOurs is what Prometheus itself makes.
func notOurs() registry {
	return registry{"up": {}, "ALERTS": {labels: []string{"alertname", "alertstate", "severity"}}}
}

// registered asks every service, as it is shipped, what it registers: on each broker.
func registered(t *testing.T) registry {
	t.Helper()
	r, err := askAll()
	require.NoError(t, err)
	return r
}

var askAll = sync.OnceValues(func() (registry, error) {
	ctx := context.Background()
	root, err := stack.Root()
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Join(root, ".local", "test-monitoring"))
	if err != nil {
		return nil, err
	}
	binaries, err := stack.Build(ctx, root, dir, false, stack.Services()...)
	if err != nil {
		return nil, err
	}
	fcm, err := fcmfake.Start(fcmfake.Options{KeyFile: filepath.Join(dir, "fcm.json")})
	if err != nil {
		return nil, err
	}
	defer func() { _ = fcm.Close() }()
	all := notOurs()
	for name, binary := range binaries {
		for _, broker := range []string{"redis-streams", "rocketmq"} {
			list, err := ask(ctx, binary, broker, fcm.KeyFile())
			if err != nil {
				return nil, fmt.Errorf("%s metrics --json on %s: %w", name, broker, err)
			}
			for _, m := range list {
				all.add(m)
			}
		}
	}
	return all, nil
})

// ask runs `<service> metrics --json`: it wires the service and dials nobody.
func ask(ctx context.Context, binary, broker, keyFile string) ([]listed, error) {
	cmd := exec.CommandContext(ctx, binary, "metrics", "--json")
	cmd.Env = []string{
		"SEAHUB_ENV=id-test", "SEAHUB_COUNTRY=id", "SEAHUB_DB_DSN=nobody:none@tcp(127.0.0.1:1)/none",
		"SEAHUB_MQ_PROVIDER=" + broker, "SEAHUB_REDIS_ADDRESSES=127.0.0.1:1", "SEAHUB_ROCKETMQ_NAME_SERVERS=127.0.0.1:1",
		"SEAHUB_TIKTOK_APP_KEY=key", "SEAHUB_TIKTOK_APP_SECRET=secret", "SEAHUB_FCM_KEY_FILE=" + keyFile,
	}
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, log.String())
	}
	var list []listed
	return list, json.Unmarshal(out, &list)
}

func (m *metric) has(label string) bool {
	return slices.Contains(m.labels, label) || slices.Contains(scrapeLabels, label)
}
