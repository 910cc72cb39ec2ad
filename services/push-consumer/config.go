package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/seahub/seahub-mq/pkg/db"
	"github.com/seahub/seahub-mq/pkg/eventbus/provider"
	"github.com/seahub/seahub-mq/pkg/flags"
	"github.com/seahub/seahub-mq/pkg/service"
	"github.com/seahub/seahub-mq/pkg/task"
)

// Config is everything that can be set.
type Config struct {
	Base  service.Base
	DB    db.Config
	MQ    provider.Config
	Flags flags.Config
	Task  task.Config

	FCMKeyFile  string        `env:"SEAHUB_FCM_KEY_FILE" key:"seahub.fcm.key-file" required:"true" help:"path of the service account's JSON key"`
	FCMEndpoint string        `env:"SEAHUB_FCM_ENDPOINT" envDefault:"https://fcm.googleapis.com" key:"seahub.fcm.endpoint" help:"where FCM HTTP v1 is"`
	FCMTimeout  time.Duration `env:"SEAHUB_FCM_TIMEOUT" envDefault:"20s" key:"seahub.fcm.timeout" min:"100ms" max:"30s" help:"patience with one FCM request; below FCM's own limit every slow answer becomes a repeat"`
	FCMRate     int           `env:"SEAHUB_FCM_RATE" envDefault:"500" key:"seahub.fcm.rate" min:"1" max:"10000" help:"most requests a second of this process; FCM's refusals lower it for a while"`

	Lease        time.Duration `env:"SEAHUB_PUSH_LEASE" envDefault:"45s" key:"seahub.push.lease" min:"500ms" max:"1m" help:"how long a push belongs to who took it; another takes it after that"`
	MaxAttempts  int           `env:"SEAHUB_PUSH_MAX_ATTEMPTS" envDefault:"12" key:"seahub.push.max-attempts" min:"1" max:"1000" help:"requests per device before it is given up; what never reached FCM does not count"`
	RetryBase    time.Duration `env:"SEAHUB_PUSH_RETRY_BASE" envDefault:"5s" key:"seahub.push.retry-base" min:"10ms" max:"10m" help:"wait after the first failed attempt; it doubles from there"`
	RetryMax     time.Duration `env:"SEAHUB_PUSH_RETRY_MAX" envDefault:"10m" key:"seahub.push.retry-max" min:"10ms" max:"6h" help:"longest wait between attempts, unless FCM asks for a longer one"`
	MaxAge       time.Duration `env:"SEAHUB_PUSH_MAX_AGE" envDefault:"24h" key:"seahub.push.max-age" min:"1m" max:"672h" help:"a push that is overdue, or was tried, for longer than this is EXPIRED; also FCM's ttl where the push has no expiry"`
	KeepAttempts time.Duration `env:"SEAHUB_PUSH_KEEP_ATTEMPTS" envDefault:"720h" key:"seahub.push.keep-attempts" min:"1h" max:"8760h" help:"how long the ledger of requests is kept; it is what spares a device from a repeat"`

	PollEvery       time.Duration `env:"SEAHUB_PUSH_POLL_EVERY" envDefault:"5s" key:"seahub.push.poll-every" min:"50ms" max:"10m" help:"pause between two passes of the poll"`
	PollBatch       int           `env:"SEAHUB_PUSH_POLL_BATCH" envDefault:"200" key:"seahub.push.poll-batch" min:"1" max:"10000" help:"rows that the poll reads at a time"`
	PollConcurrency int           `env:"SEAHUB_PUSH_POLL_CONCURRENCY" envDefault:"8" key:"seahub.push.poll-concurrency" min:"1" max:"256" help:"pushes that the poll works on at a time"`
	OverdueBy       time.Duration `env:"SEAHUB_PUSH_OVERDUE_BY" envDefault:"60s" key:"seahub.push.overdue-by" min:"500ms" max:"1h" help:"how long a push of the event path may be overdue before the poll steps in"`
}

// Validate checks what single values cannot show.
func (c Config) Validate() error {
	var errs []error
	if c.FCMTimeout > c.Lease/2 {
		errs = append(errs, fmt.Errorf("SEAHUB_FCM_TIMEOUT (seahub.fcm.timeout) is %s, more than half of SEAHUB_PUSH_LEASE (seahub.push.lease) %s: a slow request would outlive the lease and be repeated by another process", c.FCMTimeout, c.Lease))
	}
	if c.MQ.Provider != "" && c.MQ.Bus.HandlerTimeout < c.FCMTimeout+finishTimeout {
		errs = append(errs, fmt.Errorf("SEAHUB_BUS_HANDLER_TIMEOUT (seahub.bus.handler-timeout) is %s, it must exceed SEAHUB_FCM_TIMEOUT (seahub.fcm.timeout) %s by %s: the handler would be cut off in mid-request", c.MQ.Bus.HandlerTimeout, c.FCMTimeout, finishTimeout))
	}
	if c.KeepAttempts <= c.MaxAge {
		errs = append(errs, fmt.Errorf("SEAHUB_PUSH_KEEP_ATTEMPTS (seahub.push.keep-attempts) is %s, it must exceed SEAHUB_PUSH_MAX_AGE (seahub.push.max-age) %s: a push that is still tried would forget which devices have it", c.KeepAttempts, c.MaxAge))
	}
	if c.RetryMax < c.RetryBase {
		errs = append(errs, fmt.Errorf("SEAHUB_PUSH_RETRY_MAX (seahub.push.retry-max) is %s, below SEAHUB_PUSH_RETRY_BASE (seahub.push.retry-base) %s", c.RetryMax, c.RetryBase))
	}
	u, err := url.Parse(c.FCMEndpoint)
	switch {
	case strings.Contains(c.FCMEndpoint, "@"): // not quoted: it may be a secret
		errs = append(errs, errors.New("SEAHUB_FCM_ENDPOINT (seahub.fcm.endpoint) has a user or password in it: requests carry the key file's token and nothing else"))
	case err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "":
		errs = append(errs, fmt.Errorf("SEAHUB_FCM_ENDPOINT (seahub.fcm.endpoint): %q is not an http or https address", c.FCMEndpoint))
	}
	if c.FCMKeyFile != "" {
		if _, err := readKey(c.FCMKeyFile); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
