package chart_test

import (
	"encoding/xml"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seahub/seahub-mq/test/bench/internal/chart"
)

// parse reads the drawing to its end and returns its texts.
func parse(t *testing.T, svg string) (texts []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	inText := false
	for {
		token, err := d.Token()
		if err == io.EOF {
			return texts
		}
		require.NoError(t, err)
		switch v := token.(type) {
		case xml.StartElement:
			inText = v.Name.Local == "text"
			require.Equal(t, "http://www.w3.org/2000/svg", v.Name.Space)
		case xml.EndElement:
			inText = false
		case xml.CharData:
			if inText {
				texts = append(texts, string(v))
			}
		}
	}
}

func example() chart.Chart {
	return chart.Chart{
		Title: "Latency <&> backlog", Subtitle: "a \"test\"", XLabel: "seconds",
		Bands: []chart.Band{{From: 1, To: 2, Label: "down"}},
		Panels: []chart.Panel{
			{Title: "latency", Log: true, Lines: []chart.Line{
				{Name: "p99", Color: "#f00", Points: []chart.Point{{X: 0.5, Y: 0}, {X: 1, Y: 3}, {X: 3, Y: 4200}}},
				{Name: "p50", Color: "#00f", Points: []chart.Point{{X: 0.5, Y: 2}, {X: 3, Y: 2}}},
			}},
			{Title: "backlog", Lines: []chart.Line{{Name: "n", Color: "#0f0", Points: []chart.Point{{X: 0, Y: 0}, {X: 3, Y: 4321}}}}},
		},
	}
}

func TestDrawingIsWellFormedAndSaysEverything(t *testing.T) {
	texts := parse(t, example().SVG())
	for _, want := range []string{"Latency <&> backlog", "a \"test\"", "seconds", "down", "latency", "backlog", "p99", "p50", "5,000", "1", "10,000"} {
		require.Contains(t, texts, want)
	}
}

func TestEverythingIsInsideTheDrawing(t *testing.T) {
	svg := example().SVG()
	require.NotContains(t, svg, "NaN")
	require.NotContains(t, svg, "Inf")
	height, err := strconv.ParseFloat(regexp.MustCompile(`height="(\d+)"`).FindStringSubmatch(svg)[1], 64)
	require.NoError(t, err)
	for _, points := range regexp.MustCompile(`points="([^"]*)"`).FindAllStringSubmatch(svg, -1) {
		for _, pair := range strings.Fields(points[1]) {
			x, y, _ := strings.Cut(pair, ",")
			px, err := strconv.ParseFloat(x, 64)
			require.NoError(t, err)
			py, err := strconv.ParseFloat(y, 64)
			require.NoError(t, err)
			require.True(t, px >= 0 && px <= 960 && py >= 0 && py <= height, pair)
		}
	}
}

func TestNothingToDrawIsADrawingToo(t *testing.T) {
	for _, c := range []chart.Chart{
		{},
		{Panels: []chart.Panel{{Log: true}, {}}},
		{Panels: []chart.Panel{{Log: true, Lines: []chart.Line{{Points: []chart.Point{{X: 0, Y: 0}}}}}}},
		{Panels: []chart.Panel{{Lines: []chart.Line{{Points: []chart.Point{{X: 5, Y: 7}}}}}}},
	} {
		svg := c.SVG()
		parse(t, svg)
		require.NotContains(t, svg, "NaN")
		require.NotContains(t, svg, "Inf")
	}
}
