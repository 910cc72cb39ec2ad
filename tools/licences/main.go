// Command licences lists the licence of every module that the given modules are built
// from, and fails for one that is unknown or not accepted.
//
//	licences [-shipped] FOLDER…
//
// With -shipped only what goes into binaries counts, else what tests need as well. The
// licence is read off the texts in the module itself, by the library that pkg.go.dev uses.
// (go-licenses is not used: its released version is from 2021 and its later ones are not
// modules that can be pinned.)
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/google/licensecheck"
)

// accepted are licences that ask for no more than their text beside a binary, and MPL-2.0,
// which asks for the sources of its own files: they are public, and unchanged here.
var accepted = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MPL-2.0", "Unlicense"}

// enough is the share of a text, in percent, that must be a licence's own.
const enough = 75

type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

type finding struct {
	module   string
	licences []string
}

func main() {
	shipped := flag.Bool("shipped", false, "without what only tests need")
	flag.Parse()
	if err := run(os.Stdout, *shipped, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, shipped bool, folders []string) error {
	if len(folders) == 0 {
		return errors.New("name the folders of modules")
	}
	modules := map[string]module{}
	for _, folder := range folders {
		if err := collect(modules, shipped, folder); err != nil {
			return err
		}
	}
	var list []finding
	for name, m := range modules {
		found, err := licencesOf(m.Dir)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		list = append(list, finding{name, found})
	}
	slices.SortFunc(list, func(a, b finding) int { return cmp.Compare(a.module, b.module) })
	return report(out, list)
}

// collect adds the modules of others that a folder's packages are built from.
func collect(into map[string]module, shipped bool, folder string) error {
	args := []string{"list", "-deps", "-json=Module"}
	if !shipped {
		args = append(args, "-test")
	}
	cmd := exec.Command("go", append(args, "./...")...)
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	cmd.Env = append(os.Environ(), "GOWORK=off")
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s in %s: %w", strings.Join(args, " "), folder, err)
	}
	for d := json.NewDecoder(strings.NewReader(string(text))); ; {
		var p struct{ Module *module }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("packages of %s: %w", folder, err)
		}
		// A module that is replaced by a folder is ours.
		if m := p.Module; m != nil && !m.Main && (m.Replace == nil || m.Replace.Version != "") {
			into[m.Path+" "+m.Version] = *m
		}
	}
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)

// licencesOf reads the licence files at a module's root.
func licencesOf(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		cover := licensecheck.Scan(text)
		if cover.Percent < enough {
			out = append(out, fmt.Sprintf("unknown (%s)", e.Name()))
			continue
		}
		for _, m := range cover.Match {
			if !slices.Contains(out, m.ID) {
				out = append(out, m.ID)
			}
		}
	}
	if len(out) == 0 {
		out = []string{"none found"}
	}
	slices.Sort(out)
	return out, nil
}

func report(out io.Writer, list []finding) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var errs []error
	for _, f := range list {
		_, _ = fmt.Fprintf(t, "%s\t%s\n", strings.Replace(f.module, " ", "\t", 1), strings.Join(f.licences, ", "))
		for _, l := range f.licences {
			if !slices.Contains(accepted, l) {
				errs = append(errs, fmt.Errorf("%s: licence %s is not among the accepted ones", f.module, l))
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return errors.Join(errs...)
}
