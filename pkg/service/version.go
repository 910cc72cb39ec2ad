package service

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version and commit are set by -ldflags "-X ...service.version=…"; builds without
// them are recognisable as such.
var (
	version = "dev"
	commit  = ""
)

// Build tells which binary this is.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitzero"`
	Go      string `json:"go"`
}

// BuildInfo describes the running binary.
func BuildInfo() Build {
	b := Build{Version: version, Commit: commit}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Go = info.GoVersion
	}
	return b
}

func versionCommand(spec Spec) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version and build",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := BuildInfo()
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s %s\n", spec.Name, b.Version, b.Commit, b.Go)
			return err
		},
	}
}
