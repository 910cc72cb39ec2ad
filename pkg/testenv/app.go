package testenv

import (
	_ "embed"
	"strings"
	"testing"
)

//go:embed app.sql
var appSQL string

// AppSQL returns the statements that create the consumer app's own tables in an
// empty schema, one by one.
func AppSQL() []string {
	var lines []string
	for line := range strings.Lines(appSQL) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	var statements []string
	for statement := range strings.SplitSeq(strings.Join(lines, ""), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			statements = append(statements, statement)
		}
	}
	return statements
}

// LoadApp creates the consumer app's own tables in the schema.
func (s *Schema) LoadApp(t testing.TB) {
	t.Helper()
	for _, statement := range AppSQL() {
		s.Exec(t, statement)
	}
}
