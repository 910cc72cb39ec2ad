package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// Exit codes of every service.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Spec describes a service to Main.
type Spec struct {
	Name    string
	Summary string
	// Config is a pointer to the service's configuration struct. It has a field
	// `Base service.Base`; its other fields are the rooms' own structs.
	Config any
	// Run wires the rooms and returns; the loops go on in Process.Go.
	Run func(ctx context.Context, p *Process) error
	// Commands are the service's further subcommands. Their context carries the
	// logger, and Config is filled when they run.
	Commands []*cobra.Command
	// Flags, when not nil, adds flags to the run command.
	Flags func(cmd *cobra.Command)
}

// ErrUsage marks an error of how a command was called: Main answers with ExitUsage.
var ErrUsage = errors.New("wrong usage")

// Main runs the service's command line and returns the exit code. It is the only
// thing that a service's main function calls.
func Main(spec Spec) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return run(ctx, spec, os.Args[1:], environ(), os.Stdout, os.Stderr)
}

// run is Main with everything handed in.
func run(ctx context.Context, spec Spec, args, environ []string, stdout, stderr io.Writer) int {
	root := newRoot(spec, environ, stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrConfig), errors.Is(err, ErrUsage):
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", spec.Name, err)
		return ExitUsage
	default:
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", spec.Name, err)
		return ExitFailed
	}
}

func newRoot(spec Spec, environ []string, stderr io.Writer) *cobra.Command {
	runService := &cobra.Command{
		Use:   "run",
		Short: "Run the service (what it does when called without a command)",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runProcess(cmd.Context(), spec, environ, stderr) },
	}
	root := &cobra.Command{
		Use:           spec.Name,
		Short:         spec.Summary,
		Args:          noArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          runService.RunE,
	}
	if spec.Flags != nil {
		spec.Flags(runService)
		spec.Flags(root)
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w; see `%s --help`", ErrUsage, err, cmd.CommandPath())
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(runService, configCommand(spec, environ), metricsCommand(spec, environ, stderr), versionCommand(spec))
	for _, c := range spec.Commands {
		prepare(c, spec, environ, stderr)
		root.AddCommand(c)
	}
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: unknown command %q for %s; see `%s --help`", ErrUsage, args[0], cmd.CommandPath(), cmd.CommandPath())
	}
	return nil
}

// prepare makes a command load the configuration and set up its log before it runs.
func prepare(c *cobra.Command, spec Spec, environ []string, stderr io.Writer) {
	for _, sub := range c.Commands() {
		prepare(sub, spec, environ, stderr)
	}
	inner := c.RunE
	if inner == nil {
		return
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		base, err := loadBase(spec, environ)
		if err != nil {
			return err
		}
		log := newLogger(base, spec.Name, stderr)
		return inner(withCommandContext(cmd, log), args)
	}
}

// loadBase fills the configuration and returns its common part.
func loadBase(spec Spec, environ []string) (Base, error) {
	if _, err := load(spec.Config, environ); err != nil {
		return Base{}, err
	}
	return baseOf(spec.Config)
}

func baseOf(cfg any) (Base, error) {
	b, ok := reflect.ValueOf(cfg).Elem().FieldByName("Base").Interface().(Base)
	if !ok {
		return Base{}, fmt.Errorf("%w: %T has no field Base of type service.Base", ErrConfig, cfg)
	}
	return b, nil
}

func configCommand(spec Spec, environ []string) *cobra.Command {
	var asJSON bool
	show := &cobra.Command{
		Use:   "config",
		Short: "Print the effective configuration, secrets hidden; exit 2 if it is not usable",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			warnings, err := load(spec.Config, environ)
			if err != nil {
				return err
			}
			for _, name := range warnings {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "warning: nobody reads %s\n", name)
			}
			return printConfig(cmd.OutOrStdout(), spec.Config, asJSON)
		},
	}
	show.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	show.AddCommand(&cobra.Command{
		Use:   "keys",
		Short: "Print every key with its default and its meaning",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printKeys(cmd.OutOrStdout(), spec.Config, asJSON)
		},
	})
	return show
}

func printConfig(w io.Writer, cfg any, asJSON bool) error {
	keys, err := keysOf(cfg)
	if err != nil {
		return err
	}
	values := map[string]string{}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, k := range keys {
		v := k.text(reflect.ValueOf(cfg).Elem().FieldByIndex(k.field))
		values[k.Spring] = v
		_, _ = fmt.Fprintf(t, "%s\t%s\n", k.Env, v)
	}
	if asJSON {
		return writeJSON(w, values)
	}
	return t.Flush()
}

// text is a field's value for people.
func (k Key) text(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "(not set)"
		}
		v = v.Elem()
	}
	s := fmt.Sprint(v.Interface())
	if k.Secret && s != "" {
		return "(hidden)"
	}
	return s
}

func printKeys(w io.Writer, cfg any, asJSON bool) error {
	keys, err := keysOf(cfg)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(w, keys)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "VARIABLE\tKEY\tDEFAULT\tALLOWED\tMEANING")
	for _, k := range keys {
		def := k.Default
		if k.Required {
			def = "(required)"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", k.Env, k.Spring, def, k.Allowed, k.Help)
	}
	return t.Flush()
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
