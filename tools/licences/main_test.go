package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const isc = `Copyright (c) 2020 Somebody

Permission to use, copy, modify, and/or distribute this software for any
purpose with or without fee is hereby granted, provided that the above
copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES
WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF
MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR
ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES
WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN
ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF
OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.
`

func TestLicencesOf(t *testing.T) {
	for name, c := range map[string]struct {
		file, text, want string
		ok               bool
	}{
		"known":        {"LICENSE", isc, "ISC", true},
		"other name":   {"license.md", isc, "ISC", true},
		"none":         {"README", isc, "none found", false},
		"of their own": {"LICENCE", "You may use this on Sundays.", "unknown (LICENCE)", false},
		"a suffix":     {"LICENSE-isc", isc, "ISC", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := licencesOf(dir)
			if err != nil || strings.Join(got, ",") != c.want {
				t.Fatalf("got %v, %v", got, err)
			}
			var out strings.Builder
			if err := report(&out, []finding{{"example.com/m v1.0.0", got}}); (err == nil) != c.ok {
				t.Fatalf("report: %v", err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	err := report(&strings.Builder{}, []finding{{"example.com/m v1.0.0", []string{"MIT", "AGPL-3.0"}}})
	if err == nil || !strings.Contains(err.Error(), "AGPL-3.0") {
		t.Fatalf("got %v", err)
	}
}
