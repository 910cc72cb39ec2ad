// Package chart draws time series as SVG, without anything but strings.
package chart

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Point of a line.
type Point struct{ X, Y float64 }

// Line is one series.
type Line struct {
	Name, Color string
	Points      []Point
}

// Panel is one diagram; panels lie one below the other over the same time.
type Panel struct {
	Title string
	// Log makes the y axis logarithmic; what is not above 0 is drawn at its foot.
	Log   bool
	Lines []Line
}

// Band shades a stretch of time in every panel.
type Band struct {
	From, To float64
	Label    string
}

// Chart is a drawing.
type Chart struct {
	Title, Subtitle, XLabel string
	Panels                  []Panel
	Bands                   []Band
}

// Sizes in pixels.
const (
	width       = 960
	left        = 76
	right       = 24
	head        = 78
	panelHeight = 220
	panelGap    = 62
	foot        = 48
)

// axis maps values to pixels.
type axis struct {
	lo, hi   float64
	from, to float64
	log      bool
}

func (a axis) at(v float64) float64 {
	if a.log {
		v = math.Log10(max(v, a.lo))
		lo, hi := math.Log10(a.lo), math.Log10(a.hi)
		return a.from + (v-lo)/(hi-lo)*(a.to-a.from)
	}
	return a.from + (v-a.lo)/(a.hi-a.lo)*(a.to-a.from)
}

// ticks are round values along the axis.
func (a axis) ticks() []float64 {
	var out []float64
	if a.log {
		for v := a.lo; v <= a.hi*1.0001; v *= 10 {
			out = append(out, v)
		}
		return out
	}
	step := niceStep((a.hi - a.lo) / 5)
	for i := math.Ceil(a.lo / step); i*step <= a.hi+step/1e6; i++ {
		out = append(out, i*step)
	}
	return out
}

// niceStep is 1, 2 or 5 times a power of ten, and not below v.
func niceStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= v*0.9999 {
			return f * power
		}
	}
	return 10 * power
}

func (c Chart) extent() (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, p := range c.Panels {
		for _, l := range p.Lines {
			for _, pt := range l.Points {
				lo, hi = min(lo, pt.X), max(hi, pt.X)
			}
		}
	}
	if lo > hi {
		return 0, 1
	}
	lo = min(lo, 0)
	if hi <= lo {
		hi = lo + 1
	}
	return lo, hi
}

// yAxis spans the panel's values from 0, or in powers of ten.
func (p Panel) yAxis(top float64) axis {
	lo, hi := math.Inf(1), 0.0
	for _, l := range p.Lines {
		for _, pt := range l.Points {
			hi = max(hi, pt.Y)
			if pt.Y > 0 {
				lo = min(lo, pt.Y)
			}
		}
	}
	a := axis{from: top + panelHeight, to: top, log: p.Log}
	if p.Log {
		lo = max(min(lo, hi), hi/1e8) // no more than eight decades
		if hi <= 0 {
			lo, hi = 1, 10
		}
		a.lo, a.hi = math.Pow(10, math.Floor(math.Log10(lo))), math.Pow(10, math.Ceil(math.Log10(hi)))
		if a.hi <= a.lo {
			a.hi = 10 * a.lo
		}
		return a
	}
	if hi <= 0 {
		hi = 1
	}
	step := niceStep(hi / 5)
	a.hi = math.Ceil(hi/step) * step
	return a
}

// SVG renders the chart.
func (c Chart) SVG() string {
	height := head + len(c.Panels)*panelHeight + max(0, len(c.Panels)-1)*panelGap + foot
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#333">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	text(&b, left, 26, `font-size="17" font-weight="bold"`, c.Title)
	text(&b, left, 45, `fill="#666"`, c.Subtitle)
	lo, hi := c.extent()
	x := axis{lo: lo, hi: hi, from: left, to: width - right}
	for i, p := range c.Panels {
		top := float64(head + i*(panelHeight+panelGap))
		c.panel(&b, p, x, top)
	}
	text(&b, (left+width-right)/2, float64(height-10), `text-anchor="middle" fill="#666"`, c.XLabel)
	b.WriteString("</svg>\n")
	return b.String()
}

func (c Chart) panel(b *strings.Builder, p Panel, x axis, top float64) {
	y := p.yAxis(top)
	for _, band := range c.Bands {
		from, to := x.at(band.From), x.at(band.To)
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="#f3e3c3"/>`+"\n", from, top, max(0, to-from), panelHeight)
		text(b, (from+to)/2, top+panelHeight/2, `text-anchor="middle" fill="#8a6d2f" font-size="11"`, band.Label)
	}
	for _, v := range y.ticks() {
		at := y.at(v)
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`+"\n", left, at, width-right, at)
		text(b, left-8, at+4, `text-anchor="end"`, number(v))
	}
	for _, v := range x.ticks() {
		at := x.at(v)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#999"/>`+"\n", at, top+panelHeight, at, top+panelHeight+4)
		text(b, at, top+panelHeight+17, `text-anchor="middle"`, number(v))
	}
	fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#999"/>`+"\n", left, top+panelHeight, width-right, top+panelHeight)
	text(b, left, top-10, `font-weight="bold"`, p.Title)
	for i, l := range p.Lines {
		drawLine(b, l, x, y)
		at := float64(width - right - 70*(len(p.Lines)-i))
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="3"/>`+"\n", at, top-14, at+16, top-14, html.EscapeString(l.Color))
		text(b, at+21, top-10, "", l.Name)
	}
}

func drawLine(b *strings.Builder, l Line, x, y axis) {
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.6" stroke-linejoin="round" points="`, html.EscapeString(l.Color))
	for i, p := range l.Points {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(b, "%.1f,%.1f", x.at(p.X), y.at(p.Y))
	}
	b.WriteString("\"/>\n")
}

func text(b *strings.Builder, x, y float64, attributes, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" %s>%s</text>`+"\n", x, y, attributes, html.EscapeString(s))
}

// number renders a tick's value.
func number(v float64) string {
	s := strconv.FormatFloat(v, 'g', 6, 64)
	if v >= 1000 {
		s = strconv.FormatFloat(v, 'f', 0, 64)
		for at := len(s) - 3; at > 0; at -= 3 {
			s = s[:at] + "," + s[at:]
		}
	}
	return s
}
