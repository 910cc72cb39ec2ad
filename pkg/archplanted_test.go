package arch_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// importing is a source file that imports these paths.
func importing(paths ...string) string {
	text := "package x\n"
	for _, path := range paths {
		text += "import _ \"" + path + "\"\n"
	}
	return text
}

func room(name string) string { return modulePrefix + "pkg/" + name }

func lines(n int) string { return strings.Repeat("\n", n) }

// A rule that never fires holds nothing: each is shown a breach, and the
// nearest thing that is none.
func TestPlantedImports(t *testing.T) {
	const goRedis, rocket = "github.com/redis/go-redis/v9", "github.com/apache/rocketmq-client-go/v2/primitive"
	tests := map[string]struct {
		file    string
		imports []string
		want    string // "" for nothing
	}{
		"an allowed arrow":              {"pkg/outbox/a.go", []string{room("event"), room("db"), room("lease"), "fmt"}, ""},
		"a subpackage of a room":        {"pkg/lease/a.go", []string{room("db/migrations")}, ""},
		"a room's own subpackage":       {"pkg/db/a.go", []string{room("db/migrations")}, ""},
		"the helper for all":            {"pkg/event/a.go", []string{room("backoff")}, ""},
		"an arrow that is not drawn":    {"pkg/outbox/a.go", []string{room("flags")}, "outbox must not import flags"},
		"outbox never sees eventbus":    {"pkg/outbox/a.go", []string{room("eventbus")}, "outbox must not import eventbus"},
		"a leaf imports nothing":        {"pkg/event/a.go", []string{room("db")}, "event must not import db"},
		"a room inside a room":          {"pkg/eventbus/a.go", []string{room("eventbus/redisstreams")}, "provider alone opens drivers"},
		"a driver beside the provider":  {"pkg/task/a.go", []string{room("eventbus/rocketmq")}, "provider alone opens drivers"},
		"a driver in a service":         {"services/relay/a.go", []string{room("eventbus/rocketmq")}, "provider alone opens drivers"},
		"the provider opens drivers":    {"pkg/eventbus/provider/a.go", []string{room("eventbus/redisstreams"), room("eventbus/rocketmq")}, ""},
		"a test may see more":           {"pkg/outbox/a_test.go", []string{room("eventbus/provider"), room("testenv")}, ""},
		"testenv in shipped code":       {"pkg/outbox/a.go", []string{room("testenv")}, "testenv is for tests"},
		"testenv in a service":          {"services/relay/a.go", []string{room("testenv/fcmfake")}, "testenv is for tests"},
		"testenv in dev":                {"dev/stack/a.go", []string{room("testenv")}, ""},
		"testenv in test":               {"test/bench/a.go", []string{room("testenv"), goRedis}, ""},
		"pkg imports a service":         {"pkg/task/a.go", []string{modulePrefix + "services/relay"}, "pkg must not import services/relay"},
		"even in a test":                {"pkg/task/a_test.go", []string{modulePrefix + "services/relay"}, "pkg must not import"},
		"pkg imports dev":               {"pkg/testenv/a_test.go", []string{modulePrefix + "dev/stack"}, "pkg must not import dev/stack"},
		"a service imports another":     {"services/relay/a.go", []string{modulePrefix + "services/push-consumer/x"}, "services/relay must not import services/push-consumer"},
		"a service imports itself":      {"services/relay/a.go", []string{modulePrefix + "services/relay/x"}, ""},
		"an SDK in its driver":          {"pkg/eventbus/redisstreams/a.go", []string{goRedis}, ""},
		"an SDK in the other driver":    {"pkg/eventbus/redisstreams/a.go", []string{rocket}, "belongs in eventbus/rocketmq alone"},
		"an SDK in testenv":             {"pkg/testenv/a.go", []string{goRedis}, ""},
		"an SDK in a service":           {"services/relay/a.go", []string{goRedis}, "belongs in eventbus/redisstreams alone"},
		"a service named as a room":     {"services/testenv/a.go", []string{goRedis}, "belongs in eventbus/redisstreams alone"},
		"a namesake of an SDK":          {"services/relay/a.go", []string{"github.com/redis/go-redis-entraid"}, ""},
		"a room that nobody drew":       {"pkg/utils/a.go", []string{room("db")}, "is in no known room"},
		"a stray file beside the rooms": {"pkg/a.go", nil, "is in no known room"},
		"what is not code of ours":      {"pkg/outbox/testdata/a.go", []string{room("flags")}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			requireViolation(t, test.file, importing(test.imports...), test.want)
		})
	}
}

