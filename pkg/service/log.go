package service

import (
	"io"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

// newLogger makes the process's logger. env, country, service and version stand on
// every line; ids of the event in hand are added by event.WithLogFields.
func newLogger(b Base, name string, w io.Writer) zerolog.Logger {
	if b.LogFormat == "console" {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly + ".000"}
	}
	level, err := zerolog.ParseLevel(b.LogLevel)
	if err != nil {
		level = zerolog.InfoLevel // the configuration's check lets no other word through
	}
	return zerolog.New(w).Level(level).With().
		Timestamp().Str("service", name).Str("version", BuildInfo().Version).
		Str("env", b.Env).Str("country", b.Country).Logger()
}

// withCommandContext gives a command's context the logger.
func withCommandContext(cmd *cobra.Command, log zerolog.Logger) *cobra.Command {
	cmd.SetContext(log.WithContext(cmd.Context()))
	return cmd
}
