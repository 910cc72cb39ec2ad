// Command campaign-consumer keeps the products of TikTok partner campaigns up to date:
// by events where the flag gives a campaign to events, by the old serial sync otherwise.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/seahub/seahub-mq/pkg/service"
)

func main() {
	var cfg Config
	var role string
	os.Exit(service.Main(service.Spec{
		Name:    "campaign-consumer",
		Summary: "Syncs the products of TikTok partner campaigns, by events and by the old serial poll",
		Config:  &cfg,
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&role, "role", "", "consume, poll or all; overrides SEAHUB_TASK_ROLE")
		},
		Run:      wire(&cfg, &role),
		Commands: []*cobra.Command{authoriseCommand(&cfg)},
	}))
}
