// Package catalogue collects the configuration keys of all services from the
// services themselves (`<service> config keys --json`) and renders what is kept in the
// checkout: the list by which a service recognises a misspelt variable, and the table in docs.
package catalogue

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// Paths below the checkout's root of the two files.
var (
	NamesFile = filepath.Join("pkg", "service", "catalogue.txt")
	TableFile = filepath.Join("docs", "configuration.md")
)

// key is what `config keys --json` prints of each key.
type key struct {
	Env      string `json:"env"`
	Spring   string `json:"key"`
	Alias    string `json:"alias"`
	Default  string `json:"default"`
	Help     string `json:"help"`
	Required bool   `json:"required"`
	Secret   bool   `json:"secret"`
	Allowed  string `json:"allowed"`
	Kind     string `json:"kind"`

	services []string
}

// Files renders both files from the services' binaries (by name).
func Files(ctx context.Context, binaries map[string]string) (map[string][]byte, error) {
	keys := map[string]*key{}
	for _, service := range sorted(binaries) {
		out, err := exec.CommandContext(ctx, binaries[service], "config", "keys", "--json").Output()
		if err != nil {
			return nil, fmt.Errorf("%s config keys --json: %w", service, err)
		}
		var list []key
		if err := json.Unmarshal(out, &list); err != nil {
			return nil, fmt.Errorf("keys of %s: %w", service, err)
		}
		for _, k := range list {
			if keys[k.Env] == nil {
				keys[k.Env] = &k
			}
			keys[k.Env].services = append(keys[k.Env].services, service)
		}
	}
	return map[string][]byte{NamesFile: renderNames(keys), TableFile: renderTable(keys)}, nil
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func renderNames(keys map[string]*key) []byte {
	var b bytes.Buffer
	for _, name := range sorted(keys) {
		b.WriteString(name + "\n")
		if alias := keys[name].Alias; alias != "" {
			b.WriteString(alias + "\n")
		}
	}
	return b.Bytes()
}

const tableHead = `# Configuration

Written by ` + "`make catalogue`" + ` from the services themselves. Configuration comes from the environment only.
Each key has two names: the variable below, and Spring's spelling of the key (dots to underscores, dashes
dropped); both set to different values is an error. ` + "`<service> config`" + ` prints what is in effect.

| variable | key | default | allowed | meaning | read by |
|---|---|---|---|---|---|
`

func renderTable(keys map[string]*key) []byte {
	var b bytes.Buffer
	b.WriteString(tableHead)
	for _, name := range sorted(keys) {
		k := keys[name]
		def := "`" + k.Default + "`"
		switch {
		case k.Required:
			def = "required"
		case k.Default == "":
			def = "–"
		}
		meaning := k.Help
		if k.Secret {
			meaning += " (secret)"
		}
		cells := []string{"`" + k.Env + "`", "`" + k.Spring + "`", def, k.Allowed, meaning, strings.Join(k.services, ", ")}
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(c, "|", `\|`)
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	return b.Bytes()
}
