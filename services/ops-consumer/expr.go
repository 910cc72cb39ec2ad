package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// errExpr: a rule's expression cannot be read.
var errExpr = errors.New("expression is not usable")

// expr is what a rule says about figures: terms joined by "and", each of them
// "<figure> <op> <number or $threshold>" with the ops > < >= !=, or "<figure> is unknown".
// The first term's figure names the subjects; the others are looked up with the same
// subject, or without one.
type expr struct{ terms []term }

type term struct {
	figure, op string
	value      float64
	threshold  string // the name where value is one
}

const opUnknown = "is unknown"

// parseExpr reads an expression; every $threshold must be known.
func parseExpr(text string, thresholds map[string]float64) (expr, error) {
	var e expr
	for part := range strings.SplitSeq(text, " and ") {
		words := strings.Fields(part)
		if len(words) != 3 {
			return e, fmt.Errorf("%w: %q is not of the form figure op value", errExpr, part)
		}
		t := term{figure: words[0], op: words[1]}
		switch {
		case words[1] == "is" && words[2] == "unknown":
			t.op = opUnknown
		case words[1] != ">" && words[1] != "<" && words[1] != ">=" && words[1] != "!=":
			return e, fmt.Errorf("%w: %q has no such operator", errExpr, part)
		case strings.HasPrefix(words[2], "$"):
			t.threshold = words[2][1:]
			v, ok := thresholds[t.threshold]
			if !ok {
				return e, fmt.Errorf("%w: no threshold %q", errExpr, t.threshold)
			}
			t.value = v
		default:
			v, err := strconv.ParseFloat(words[2], 64)
			if err != nil {
				return e, fmt.Errorf("%w: %q is no number", errExpr, words[2])
			}
			t.value = v
		}
		e.terms = append(e.terms, t)
	}
	return e, nil
}

// truth is what an expression comes to. Unknown changes nothing about an alert.
type truth int

const (
	no truth = iota
	yes
	dontKnow
)

// holds compares one figure; without one, ok is false.
func (t term) holds(f figure, ok bool) truth {
	known := ok && f.Value != nil
	switch {
	case t.op == opUnknown && ok && f.Value == nil:
		return yes
	case t.op == opUnknown, !ok:
		return no
	case !known:
		return dontKnow
	}
	v, is := *f.Value, false
	switch t.op {
	case ">":
		is = v > t.value
	case "<":
		is = v < t.value
	case ">=":
		is = v >= t.value
	case "!=":
		is = v != t.value
	}
	if is {
		return yes
	}
	return no
}

// sheet is a sweep's figures, to be looked up.
type sheet struct {
	byKey map[[2]string]figure
	order map[string][]figure // by name
}

func newSheet(figures []figure) sheet {
	s := sheet{byKey: map[[2]string]figure{}, order: map[string][]figure{}}
	for _, f := range figures {
		s.byKey[[2]string{f.Name, f.Subject}] = f
		s.order[f.Name] = append(s.order[f.Name], f)
	}
	return s
}

func (s sheet) look(name, subject string) (figure, bool) {
	if f, ok := s.byKey[[2]string{name, subject}]; ok {
		return f, true
	}
	f, ok := s.byKey[[2]string{name, ""}]
	return f, ok
}

// verdict is an expression about one subject.
type verdict struct {
	truth   truth
	figure  figure // the first term's
	subject string
}

// judge evaluates the expression for every subject of its first figure.
func (e expr) judge(s sheet) []verdict {
	var out []verdict
	for _, f := range s.order[e.terms[0].figure] {
		v := verdict{truth: e.terms[0].holds(f, true), figure: f, subject: f.Subject}
		for _, t := range e.terms[1:] {
			other, ok := s.look(t.figure, f.Subject)
			v.truth = both(v.truth, t.holds(other, ok))
		}
		out = append(out, v)
	}
	return out
}

func both(a, b truth) truth {
	switch {
	case a == no || b == no:
		return no
	case a == yes && b == yes:
		return yes
	}
	return dontKnow
}
