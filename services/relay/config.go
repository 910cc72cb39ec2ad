package main

import (
	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/outbox"
	"github.com/seahub/seahub-mq/pkg/service"
)

// Config is everything that can be set.
type Config struct {
	Base  service.Base
	DB    db.Config
	MQ    provider.Config
	Relay outbox.Config
}