func TestPlantedSizes(t *testing.T) {
	const file = "pkg/event/a.go"
	tests := map[string]struct{ file, source, want string }{
		"a long file":                  {file, "package x\n" + lines(399), "the file has 400 lines"},
		"the longest file":             {file, "package x\n" + lines(398), ""},
		"an excused file":              {file, "// arch: one table\n\npackage x\n" + lines(500), ""},
		"an excuse without a reason":   {file, "// arch:\n\npackage x\n" + lines(500), "the file has"},
		"an excuse in the wrong place": {file, "package x\n" + lines(500) + "// arch: late\n", "the file has"},
		"a long test":                  {"pkg/event/a_test.go", "package x\n" + lines(500), ""},
		"a generated file":             {file, "// Code generated by x. DO NOT EDIT.\n\npackage x\n" + lines(500), ""},
		"a main that does more":        {"services/relay/main.go", "package main\n" + lines(61), "at most 60"},
		"a publish.go that does more":  {"services/relay/publish.go", "package main\n" + lines(61), "at most 60"},
		"another file of a service":    {"services/relay/pass.go", "package main\n" + lines(61), ""},
		"a long function":              {file, "package x\nfunc f() {" + lines(59) + "}\n", "function f has 60 lines"},
		"the longest function":         {file, "package x\nfunc f() {" + lines(58) + "}\n", ""},
		"a long comment":               {file, "package x\n" + strings.Repeat("// why\n", 70) + "func f() {}\n", ""},
		"a long method":                {file, "package x\ntype T int\nfunc (T) f() {" + lines(59) + "}\n", "function f has"},
		"an excused function":          {file, "package x\n// f\n// arch: one table\nfunc f() {" + lines(70) + "}\n", ""},
		"init":                         {file, "package x\nfunc init() {}\n", "init runs before main"},
		"a method called init":         {file, "package x\ntype T int\nfunc (T) init() {}\n", ""},
		"a wide interface":             {file, "package x\ntype I interface { A(); B(); C(); D(); E(); F(); G() }\n", "interface I has 7 methods"},
		"the widest interface":         {file, "package x\ntype I interface { A(); B(); C(); D(); E(); error }\n", ""},
		"an excused interface":         {file, "package x\n// arch: a vendor's\ntype I interface { A(); B(); C(); D(); E(); F(); G() }\n", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			requireViolation(t, test.file, test.source, test.want)
		})
	}
}

func TestAFileThatDoesNotParseIsAnError(t *testing.T) {
	root := plant(t, "pkg/event/a.go", "package")
	_, err := checkTree(root)
	require.Error(t, err)
}

func requireViolation(t *testing.T, file, source, want string) {
	t.Helper()
	violations, err := checkTree(plant(t, file, source))
	require.NoError(t, err)
	if want == "" {
		require.Empty(t, violations)
		return
	}
	require.Len(t, violations, 1, "one breach, one line: %q", violations)
	require.Contains(t, violations[0], want)
	require.Contains(t, violations[0], file)
}

func plant(t *testing.T, file, source string) (root string) {
	t.Helper()
	root = t.TempDir()
	name := filepath.Join(root, filepath.FromSlash(file))
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(source), 0o644))
	return root
}
