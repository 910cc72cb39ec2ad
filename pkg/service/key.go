package service

import (
	"fmt"
	"reflect"
	"strings"
)

// Key describes one configuration value of a service.
type Key struct {
	Env      string `json:"env"`            // SEAHUB_DB_TIME_ZONE
	Spring   string `json:"key"`            // seahub.db.time-zone
	Alias    string `json:"alias,omitzero"` // SEAHUB_DB_TIMEZONE: Spring's own spelling, where it differs
	Default  string `json:"default"`
	Help     string `json:"help"`
	Required bool   `json:"required"`
	Secret   bool   `json:"secret"`
	Allowed  string `json:"allowed,omitzero"`
	Kind     string `json:"kind"`

	field []int // path of the struct field
	tag   reflect.StructTag
}

// keysOf reads the keys off the tags of cfg's fields, nested structs included, in
// their order.
func keysOf(cfg any) ([]Key, error) {
	t := reflect.TypeOf(cfg)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("configuration must be a pointer to a struct, not %T", cfg)
	}
	var keys []Key
	if err := collect(t.Elem(), nil, &keys); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, k := range keys {
		for _, name := range []string{k.Env, k.Alias} {
			if name != "" && seen[name] {
				return nil, fmt.Errorf("configuration name %s is declared twice", name)
			}
			seen[name] = true
		}
	}
	return keys, nil
}

func collect(t reflect.Type, path []int, keys *[]Key) error {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(append([]int(nil), path...), i)
		name := f.Tag.Get("env")
		if name == "" {
			if f.Type.Kind() == reflect.Struct && f.IsExported() {
				if err := collect(f.Type, at, keys); err != nil {
					return err
				}
			}
			continue
		}
		k := Key{
			Env: name, Spring: f.Tag.Get("key"), Default: f.Tag.Get("envDefault"), Help: f.Tag.Get("help"),
			Required: f.Tag.Get("required") == "true", Secret: f.Tag.Get("secret") == "true",
			Allowed: allowed(f), Kind: kindName(f.Type), field: at, tag: f.Tag,
		}
		dashed, plain := envNames(k.Spring)
		if dashed != name {
			return fmt.Errorf("field %s: variable %s does not belong to key %q (that would be %s)", f.Name, name, k.Spring, dashed)
		}
		if plain != dashed {
			k.Alias = plain
		}
		*keys = append(*keys, k)
	}
	return nil
}

// envNames gives the two spellings of a Spring key: with dashes kept as underscores,
// and by Spring's rule, which drops them.
func envNames(key string) (dashed, plain string) {
	upper := strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
	return strings.ReplaceAll(upper, "-", "_"), strings.ReplaceAll(upper, "-", "")
}

func allowed(f reflect.StructField) string {
	switch {
	case f.Tag.Get("oneof") != "":
		return "one of " + strings.Join(choices(f.Tag), ", ")
	case f.Tag.Get("min") != "" && f.Tag.Get("max") != "":
		return f.Tag.Get("min") + " to " + f.Tag.Get("max")
	case f.Tag.Get("min") != "":
		return "at least " + f.Tag.Get("min")
	case f.Tag.Get("max") != "":
		return "at most " + f.Tag.Get("max")
	case f.Tag.Get("pattern") != "":
		return "matching " + f.Tag.Get("pattern")
	case kindName(f.Type) == "bool":
		return "true or false"
	}
	return ""
}

// choices are the values of a oneof tag; an empty one is shown as "".
func choices(tag reflect.StructTag) []string {
	list := strings.Split(tag.Get("oneof"), ",")
	for i, v := range list {
		if v == "" {
			list[i] = `""`
		}
	}
	return list
}

func kindName(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.String() == "time.Duration" {
		return "duration"
	}
	switch t.Kind() {
	case reflect.Slice:
		return "comma-separated list"
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint64:
		return "integer"
	default:
		return t.Kind().String()
	}
}
