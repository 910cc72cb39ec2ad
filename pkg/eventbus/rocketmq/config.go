package rocketmq

import (
	"errors"
	"fmt"
	"net"
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

	CallTimeout    time.Duration `env:"SEAHUB_ROCKETMQ_CALL_TIMEOUT" envDefault:"3s" key:"seahub.rocketmq.call-timeout" help:"Longest wait for an answer to a question about topics, groups and members." min:"100ms" max:"30s"`
	WatchEvery     time.Duration `env:"SEAHUB_ROCKETMQ_WATCH_EVERY" envDefault:"2s" key:"seahub.rocketmq.watch-every" help:"How often a subscription asks the broker whether it is served." min:"100ms" max:"1m"`
	StuckAfter     time.Duration `env:"SEAHUB_ROCKETMQ_STUCK_AFTER" envDefault:"1m" key:"seahub.rocketmq.stuck-after" help:"How long a queue may hold messages that nobody works on before the consumer is made anew." min:"5s" max:"1h"`
	ConsumeTimeout time.Duration `env:"SEAHUB_ROCKETMQ_CONSUME_TIMEOUT" envDefault:"15m" key:"seahub.rocketmq.consume-timeout" help:"Time after which the client sends a copy of an unfinished event to be tried elsewhere; never less than twice the handler timeout." min:"1m" max:"2h"`
	Queues         int           `env:"SEAHUB_ROCKETMQ_QUEUES" envDefault:"8" key:"seahub.rocketmq.queues" help:"Queues of a topic that is made by relay topics; more members of a group than this have nothing to do." min:"1" max:"256"`
}

// Validate checks what single values cannot show. It accepts an empty Config, which
// is what a deployment on another broker has.
func (c Config) Validate() error {
	var errs []error
	if len(c.nameServers()) == 0 {
		errs = append(errs, errors.New("SEAHUB_ROCKETMQ_NAME_SERVERS (seahub.rocketmq.name-servers) names no server: give host:port"))
	}
	if (c.AccessKey == "") != (c.SecretKey == "") {
		errs = append(errs, errors.New("SEAHUB_ROCKETMQ_ACCESS_KEY (seahub.rocketmq.access-key) and SEAHUB_ROCKETMQ_SECRET_KEY (seahub.rocketmq.secret-key) go together: set both or none"))
	}
	for _, s := range c.nameServers() {
		host, port, err := net.SplitHostPort(strings.TrimPrefix(s, "http://"))
		if err != nil || host == "" || port == "" {
			errs = append(errs, fmt.Errorf("SEAHUB_ROCKETMQ_NAME_SERVERS (seahub.rocketmq.name-servers) holds %q: write host:port", s))
		}
	}
	if strings.ContainsAny(c.Namespace, "% ") {
		errs = append(errs, fmt.Errorf("SEAHUB_ROCKETMQ_NAMESPACE (seahub.rocketmq.namespace) is %q: write the instance id alone, without %% and blanks", c.Namespace))
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
	duration := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	number := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	if c.ProducerGroup == "" {
		c.ProducerGroup = "GID_seahub_relay"
	}
	duration(&c.SendTimeout, 3*time.Second)
	number(&c.SendWorkers, 64)
	duration(&c.CallTimeout, 3*time.Second)
	duration(&c.WatchEvery, 2*time.Second)
	duration(&c.StuckAfter, time.Minute)
	duration(&c.ConsumeTimeout, 15*time.Minute)
	number(&c.Queues, 8)
	return c
}
