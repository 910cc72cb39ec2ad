package sheet_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/test/bench/internal/sheet"
)

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567.4: "1,234,567", -4321: "-4,321", -0.2: "0"} {
		require.Equal(t, want, sheet.Count(v))
	}
	require.Equal(t, "–", sheet.Count(math.NaN()))
	require.Equal(t, "0.93", sheet.Ratio(0.9345))
	require.Equal(t, "–", sheet.Ratio(math.Inf(1)))
}

func TestTableAlignsItsColumns(t *testing.T) {
	table := sheet.NewTable("who", "rate")
	table.Row("floor", "48,400")
	table.Row("naive relay", "4,100")
	var out strings.Builder
	require.NoError(t, table.Print(&out))
	require.Equal(t, "who          rate\nfloor        48,400\nnaive relay  4,100\n", out.String())
}

func TestFilesAreWrittenWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out", "x.json")
	require.NoError(t, sheet.WriteJSON(path, map[string]float64{"a": 1}))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.JSONEq(t, `{"a":1}`, string(text))
	left, err := filepath.Glob(path + ".*")
	require.NoError(t, err)
	require.Empty(t, left)
	require.Error(t, sheet.WriteJSON(path, math.NaN()), "a figure that was not measured must not pass for one")
}
