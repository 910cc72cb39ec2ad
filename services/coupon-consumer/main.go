// Command coupon-consumer sets coupons EXPIRED whose time has come: by events where the
// flag gives them to events, by its scan otherwise.
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
		Name:    "coupon-consumer",
		Summary: "Expires coupons, by events and by the old scan",
		Config:  &cfg,
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&role, "role", "", "consume, poll or all; overrides SEAHUB_TASK_ROLE")
		},
		Run: wire(&cfg, &role),
	}))
}
