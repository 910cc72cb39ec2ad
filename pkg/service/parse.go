package service

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

func environMap(environ []string) map[string]string {
	m := make(map[string]string, len(environ))
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok {
			m[name] = value
		}
	}
	return m
}

// canonical gives every key its value under its first name, whichever of the two
// names it came by. Surrounding spaces are an error of hand-written files and are
// reported, not guessed away.
func canonical(keys []Key, given map[string]string) (map[string]string, []error) {
	values := map[string]string{}
	var problems []error
	for _, k := range keys {
		v, ok := given[k.Env]
		if k.Alias != "" {
			other, also := given[k.Alias]
			switch {
			case ok && also && v != other:
				problems = append(problems, k.problem(errors.New("is also given as "+k.Alias+" with another value: keep one of the two")))
			case also && !ok:
				v, ok = other, true
			}
		}
		if ok && v != strings.TrimSpace(v) {
			problems = append(problems, k.problem(fmt.Errorf("begins or ends with a space: %s", k.show(v))))
			continue
		}
		if ok && (v != "" || k.Default == "") {
			values[k.Env] = v
		}
	}
	return values, problems
}

// problem names the key in both spellings.
func (k Key) problem(err error) error {
	text := fmt.Sprintf("  %s (%s): %s", k.Env, k.Spring, err)
	if k.Allowed != "" {
		text += "; allowed: " + k.Allowed
	}
	return errors.New(text)
}

// show is a value as an error or a listing may show it.
func (k Key) show(v string) string {
	if k.Secret && v != "" {
		return "(hidden)"
	}
	return strconv.Quote(v)
}

// parse fills cfg and checks every single value. bad names the keys with a problem.
func parse(cfg any, keys []Key, values map[string]string) (bad []string, problems []error) {
	add := func(k Key, err error) {
		bad, problems = append(bad, k.Env), append(problems, k.problem(err))
	}
	for _, k := range keys {
		if k.Required && values[k.Env] == "" {
			add(k, errors.New("is required and not set"))
		}
	}
	for _, k := range keys {
		// One key at a time: the library's own report names fields, not variables.
		if err := parseOne(cfg, k, values); err != nil {
			add(k, err)
			continue
		}
		if err := k.check(reflect.ValueOf(cfg).Elem().FieldByIndex(k.field), values[k.Env]); err != nil {
			add(k, err)
		}
	}
	return bad, problems
}

// parseOne parses one field by way of a struct that has only this field.
func parseOne(cfg any, k Key, values map[string]string) error {
	target := reflect.ValueOf(cfg).Elem().FieldByIndex(k.field)
	one := reflect.New(reflect.StructOf([]reflect.StructField{{
		Name: "Value", Type: target.Type(), Tag: reflect.StructTag(fmt.Sprintf("env:%q envDefault:%q", k.Env, k.Default)),
	}}))
	if _, hasDefault := k.tag.Lookup("envDefault"); !hasDefault && values[k.Env] == "" {
		return nil // stays at its zero value; nil for an optional one
	}
	if err := env.ParseWithOptions(one.Interface(), env.Options{Environment: values}); err != nil {
		return fmt.Errorf("%s is not %s %s", k.show(values[k.Env]), article(k.Kind), k.Kind)
	}
	target.Set(one.Elem().Field(0))
	return nil
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an"
	}
	return "a"
}

// check applies the tags oneof, pattern, min and max.
func (k Key) check(v reflect.Value, given string) error {
	text := given
	if text == "" {
		text = k.Default
	}
	if k.tag.Get("oneof") != "" && !slices.Contains(strings.Split(k.tag.Get("oneof"), ","), text) {
		return fmt.Errorf("%s is not allowed", k.show(text))
	}
	if p := k.tag.Get("pattern"); p != "" && text != "" && !regexp.MustCompile(p).MatchString(text) {
		return fmt.Errorf("%s is not allowed", k.show(text))
	}
	for _, bound := range []struct {
		name string
		bad  func(cmp int) bool
	}{{"min", func(c int) bool { return c < 0 }}, {"max", func(c int) bool { return c > 0 }}} {
		limit := k.tag.Get(bound.name)
		if limit == "" {
			continue
		}
		cmp, err := compare(v, limit)
		if err != nil {
			return fmt.Errorf("tag %s: %w", bound.name, err)
		}
		if bound.bad(cmp) {
			return fmt.Errorf("%s is out of range", k.show(text))
		}
	}
	return nil
}

// compare orders a duration, an integer or a fraction against a bound of its own kind.
func compare(v reflect.Value, limit string) (int, error) {
	if d, ok := v.Interface().(time.Duration); ok {
		l, err := time.ParseDuration(limit)
		return int(max(-1, min(1, d-l))), err
	}
	if v.CanFloat() {
		l, err := strconv.ParseFloat(limit, 64)
		return compareNumbers(v.Float(), l), err
	}
	l, err := strconv.ParseInt(limit, 10, 64)
	return int(max(-1, min(1, v.Int()-l))), err
}

func compareNumbers(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// crossChecks calls Validate of cfg and of each room's struct in it; a room answers for
// the parts of its own. What they say of the keys in bad is left out: those have been
// reported, and their fields hold nothing that could be checked.
func crossChecks(cfg any, bad []string) []error {
	var problems []error
	validate := func(s reflect.Value) {
		c, ok := s.Interface().(interface{ Validate() error })
		if !ok {
			return
		}
		err := c.Validate()
		if err == nil {
			return
		}
		for _, line := range strings.Split(err.Error(), "\n") {
			if !slices.ContainsFunc(bad, func(name string) bool { return isAbout(line, name) }) {
				problems = append(problems, errors.New("  "+line))
			}
		}
	}
	v := reflect.ValueOf(cfg).Elem()
	validate(v)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Type.Kind() == reflect.Struct && f.IsExported() && f.Tag.Get("env") == "" {
			validate(v.Field(i))
		}
	}
	return problems
}

// isAbout reports whether the text is about the variable.
func isAbout(text, variable string) bool {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(variable) + `\b`).MatchString(text)
}

// unknownNames lists SEAHUB_* variables that this service does not read and that the
// project's catalogue does not have either: most likely a slip of the pen.
func unknownNames(keys []Key, given map[string]string) []string {
	known := catalogue()
	for _, k := range keys {
		known[k.Env], known[k.Alias] = true, true
	}
	var names []string
	for name := range given {
		if strings.HasPrefix(name, "SEAHUB_") && !strings.HasPrefix(name, "SEAHUB_TEST_") && !known[name] {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}
