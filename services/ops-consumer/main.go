// Command ops-consumer counts, watches and alerts: the business figures of the app, the
// pipe of events from outbox to consumers, and the alerts about both.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/service"
)

func main() {
	var cfg Config
	var role string
	t := &tools{cfg: &cfg}
	os.Exit(service.Main(service.Spec{
		Name:    "ops-consumer",
		Summary: "Keeps the operational figures, watches the pipe of events and sends alerts",
		Config:  &cfg,
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&role, "role", "", "consume, poll or all; overrides SEAHUB_TASK_ROLE")
		},
		Run:      wire(&cfg, &role),
		Commands: []*cobra.Command{figuresCommand(t), alertsCommand(t)},
	}))
}
