package service

import (
	_ "embed"
	"strings"
)

// names is the list of all variables that some room of the project reads, one a line.
// `make catalogue` writes it; a test compares it with what the services say.
//
//go:embed catalogue.txt
var names string

func catalogue() map[string]bool {
	known := map[string]bool{}
	for _, line := range strings.Fields(names) {
		known[line] = true
	}
	return known
}
