package rocketmq

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Config says where RocketMQ is and how it is used.
type Config struct {
	NameServers []string `env:"SEAHUB_ROCKETMQ_NAME_SERVERS" key:"seahub.rocketmq.name-servers" help:"host:port of the name servers, separated by commas; on Alibaba Cloud the instance's TCP endpoint."`
	Namespace   string   `env:"SEAHUB_ROCKETMQ_NAMESPACE" key:"seahub.rocketmq.namespace" help:"Instance id (MQ_INST_…) of an instance with a namespace, empty without one."`
	AccessKey   string   `env:"SEAHUB_ROCKETMQ_ACCESS_KEY" key:"seahub.rocketmq.access-key" help:"AccessKey id or instance user." secret:"true"`
	SecretKey   string   `env:"SEAHUB_ROCKETMQ_SECRET_KEY" key:"seahub.rocketmq.secret-key" help:"AccessKey secret or instance password." secret:"true"`

	ProducerGroup string        `env:"SEAHUB_ROCKETMQ_PRODUCER_GROUP" envDefault:"GID_seahub_relay" key:"seahub.rocketmq.producer-group" help:"Producer group, for people only."`
	SendTimeout   time.Duration `env:"SEAHUB_ROCKETMQ_SEND_TIMEOUT" envDefault:"3s" key:"seahub.rocketmq.send-timeout" help:"Longest wait for the broker's answer to one message." min:"100ms" max:"30s"`
	SendWorkers   int           `env:"SEAHUB_ROCKETMQ_SEND_WORKERS" envDefault:"64" key:"seahub.rocketmq.send-workers" help:"Messages that are sent at a time." min:"1" max:"1024"`
}

// Validate checks what single values cannot show. It accepts an empty Config, which
// is what a deployment on another broker has.
func (c Config) Validate() error {
	var errs []error
	if (c.AccessKey == "") != (c.SecretKey == "") {
		errs = append(errs, errors.New("SEAHUB_ROCKETMQ_ACCESS_KEY (seahub.rocketmq.access-key) and SEAHUB_ROCKETMQ_SECRET_KEY (seahub.rocketmq.secret-key) go together: set both or none"))
	}
	for _, s := range c.nameServers() {
		if !strings.Contains(strings.TrimPrefix(s, "http://"), ":") {
			errs = append(errs, fmt.Errorf("SEAHUB_ROCKETMQ_NAME_SERVERS (seahub.rocketmq.name-servers) holds %q: write host:port", s))
		}
	}
	return errors.Join(errs...)
}

// nameServers are in the form that the client takes for a name as well as for an IP
// address: without the scheme it refuses names.
func (c Config) nameServers() []string {
	var out []string
	for _, s := range c.NameServers {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		if !strings.HasPrefix(s, "http://") {
			s = "http://" + s
		}
		out = append(out, s)
	}
	return out
}

func (c Config) withDefaults() Config {
	if c.ProducerGroup == "" {
		c.ProducerGroup = "GID_seahub_relay"
	}
	if c.SendTimeout <= 0 {
		c.SendTimeout = 3 * time.Second
	}
	if c.SendWorkers <= 0 {
		c.SendWorkers = 64
	}
	return c
}
