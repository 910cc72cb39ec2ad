package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/dev/stack"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	noAnchor = regexp.MustCompile("[^a-z0-9 _-]")
)

// TestLinksLead: each relative link of each page names a file that is there, and a
// heading in it; and README leads to every page, at once or by others.
func TestLinksLead(t *testing.T) {
	root, err := stack.Root()
	require.NoError(t, err)
	links := map[string][]string{}
	for _, page := range pages(t, root) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		links[page] = nil
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if fault := follow(page, m[1]); fault != "" {
				t.Errorf("%s: link to %s: %s", page, m[1], fault)
			}
			if path, _, _ := strings.Cut(m[1], "#"); path != "" {
				links[page] = append(links[page], filepath.Join(filepath.Dir(page), path))
			}
		}
	}
	reached := map[string]bool{}
	var reach func(page string)
	reach = func(page string) {
		if reached[page] {
			return
		}
		reached[page] = true
		for _, next := range links[page] {
			reach(next)
		}
	}
	reach(filepath.Join(root, "README.md"))
	for page := range links {
		// A link to a folder leads to all pages in it.
		require.True(t, reached[page] || reached[filepath.Dir(page)], "no link leads from README to %s", page)
	}
}

func pages(t *testing.T, root string) (paths []string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md")
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	for _, name := range strings.Fields(string(out)) {
		paths = append(paths, filepath.Join(root, name))
	}
	require.NotEmpty(t, paths)
	return paths
}

func follow(page, target string) (fault string) {
	if strings.Contains(target, "://") {
		return ""
	}
	path, anchor, _ := strings.Cut(target, "#")
	if path = filepath.Join(filepath.Dir(page), path); strings.HasPrefix(target, "#") {
		path = page
	}
	if _, err := os.Stat(path); err != nil {
		return err.Error()
	}
	if anchor == "" {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	for _, h := range heading.FindAllStringSubmatch(string(text), -1) {
		if strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-") == anchor {
			return ""
		}
	}
	return "no heading of that name"
}

// TestTheChangelogKnowsTheSchema: an operator reads there what a version needs.
func TestTheChangelogKnowsTheSchema(t *testing.T) {
	root, err := stack.Root()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "pkg", "db", "migrations", "sql", "*.sql"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	last, _, _ := strings.Cut(filepath.Base(files[len(files)-1]), "_")
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	said := regexp.MustCompile(`Schema: (\d+)\.`).FindStringSubmatch(string(text)) // the newest version's stands first
	require.NotNil(t, said)
	require.Equal(t, strings.TrimLeft(last, "0"), said[1])
}
