package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/seahub/seahub-mq/dev/up"
)

// compose is the part of compose.yaml's format that is used.
type compose struct {
	Name     string                    `json:"name"`
	Services map[string]composeService `json:"services"`
	Configs  map[string]struct {
		Content string `json:"content"`
	} `json:"configs"`
	Volumes map[string]any `json:"volumes"`
}

type composeService struct {
	Image string `json:"image"`
	Build struct {
		Context string            `json:"context"`
		Args    map[string]string `json:"args"`
	} `json:"build"`
	Command     []string          `json:"command"`
	Environment map[string]string `json:"environment"`
	Ports       []string          `json:"ports"`
	Volumes     []string          `json:"volumes"`
	Profiles    []string          `json:"profiles"`
	Restart     string            `json:"restart"`
	Init        bool              `json:"init"`
	WorkingDir  string            `json:"working_dir"`
	NetworkMode string            `json:"network_mode"`
	DependsOn   map[string]struct {
		Condition string `json:"condition"`
	} `json:"depends_on"`
	Healthcheck *struct {
		Test     []string `json:"test"`
		Interval string   `json:"interval"`
		Timeout  string   `json:"timeout"`
		Retries  int      `json:"retries"`
	} `json:"healthcheck"`
	Configs []struct {
		Source string `json:"source"`
		Target string `json:"target"`
	} `json:"configs"`
}

var withDefault = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`)

// parseCompose reads compose.yaml strictly, with the defaults of its variables.
func parseCompose(f tree) (*compose, error) {
	text := withDefault.ReplaceAllString(f["compose.yaml"], "$1")
	var raw map[string]json.RawMessage
	if err := yaml.Unmarshal([]byte(text), &raw); err != nil {
		return nil, fmt.Errorf("compose.yaml: %w", err)
	}
	for name := range raw {
		if strings.HasPrefix(name, "x-") {
			delete(raw, name)
		}
	}
	plain, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	var c compose
	if err := yaml.UnmarshalStrict(plain, &c); err != nil {
		return nil, errors.New("compose.yaml: " + strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return &c, nil
}

// composeProblems compares compose.yaml with dev/stack and dev/up.
func composeProblems(f tree, keys map[string]map[string]key) []string {
	c, err := parseCompose(f)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	bad := func(format string, args ...any) { out = append(out, "compose.yaml: "+fmt.Sprintf(format, args...)) }
	ports, err := upPorts(f)
	if err != nil {
		return []string{err.Error()}
	}
	told, err := stackVariables(f)
	if err != nil {
		return []string{err.Error()}
	}
	for name, s := range c.Services {
		for _, d := range slices.Sorted(maps.Keys(s.DependsOn)) {
			if c.Services[d].Image == "" {
				bad("%s depends on %s, which there is not", name, d)
			}
			if s.DependsOn[d].Condition == "service_healthy" && c.Services[d].Healthcheck == nil {
				bad("%s waits for the health of %s, which has no check", name, d)
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				bad("%s: port %s is open to other machines", name, p)
			}
		}
		if service := s.Build.Args["SERVICE"]; service != "" && keys != nil {
			for _, problem := range environmentProblems(s.Environment, keys, service) {
				bad("%s: %s", name, problem)
			}
		}
	}
	for name, port := range ports {
		if got := published(c, name); got != port {
			bad("%s is published as %q, `make up` has it at %q", name, got, port)
		}
	}
	for service := range keys {
		for variable := range told {
			if _, reads := keys[service][variable]; reads && c.Services[service].Environment[variable] == "" {
				bad("%s is not told %s, which dev/stack tells it", service, variable)
			}
		}
	}
	return out
}

// published is the port of a service on this machine, or of the one whose network it shares.
func published(c *compose, name string) string {
	s := c.Services[name]
	if other, ok := strings.CutPrefix(s.NetworkMode, "service:"); ok {
		s = c.Services[other]
	}
	if len(s.Ports) != 1 {
		return ""
	}
	return strings.Split(s.Ports[0], ":")[1]
}

// upPorts are the ports of `make up`: servers by their offset, the services in their order.
func upPorts(f tree) (map[string]string, error) {
	offsets, err := constants(f["dev/up/doc.go"])
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	port := func(name, constant string, more int) {
		if _, ok := offsets[constant]; !ok {
			err = fmt.Errorf("dev/up has no constant %s any more", constant)
		}
		out[name] = strconv.Itoa(up.DefaultPortsFrom + offsets[constant] + more)
	}
	port("mariadb", "offsetMariaDB", 0)
	port("redis", "offsetRedis", 0)
	for i, service := range []string{"relay", "push-consumer", "coupon-consumer", "campaign-consumer", "ops-consumer"} {
		port(service, "offsetServices", i)
	}
	return out, err
}

func constants(source string) (map[string]int, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", source, 0)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.INT {
			out[spec.Names[0].Name], _ = strconv.Atoi(lit.Value)
		}
		return true
	})
	return out, nil
}

// notInCompose are variables of dev/stack's that have no place in compose.yaml: its broker
// of RocketMQ asks for no account.
var notInCompose = []string{"SEAHUB_ROCKETMQ_ACCESS_KEY", "SEAHUB_ROCKETMQ_SECRET_KEY"}

// stackVariables are the variables that dev/stack gives to services.
func stackVariables(f tree) (map[string]bool, error) {
	out := map[string]bool{}
	for name, source := range f {
		if !strings.HasPrefix(name, "dev/stack/") || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			pair, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			if lit, ok := pair.Key.(*ast.BasicLit); ok && strings.HasPrefix(lit.Value, `"SEAHUB_`) {
				variable, _ := strconv.Unquote(lit.Value)
				out[variable] = !slices.Contains(notInCompose, variable)
			}
			return true
		})
	}
	maps.DeleteFunc(out, func(_ string, told bool) bool { return !told })
	if len(out) == 0 {
		return nil, errors.New("dev/stack gives no variables to services: is this test still right?")
	}
	return out, nil
}

func TestCompose(t *testing.T) {
	p := inspected(t)
	require.Empty(t, composeProblems(p.tree, p.keys))
	c, err := parseCompose(p.tree)
	require.NoError(t, err)
	for name, s := range c.Services {
		if service := s.Build.Args["SERVICE"]; service != "" {
			require.NoError(t, p.accepts(t.Context(), service, s.Environment), name)
		}
	}
}
