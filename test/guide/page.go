// Package guide follows docs/fifth-consumer.md to the letter, in a copy of the project.
package guide

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// step is one block of the page and what its introduction says of it.
type step struct {
	kind kind
	path string // of the file, for all but commands and SQL
	text string
	line int
}

type kind string

const (
	newFile  kind = "New file"
	change   kind = "Change"
	appended kind = "At the end of"
	run      kind = "Run"
	shown    kind = "" // to be used by the test, or read by a person
)

// introduction is the end of the paragraph before a block.
var introduction = regexp.MustCompile("(New file|Change|At the end of) `([^`]+)`:$|(Run):$")

// parse takes the page apart. A block of Go or a diff that is not introduced is a
// mistake: somebody would not know where it belongs.
func parse(page string) ([]step, error) {
	var steps []step
	var before string // the last line that was not empty
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		if !strings.HasPrefix(lines[i], "```") {
			if strings.TrimSpace(lines[i]) != "" {
				before = lines[i]
			}
			continue
		}
		language := strings.TrimPrefix(lines[i], "```")
		s := step{line: i + 1}
		if m := introduction.FindStringSubmatch(before); m != nil {
			s.kind, s.path = kind(m[1]+m[3]), m[2]
		}
		for i++; i < len(lines) && lines[i] != "```"; i++ {
			s.text += lines[i] + "\n"
		}
		wants := map[string][]kind{"go": {newFile}, "diff": {change}, "sh": {run}, "sql": {appended, shown}, "": {shown}}
		if !contains(wants[language], s.kind) {
			return nil, fmt.Errorf("line %d: a block of %q is introduced as %q", s.line, language, s.kind)
		}
		steps = append(steps, s)
		before = ""
	}
	return steps, nil
}

func contains(kinds []kind, k kind) bool {
	for _, have := range kinds {
		if have == k {
			return true
		}
	}
	return false
}

// follow does one step in the copy.
func (s step) follow(root string) error {
	path := filepath.Join(root, s.path)
	switch s.kind {
	case newFile:
		if _, err := os.Stat(path); err == nil {
			return fmt.Errorf("%s exists", s.path)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, []byte(s.text), 0o644)
	case appended:
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString("\n" + s.text)
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		return err
	case change:
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		changed, err := patch(string(text), s.text)
		if err != nil {
			return err
		}
		return os.WriteFile(path, []byte(changed), 0o644)
	case run:
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", s.text)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return nil
}

// patch applies a diff whose hunks begin with a bare @@: what a person does who looks
// for the place. Each hunk must fit in one place only.
func patch(text, diff string) (string, error) {
	for _, hunk := range strings.Split(diff, "@@\n") {
		if hunk == "" {
			continue
		}
		var old, changed strings.Builder
		for _, line := range strings.SplitAfter(hunk, "\n") {
			if line == "" {
				continue
			}
			if line[0] != '+' {
				old.WriteString(line[1:])
			}
			if line[0] != '-' {
				changed.WriteString(line[1:])
			}
		}
		if n := strings.Count(text, old.String()); n != 1 {
			return "", fmt.Errorf("this fits %d times, must fit once:\n%s", n, old.String())
		}
		text = strings.Replace(text, old.String(), changed.String(), 1)
	}
	return text, nil
}
