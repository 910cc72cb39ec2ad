// Package arch_test holds the house together: it reads every import line and
// every size in the checkout and fails when a room reaches for one that it may
// not see. The table below is the architecture; whoever needs a new arrow
// changes it here, in sight of the reviewer, and not by an import somewhere.
package arch_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePrefix = "github.com/seahub/seahub-mq/"

// rooms names every room of pkg by its folder, and the rooms that its non-test
// files may import. A room's subfolders belong to it unless they stand here too.
var rooms = map[string][]string{
	"backoff":               nil,
	"event":                 nil,
	"db":                    nil,
	"service":               nil,
	"lease":                 {"db"},
	"flags":                 {"db"},
	"budget":                {"db"},
	"outbox":                {"event", "db", "lease"},
	"eventbus":              {"event", "eventbus/driver"},
	"eventbus/driver":       nil,
	"eventbus/redisstreams": {"eventbus/driver"},
	"eventbus/rocketmq":     {"eventbus/driver", "eventbus/rocketmq/remoting"},
	// A client of the protocol and nothing else, hence also for testenv, which
	// provisions and imitates brokers by it.
	"eventbus/rocketmq/remoting": nil,
	"eventbus/provider":          {"eventbus", "eventbus/driver", "eventbus/redisstreams", "eventbus/rocketmq"},
	"eventbus/eventbustest":      {"eventbus", "eventbus/driver"},
	"task":                       {"event", "db", "flags", "lease", "eventbus"},
	"testenv":                    {"db", "eventbus/rocketmq/remoting"},
}

// forAll are rooms without imports of their own that every room may use.
var forAll = []string{"backoff"}

// drivers are imported by the provider alone, or the choice of a broker would be
// more than one config word.
var drivers = []string{"eventbus/redisstreams", "eventbus/rocketmq"}

// sdks are the brokers' clients, with the one room that may hold each.
var sdks = map[string]string{
	"github.com/redis/go-redis":            "eventbus/redisstreams",
	"github.com/apache/rocketmq-client-go": "eventbus/rocketmq",
}

// Sizes that the calmest code bases of this field hold. A comment
// "// arch: reason" at the breach (above the package clause for a file) is the
// way out.
const (
	maxFileLines        = 399
	maxFuncLines        = 59
	maxInterfaceMethods = 6
	maxMainLines        = 60
)

// shortFile names the files that only join rooms; what they would decide beyond
// that belongs elsewhere.
func shortFile(file string) bool {
	wiring, _ := path.Match("services/*/main.go", file)
	return wiring || file == "services/relay/publish.go"
}

func TestTheHouse(t *testing.T) {
	violations, err := checkTree("..")
	require.NoError(t, err)
	for _, violation := range violations {
		t.Error(violation)
	}
}

// checkTree returns the violations in all modules below root, but not in tools,
// which holds no code of ours.
func checkTree(root string) ([]string, error) {
	var violations []string
	for _, top := range []string{"pkg", "services", "dev", "test"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				if os.IsNotExist(err) && name == filepath.Join(root, top) {
					return fs.SkipDir // a module that is not written yet
				}
				return err
			}
			if entry.IsDir() {
				if hidden(entry.Name()) && name != root {
					return fs.SkipDir
				}
				return nil
			}
			if path.Ext(name) != ".go" {
				return nil
			}
			relative, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			found, err := checkFile(name, filepath.ToSlash(relative))
			violations = append(violations, found...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the tree: %w", err)
		}
	}
	return violations, nil
}

func hidden(folder string) bool {
	return folder == "testdata" || folder == "vendor" || strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_")
}

// source is one parsed file and what was found in it.
type source struct {
	file       string // from the root, with slashes
	test       bool
	fset       *token.FileSet
	syntax     *ast.File
	violations []string
}

func checkFile(name, relative string) ([]string, error) {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{file: relative, test: strings.HasSuffix(relative, "_test.go"), fset: fset, syntax: syntax}
	if inPkg, ok := strings.CutPrefix(relative, "pkg/"); ok && !s.test && roomOf(inPkg) == "" {
		s.report(syntax, "%s is in no known room: give it a line in rooms, pkg/arch_test.go", path.Dir(relative))
	}
	for _, spec := range syntax.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		s.checkImport(spec, imported)
	}
	if !s.test && !ast.IsGenerated(syntax) {
		s.checkSizes()
	}
	return s.violations, nil
}

func (s *source) report(at ast.Node, format string, args ...any) {
	where := fmt.Sprintf("%s:%d: ", s.file, s.fset.Position(at.Pos()).Line)
	s.violations = append(s.violations, where+fmt.Sprintf(format, args...))
}

