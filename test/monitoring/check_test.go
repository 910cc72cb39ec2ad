package monitoring

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// nameLabel is where PromQL keeps a series' name.
const nameLabel = "__name__"

// Grafana's words, which are no PromQL.
var (
	grafanaTime  = regexp.MustCompile(`\$__(rate_)?interval|\$__range`)
	grafanaQuery = regexp.MustCompile(`^label_values\((.+), ([a-z_]+)\)$`)
	legendLabel  = regexp.MustCompile(`\{\{\s*([a-zA-Z_]+)\s*\}\}`)
	plainWords   = regexp.MustCompile(`^[a-zA-Z0-9_|-]+$`)
)

// checker compares expressions with what is registered. literals says whether the code
// has a string, so that the value of a label can be no slip of the pen.
type checker struct {
	known    registry
	literals func(value string) bool
}

// check reads one expression and returns all that is wrong with it.
func (c checker) check(q query) (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	text := q.expr
	if parts := grafanaQuery.FindStringSubmatch(text); parts != nil {
		text = "group by (" + parts[2] + ") (" + parts[1] + ")"
	}
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(grafanaTime.ReplaceAllString(text, "5m"))
	if err != nil {
		return []string{err.Error()}
	}
	for _, s := range parser.ExtractSelectors(expr) {
		problems = append(problems, c.selector(s)...)
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.AggregateExpr:
			problems = append(problems, c.grouping(n.Expr, n.Grouping)...)
		case *parser.BinaryExpr:
			if m := n.VectorMatching; m != nil {
				problems = append(problems, c.grouping(n, append(slices.Clone(m.MatchingLabels), m.Include...))...)
			}
		case *parser.Call:
			problems = append(problems, c.call(n)...)
		}
		return nil
	})
	for _, label := range legendLabel.FindAllStringSubmatch(q.legend, -1) {
		for _, p := range c.grouping(expr, label[1:]) {
			wrong("legend: %s", p)
		}
	}
	return problems
}

// find looks a series' name up, also one of a histogram's three.
func (c checker) find(name string) (m *metric, bucket bool) {
	if m := c.known[name]; m != nil && !m.histogram {
		return m, false
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		base, ok := strings.CutSuffix(name, suffix)
		if m := c.known[base]; ok && m != nil && m.histogram {
			return m, suffix == "_bucket"
		}
	}
	return nil, false
}

func nameOf(s []*labels.Matcher) string {
	for _, m := range s {
		if m.Name == nameLabel {
			return m.Value
		}
	}
	return ""
}

func (c checker) selector(matchers []*labels.Matcher) (problems []string) {
	name := nameOf(matchers)
	m, bucket := c.find(name)
	if m == nil {
		return []string{"no service registers " + name}
	}
	for _, match := range matchers {
		if match.Name == nameLabel || bucket && match.Name == "le" {
			continue
		}
		if !m.has(match.Name) {
			problems = append(problems, fmt.Sprintf("%s has no label %s", name, match.Name))
			continue
		}
		for _, value := range c.values(match) {
			constant, isConst := m.values[match.Name]
			if isConst && !slices.Contains(constant, value) || !isConst && !c.literals(value) {
				problems = append(problems, fmt.Sprintf("%s: nobody sets %s to %q", name, match.Name, value))
			}
		}
	}
	return problems
}

// values are those that a matcher names, as far as they are the code's own.
func (c checker) values(m *labels.Matcher) []string {
	switch {
	case strings.Contains(m.Value, "$") || !plainWords.MatchString(m.Value):
		return nil // a variable of Grafana's or a real pattern
	case slices.Contains(scrapeLabels, m.Name) && m.Name != "job":
		return nil
	case m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp:
		return strings.Split(m.Value, "|")
	}
	return []string{m.Value}
}

// grouping: every series below must have the labels, or the answer is not what it seems.
func (c checker) grouping(below parser.Expr, names []string) (problems []string) {
	for _, s := range parser.ExtractSelectors(below) {
		name := nameOf(s)
		m, bucket := c.find(name)
		for _, label := range names {
			if m != nil && !m.has(label) && !(bucket && label == "le") {
				problems = append(problems, fmt.Sprintf("%s has no label %s to group by", name, label))
			}
		}
	}
	return problems
}

// call: rates are of what only grows, quantiles of buckets by le.
func (c checker) call(call *parser.Call) (problems []string) {
	switch call.Func.Name {
	case "rate", "irate", "increase":
		for _, s := range parser.ExtractSelectors(call) {
			name := nameOf(s)
			if !strings.HasSuffix(name, "_total") && !strings.HasSuffix(name, "_bucket") && !strings.HasSuffix(name, "_sum") && !strings.HasSuffix(name, "_count") {
				problems = append(problems, fmt.Sprintf("%s of %s, which is no counter", call.Func.Name, name))
			}
		}
	case "histogram_quantile":
		sum, ok := call.Args[1].(*parser.AggregateExpr)
		if !ok || !slices.Contains(sum.Grouping, "le") {
			problems = append(problems, "histogram_quantile without a sum by le")
		}
	}
	return problems
}
