// Package monitoring checks deploy/monitoring against the services, the runbooks and
// Prometheus' own tools.
package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
)

// Every metric, label and grouping in rules, dashboards and scalers is one that a service
// registers.
func TestExpressionsUseWhatServicesRegister(t *testing.T) {
	c := checker{registered(t), literals(t)}
	var all []query
	for _, path := range files(t, "rules/*.yml") {
		f, err := parseRules(read(t, path))
		require.NoError(t, err, path)
		require.NotEmpty(t, f.queries(), path)
		all = append(all, f.queries()...)
	}
	for _, path := range files(t, "dashboards/*.json") {
		d, err := parseDashboard(read(t, path))
		require.NoError(t, err, path)
		require.NotEmpty(t, d.queries(), path)
		all = append(all, d.queries()...)
	}
	for _, q := range append(all, scalers(t)...) {
		require.Empty(t, c.check(q), "%s: %s", q.where, q.expr)
	}
}

// The check above can fail: each of these mistakes, planted in the real files, is found.
func TestPlantedMistakesAreFound(t *testing.T) {
	c := checker{registered(t), literals(t)}
	for name, tt := range map[string]struct{ file, right, wrong, says string }{
		"a rule's metric":       {"rules/pipe.yml", "(seahub_outbox_failed)", "(seahub_outbox_fialed)", "no service registers seahub_outbox_fialed"},
		"a dashboard's metric":  {"dashboards/overview.json", "seahub_outbox_pending", "seahub_outbox_pendign", "no service registers seahub_outbox_pendign"},
		"a histogram's name":    {"dashboards/relay.json", "seahub_outbox_publish_seconds_bucket", "seahub_outbox_publish_seconds", "no service registers seahub_outbox_publish_seconds"},
		"a gauge as histogram":  {"rules/pipe.yml", "(seahub_outbox_failed)", "(seahub_outbox_failed_count)", "no service registers seahub_outbox_failed_count"},
		"a rule's label":        {"rules/pipe.yml", `{cause="fuse"}`, `{reason="fuse"}`, "seahub_redis_trimmed_total has no label reason"},
		"a label's value":       {"rules/pipe.yml", `{cause="fuse"}`, `{cause="fuze"}`, `nobody sets cause to "fuze"`},
		"a value in a pattern":  {"rules/pipe.yml", `"retry|dead|halt"`, `"retry|daed|halt"`, `nobody sets result to "daed"`},
		"a service's name":      {"rules/services.yml", "push-consumer", "push-consumr", `nobody sets job to "push-consumr"`},
		"a grouping":            {"rules/pipe.yml", "max by (env, country, consumer_group) (seahub_bus_backlog)", "max by (env, country, group) (seahub_bus_backlog)", "seahub_bus_backlog has no label group"},
		"a match of two sides":  {"rules/pipe.yml", "unless on (env, country) sum", "unless on (env, contry) sum", "has no label contry"},
		"a dashboard's label":   {"dashboards/group.json", `by (result) `, `by (status) `, "seahub_consumer_messages_total has no label status"},
		"a legend":              {"dashboards/group.json", "{{result}}", "{{outcome}}", "has no label outcome"},
		"a variable's query":    {"dashboards/group.json", "label_values(seahub_consumer_connected", "label_values(seahub_consumer_conected", "no service registers seahub_consumer_conected"},
		"a rate of a gauge":     {"rules/pipe.yml", "max by (env, country) (seahub_outbox_failed)", "max by (env, country) (rate(seahub_outbox_failed[5m]))", "which is no counter"},
		"a quantile without le": {"dashboards/overview.json", "sum by (le) (", "sum by (env) (", "without a sum by le"},
		"a scaler's metric":     {"../k8s/components/keda/scalers.yaml", "seahub_bus_backlog", "seahub_bus_backlogs", "no service registers seahub_bus_backlogs"},
		"no PromQL":             {"rules/ops.yml", "vector(1)", "vector(1", "parse error"},
	} {
		t.Run(name, func(t *testing.T) {
			text := read(t, root(t, "deploy", "monitoring", tt.file))
			require.Contains(t, text, tt.right)
			text = strings.ReplaceAll(text, tt.right, tt.wrong)
			var queries []query
			if filepath.Ext(tt.file) == ".yaml" {
				queries = scalersOf(tt.file, text)
			} else if filepath.Ext(tt.file) == ".json" {
				d, err := parseDashboard(text)
				require.NoError(t, err)
				queries = d.queries()
			} else {
				f, err := parseRules(text)
				require.NoError(t, err)
				queries = f.queries()
			}
			var found []string
			for _, q := range queries {
				found = append(found, c.check(q)...)
			}
			require.Contains(t, strings.Join(found, "\n"), tt.says)
		})
	}
}

