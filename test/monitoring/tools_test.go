package monitoring

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// run runs promtool or amtool in deploy/monitoring.
func run(t *testing.T, tool string, args ...string) (string, error) {
	t.Helper()
	cache := cmp.Or(os.Getenv("SEAHUB_TEST_CACHE_DIR"), root(t, ".local", "cache"))
	path := filepath.Join(cache, "prometheus", "bin", tool)
	if _, err := os.Stat(path); err != nil {
		path, err = exec.LookPath(tool)
		require.NoError(t, err, "%s is missing: run `make deps`", tool)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = root(t, "deploy", "monitoring")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Each alert fires and ends when it should, and not at the near miss.
func TestPromtool(t *testing.T) {
	out, err := run(t, "promtool", "check", "config", "prometheus.yml")
	require.NoError(t, err, out)
	for _, path := range files(t, "tests/*_test.yml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			out, err := run(t, "promtool", "test", "rules", path)
			require.NoError(t, err, out)
		})
	}
}

// Each rule has such a test: quiet, then firing, then over.
func TestEveryRuleIsTested(t *testing.T) {
	type block struct {
		RuleTests []struct {
			Alertname string
			ExpAlerts []any `json:"exp_alerts"`
		} `json:"alert_rule_test"`
	}
	course := map[string]string{} // of each rule: 0 and 1 in the order of time
	for _, path := range files(t, "tests/*_test.yml") {
		var f struct{ Tests []block }
		require.NoError(t, yaml.Unmarshal([]byte(read(t, path)), &f), path)
		for _, b := range f.Tests {
			for _, r := range b.RuleTests {
				state := "0"
				if len(r.ExpAlerts) > 0 {
					state = "1"
				}
				course[r.Alertname] += state
			}
		}
	}
	for _, r := range rules(t) {
		switch r.Alert {
		case "Watchdog": // never quiet
			require.NotContains(t, course[r.Alert], "0")
			require.Contains(t, course[r.Alert], "1")
		case "OpsConsumerWatching": // fires while all is well; its test tells the two deployments apart
			require.Contains(t, course[r.Alert], "1")
		default:
			require.Regexp(t, `^0+1[01]*0$`, course[r.Alert], r.Alert)
		}
	}
}

// What ops-consumer cannot tell goes past it, and its twins are quiet while it watches.
func TestAlertmanagersRoutes(t *testing.T) {
	out, err := run(t, "amtool", "check-config", "alertmanager.yml")
	require.NoError(t, err, out)
	for alert, want := range map[string]string{
		"alertname=Watchdog severity=none":                             "dead-man",
		"alertname=OpsConsumerWatching":                                "nobody",
		"alertname=OpsConsumerDown":                                    "on-call",
		"alertname=FeishuFailing":                                      "on-call",
		"alertname=ServiceDown job=ops-consumer":                       "on-call",
		"alertname=ServiceDown job=relay":                              "ops-consumer",
		"alertname=RelaySilent twin=true":                              "on-call",
		"alertname=ConsumerHalted consumer_group=GID_id_push_dispatch": "ops-consumer",
	} {
		out, err := run(t, "amtool", append([]string{"config", "routes", "test", "--config.file=alertmanager.yml"}, strings.Fields(alert)...)...)
		require.NoError(t, err, out)
		lines := strings.Fields(out)
		require.Equal(t, want, lines[len(lines)-1], alert)
	}
	var config struct {
		Inhibit []struct {
			Source []string `json:"source_matchers"`
			Target []string `json:"target_matchers"`
			Equal  []string
		} `json:"inhibit_rules"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, root(t, "deploy", "monitoring", "alertmanager.yml"))), &config))
	require.Len(t, config.Inhibit, 1)
	require.Equal(t, []string{`alertname="OpsConsumerWatching"`}, config.Inhibit[0].Source)
	require.Equal(t, []string{`twin="true"`}, config.Inhibit[0].Target)
	require.Equal(t, []string{"env", "country"}, config.Inhibit[0].Equal)
}
