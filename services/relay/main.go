// Command relay publishes the outbox, and holds the operator's commands on it.
package main

import (
	"os"

	"github.com/seahub/seahub-mq/pkg/service"
)

func main() {
	var cfg Config
	t := &tools{cfg: &cfg}
	os.Exit(service.Main(service.Spec{
		Name:    "relay",
		Summary: "Publishes committed events from outbox_event to the event bus",
		Config:  &cfg,
		Run:     wire(&cfg),
		Commands: withExitCodes(
			statusCommand(t), eventCommand(t), failedCommand(t), requeueCommand(t), discardCommand(t), purgeCommand(t),
			migrateCommand(t), deadCommand(t), busCommand(t), topicsCommand(t),
			flagsCommand(t.pool, func() string { return cfg.Base.Country }),
		),
	}))
}
