// Command push-consumer sends push messages: by events where the flag gives them to
// events, by its poll otherwise.
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
		Name:    "push-consumer",
		Summary: "Sends push messages through FCM, by events and by the old poll",
		Config:  &cfg,
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&role, "role", "", "consume, poll or all; overrides SEAHUB_TASK_ROLE")
		},
		Run: wire(&cfg, &role),
	}))
}