// Each rule says how bad it is, how long it holds, what it is about, and where to read on.
func TestRulesAreWhole(t *testing.T) {
	seen := map[string]bool{}
	own := opsRules(t)
	for _, r := range rules(t) {
		require.False(t, seen[r.Alert], "%s is there twice", r.Alert)
		seen[r.Alert] = true
		require.Contains(t, []string{"critical", "warning", "info", "none"}, r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.For, r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.FileExists(t, root(t, r.Annotations["runbook_url"]), r.Alert)
		if r.Labels["twin"] != "" {
			require.Contains(t, own, r.Alert, "a twin has the name of the rule that ops-consumer has")
		}
	}
	require.True(t, seen["Watchdog"])
}

// opsRules are the names of ops-consumer's own rules.
func opsRules(t *testing.T) []string {
	t.Helper()
	names := []string{"DatabaseUnreachable"}
	text := read(t, root(t, "services", "ops-consumer", "rules.go"))
	for _, m := range regexp.MustCompile(`\{Name: "([A-Za-z]+)", Severity: `).FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	require.Greater(t, len(names), 20)
	return names
}

// Every rule has a page, every page is some rule's, and docs/alerts.md lists both kinds.
func TestRunbooksAndTheListOfAlerts(t *testing.T) {
	pages := map[string]bool{}
	names := opsRules(t)
	for _, name := range names {
		pages[name+".md"] = true
	}
	for _, r := range rules(t) {
		names = append(names, r.Alert)
		pages[filepath.Base(r.Annotations["runbook_url"])] = true
	}
	entries, err := os.ReadDir(root(t, "docs", "runbooks"))
	require.NoError(t, err)
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
	}
	var want []string
	for page := range pages {
		want = append(want, page)
	}
	require.ElementsMatch(t, want, there)

	_, list, ok := strings.Cut(read(t, root(t, "docs", "alerts.md")), "\n## Rules\n")
	require.True(t, ok)
	list, _, _ = strings.Cut(list, "\n## Delivery\n")
	var listed []string
	for _, m := range regexp.MustCompile("`([A-Z][a-zA-Z]+)`").FindAllStringSubmatch(list, -1) {
		listed = append(listed, m[1])
	}
	for _, set := range []*[]string{&names, &listed} {
		slices.Sort(*set)
		*set = slices.Compact(*set)
	}
	require.Equal(t, names, listed, "docs/alerts.md lists the rules that there are")
}

// Both scrapes that are shipped give the labels that the rules group by.
func TestTheScrapeGivesItsLabels(t *testing.T) {
	monitor := read(t, root(t, "deploy", "k8s", "components", "monitoring", "monitor.yaml"))
	fixed := read(t, root(t, "deploy", "monitoring", "prometheus.yml"))
	for _, label := range []string{"job", "role", "env", "country"} {
		require.Contains(t, monitor, "targetLabel: "+label+"}")
		if label != "job" { // there it is the job's name
			require.Contains(t, fixed, label+": ")
		}
	}
	for _, service := range stack.Services() {
		require.Contains(t, fixed, "job_name: "+service)
		require.Contains(t, read(t, root(t, "deploy", "monitoring", "rules", "services.yml")), service)
	}
}

func TestDashboardsAreWhole(t *testing.T) {
	uids, titles := map[string]bool{}, map[string]bool{}
	for _, path := range files(t, "dashboards/*.json") {
		d, err := parseDashboard(read(t, path))
		require.NoError(t, err, path)
		require.NotEmpty(t, d.UID, path)
		require.False(t, uids[d.UID] || titles[d.Title], path)
		uids[d.UID], titles[d.Title] = true, true
		variables := map[string]bool{}
		for _, v := range d.Templating.List {
			variables[v.Name] = v.Name != "datasource" || v.Type == "datasource"
		}
		require.True(t, variables["datasource"], path)
		ids := map[int]bool{}
		for _, p := range d.Panels {
			require.NotEmpty(t, p.Title, path)
			require.NotEmpty(t, p.Targets, "%s: %s", path, p.Title)
			require.False(t, p.ID == 0 || ids[p.ID], "%s: panel %d", path, p.ID)
			ids[p.ID] = true
		}
		var all any
		require.NoError(t, json.Unmarshal([]byte(read(t, path)), &all))
		used := datasources(all)
		require.Greater(t, len(used), len(d.Panels), path)
		for _, source := range used {
			require.Equal(t, map[string]any{"type": "prometheus", "uid": "${datasource}"}, source, path)
		}
		for _, q := range d.queries() {
			for _, m := range regexp.MustCompile(`\$([a-z]+)`).FindAllStringSubmatch(q.expr, -1) {
				require.True(t, variables[m[1]], "%s: %s has no variable %s", path, q.where, m[1])
			}
		}
	}
}

// datasources are all that a dashboard names, wherever.
func datasources(node any) (out []any) {
	switch node := node.(type) {
	case map[string]any:
		for key, below := range node {
			if key == "datasource" {
				out = append(out, below)
			}
			out = append(out, datasources(below)...)
		}
	case []any:
		for _, below := range node {
			out = append(out, datasources(below)...)
		}
	}
	return out
}