func (s *source) checkImport(at ast.Node, imported string) {
	ours, isOurs := strings.CutPrefix(imported, modulePrefix)
	top, _, _ := strings.Cut(s.file, "/")
	targetTop, _, _ := strings.Cut(ours, "/")
	switch {
	case isOurs && top == "pkg" && targetTop != "pkg":
		s.report(at, "pkg must not import %s: shared rooms know no service", ours)
	case isOurs && top == "services" && targetTop == "services" && module(s.file) != module(ours):
		s.report(at, "%s must not import %s: each service is deployed alone; share by a room of pkg", module(s.file), module(ours))
	}
	if s.test || top == "test" {
		return
	}
	if target, ok := strings.CutPrefix(ours, "pkg/"); isOurs && ok {
		s.checkRoom(at, top, roomOf(target))
	}
	s.checkSDK(at, imported)
}

// checkRoom judges the import of a room by a non-test file.
func (s *source) checkRoom(at ast.Node, top, target string) {
	self := roomOf(strings.TrimPrefix(s.file, "pkg/"))
	switch {
	case target == "testenv" && top != "dev" && (top != "pkg" || self != "testenv"):
		s.report(at, "testenv is for tests, dev and test only")
	case slices.Contains(drivers, target) && (top != "pkg" || self != "eventbus/provider" && self != target):
		s.report(at, "%s must not be imported here: eventbus/provider alone opens drivers", target)
	case top != "pkg" || self == "" || self == target || slices.Contains(forAll, target):
	case !slices.Contains(rooms[self], target):
		s.report(at, "%s must not import %s, it may import only %v", self, target, append(slices.Clone(rooms[self]), forAll...))
	}
}

func (s *source) checkSDK(at ast.Node, imported string) {
	self := roomOf(strings.TrimPrefix(s.file, "pkg/"))
	inPkg := strings.HasPrefix(s.file, "pkg/")
	for sdk, home := range sdks {
		if imported != sdk && !strings.HasPrefix(imported, sdk+"/") {
			continue
		}
		if !inPkg || self != home && self != "testenv" {
			s.report(at, "the broker's client %s belongs in %s alone", sdk, home)
		}
	}
}

// roomOf finds the room of a path below pkg: the longest one that holds it.
func roomOf(target string) string {
	best := ""
	for room := range maps.Keys(rooms) {
		if (target == room || strings.HasPrefix(target, room+"/")) && len(room) > len(best) {
			best = room
		}
	}
	return best
}

// module names the module of a path of services: its first two parts.
func module(file string) string {
	parts := strings.SplitN(file, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

func (s *source) checkSizes() {
	limit, lines := maxFileLines, s.fset.File(s.syntax.Pos()).LineCount()
	if shortFile(s.file) {
		limit = maxMainLines
	}
	if lines > limit && !s.excused(1, s.line(s.syntax.Package)) {
		s.report(s.syntax, "the file has %d lines, at most %d", lines, limit)
	}
	ast.Inspect(s.syntax, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			s.checkFunc(n)
		case *ast.TypeSpec:
			s.checkInterface(n)
		}
		return true
	})
}

func (s *source) checkFunc(f *ast.FuncDecl) {
	first, last := s.line(f.Pos()), s.line(f.End())
	if f.Doc != nil {
		first = s.line(f.Doc.Pos())
	}
	if s.excused(first, last) {
		return
	}
	if lines := last - s.line(f.Type.Func) + 1; lines > maxFuncLines {
		s.report(f.Name, "function %s has %d lines, at most %d", f.Name.Name, lines, maxFuncLines)
	}
	if f.Name.Name == "init" && f.Recv == nil {
		s.report(f.Name, "init runs before main can say anything about it: call it by name")
	}
}

func (s *source) checkInterface(spec *ast.TypeSpec) {
	declared, ok := spec.Type.(*ast.InterfaceType)
	if !ok {
		return
	}
	methods := 0
	for _, field := range declared.Methods.List {
		methods += max(1, len(field.Names)) // an embedded interface counts as one
	}
	if methods > maxInterfaceMethods && !s.excused(s.line(spec.Pos())-1, s.line(spec.End())) {
		s.report(spec.Name, "interface %s has %d methods, at most %d", spec.Name.Name, methods, maxInterfaceMethods)
	}
}

func (s *source) line(pos token.Pos) int { return s.fset.Position(pos).Line }

// excused finds a comment "// arch: reason" between two lines.
func (s *source) excused(first, last int) bool {
	for _, group := range s.syntax.Comments {
		for _, comment := range group.List {
			reason, ok := strings.CutPrefix(comment.Text, "// arch:")
			line := s.line(comment.Pos())
			if ok && strings.TrimSpace(reason) != "" && line >= first && line <= last {
				return true
			}
		}
	}
	return false
}
