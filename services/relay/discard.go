package main

import (
	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/outbox"
)

func discardCommand(t *tools) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "discard",
		Short: "Give FAILED events up: move them to mq_outbox_archive, with who and why",
		Long: `Give FAILED events up: move them to mq_outbox_archive, with who and why.

Only FAILED events can be discarded. Their event ids become free: an event that is
written under one of them later is a new one.`,
		Args: noArgs,
	}
	f := filterFlags{filter: outbox.Filter{Status: outbox.StatusFailed}}
	f.bind(cmd)
	f.bindAll(cmd)
	return changeCommand(t, cmd, &f, "discarded", (*outbox.Store).Discard)
}
