package monitoring

import (
	"encoding/json"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/seahub/seahub-mq/dev/stack"
)

// query is one expression and where it stands.
type query struct{ where, expr, legend string }

// ruleFile is a file of alert rules.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []alertRule
	}
}

type alertRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func (f ruleFile) queries() (out []query) {
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			out = append(out, query{where: r.Alert, expr: r.Expr})
		}
	}
	return out
}

// dashboard is what is looked at of Grafana's model.
type dashboard struct {
	UID, Title  string
	Annotations struct {
		List []target
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
	Panels []panel
}

type panel struct {
	ID      int
	Title   string
	Targets []target
}

type target struct {
	Expr         string
	LegendFormat string
	TitleFormat  string
}

func (d dashboard) queries() (out []query) {
	for _, p := range d.Panels {
		for _, t := range p.Targets {
			out = append(out, query{d.Title + ": " + p.Title, t.Expr, t.LegendFormat})
		}
	}
	for _, a := range d.Annotations.List {
		out = append(out, query{d.Title + ": annotations", a.Expr, a.TitleFormat})
	}
	for _, v := range d.Templating.List {
		var q struct{ Query string }
		if v.Type == "query" && json.Unmarshal(v.Query, &q) == nil {
			out = append(out, query{where: d.Title + ": variable " + v.Name, expr: q.Query})
		}
	}
	return out
}

func root(t *testing.T, path ...string) string {
	t.Helper()
	dir, err := stack.Root()
	require.NoError(t, err)
	return filepath.Join(append([]string{dir}, path...)...)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// files lists what a pattern below deploy/monitoring finds; nothing is a mistake.
func files(t *testing.T, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(root(t, "deploy", "monitoring", pattern))
	require.NoError(t, err)
	require.NotEmpty(t, list, pattern)
	return list
}

func parseRules(text string) (f ruleFile, err error) {
	return f, yaml.UnmarshalStrict([]byte(text), &f)
}

func parseDashboard(text string) (d dashboard, err error) {
	return d, json.Unmarshal([]byte(text), &d)
}

func rules(t *testing.T) (out []alertRule) {
	t.Helper()
	for _, path := range files(t, "rules/*.yml") {
		f, err := parseRules(read(t, path))
		require.NoError(t, err, path)
		for _, g := range f.Groups {
			out = append(out, g.Rules...)
		}
	}
	return out
}

// scalers are the queries by which Kubernetes scales.
func scalers(t *testing.T) (out []query) {
	t.Helper()
	err := filepath.WalkDir(root(t, "deploy", "k8s"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		out = append(out, scalersOf(path, read(t, path))...)
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, out)
	return out
}

func scalersOf(path, text string) (out []query) {
	for line := range strings.Lines(text) {
		if expr, ok := strings.CutPrefix(strings.TrimSpace(line), "query: "); ok {
			out = append(out, query{where: path, expr: strings.Trim(expr, "'")})
		}
	}
	return out
}

// literals are all strings that stand in the code of rooms and services.
func literals(t *testing.T) func(string) bool {
	t.Helper()
	found := map[string]bool{}
	for _, dir := range []string{"pkg", "services"} {
		err := filepath.WalkDir(root(t, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := goparser.ParseFile(token.NewFileSet(), path, nil, goparser.SkipObjectResolution)
			if err != nil {
				return fmt.Errorf("read the strings of the code: %w", err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if s, err := strconv.Unquote(lit.Value); err == nil {
						found[s] = true
					}
				}
				return true
			})
			return nil
		})
		require.NoError(t, err)
	}
	return func(s string) bool { return found[s] }
}
