package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExpressions(t *testing.T) {
	limits := map[string]float64{"x": 5}
	f := func(name, subject string, v float64) figure { return known(name, subject, unitRows, v) }
	for text, tt := range map[string]struct {
		figures []figure
		want    truth
	}{
		"a > $x":           {[]figure{f("a", "s", 6)}, yes},
		"a >= 6":           {[]figure{f("a", "s", 6)}, yes},
		"a < 6":            {[]figure{f("a", "s", 6)}, no},
		"a != 0 and b > 0": {[]figure{f("a", "s", 6), f("b", "", 1)}, yes},
		"a > 0 and b > 0":  {[]figure{f("a", "s", 6), f("b", "s", 0), f("b", "", 1)}, no},
		"a > 1 and b > 0":  {[]figure{f("a", "s", 6), unknown("b", "s", "", os.ErrClosed)}, dontKnow},
		"a > 9 and b > 0":  {[]figure{f("a", "s", 6), unknown("b", "s", "", os.ErrClosed)}, no},
		"a > 2":            {[]figure{unknown("a", "s", "", os.ErrClosed)}, dontKnow},
		"a is unknown":     {[]figure{unknown("a", "s", "", os.ErrClosed)}, yes},
		"a > 3 and c > 0":  {[]figure{f("a", "s", 6)}, no},
	} {
		e, err := parseExpr(text, limits)
		require.NoError(t, err, text)
		got := e.judge(newSheet(tt.figures))
		require.Len(t, got, 1)
		require.Equal(t, tt.want, got[0].truth, text)
	}
	for _, text := range []string{"", "a", "a > b", "a ~ 1", "a > $nope", "a > 1 or b > 1"} {
		_, err := parseExpr(text, limits)
		require.ErrorIs(t, err, errExpr, text)
	}
}

// Each rule reads, has a page for whoever is woken by it, and no page is left over.
func TestEveryRuleHasARunbook(t *testing.T) {
	list, err := loadRules(testConfig().Thresholds.byName())
	require.NoError(t, err)
	pages := map[string]bool{ruleDatabase: true}
	for _, r := range list {
		require.False(t, pages[r.Name], "%s is there twice", r.Name)
		require.NotEmpty(t, r.Summary)
		pages[r.Name] = true
	}
	for name := range pages {
		require.FileExists(t, filepath.Join("..", "..", "docs", "runbooks", name+".md"))
	}
	// The twelve figures all have a rule.
	for _, d := range definitions() {
		found := false
		for _, r := range list {
			found = found || r.parsed.terms[0].figure == d.Name && r.parsed.terms[0].threshold == d.Threshold
		}
		require.True(t, found, d.Name)
	}
}
