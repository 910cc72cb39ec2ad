// Package sheet shows a benchmark's progress and results.
package sheet

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// Progress prints steps, each with the time since the start.
type Progress struct {
	out   io.Writer
	began time.Time
}

// NewProgress begins now.
func NewProgress(out io.Writer) *Progress { return &Progress{out: out, began: time.Now()} }

// Step prints one line.
func (p *Progress) Step(format string, args ...any) {
	fmt.Fprintf(p.out, "[%4.0fs] %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

// Table is rows of cells under a head; the first column is text, the others numbers.
type Table struct {
	head []string
	rows [][]string
}

// NewTable begins a table.
func NewTable(head ...string) *Table { return &Table{head: head} }

// Row adds one.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// Print writes the table with aligned columns.
func (t *Table) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(t.head, "\t"))
	for _, r := range t.rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

// Count renders a number of things with separators: 41,600.
func Count(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	s := fmt.Sprintf("%.0f", math.Abs(v))
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	if v <= -0.5 {
		s = "-" + s
	}
	return s
}

// Ratio renders a quotient: 0.93.
func Ratio(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	return fmt.Sprintf("%.2f", v)
}

// WriteJSON writes v to path, whose folder it makes. A reader never sees half a file.
func WriteJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return WriteFile(path, append(text, '\n'))
}

// WriteFile writes text to path, whose folder it makes. A reader never sees half a file.
func WriteFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	part := path + ".part"
	if err := os.WriteFile(part, text, 0o644); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
