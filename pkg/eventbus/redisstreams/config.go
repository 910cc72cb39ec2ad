package redisstreams

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The modes of Config.
const (
	modeSingle   = "single"
	modeSentinel = "sentinel"
	modeCluster  = "cluster"
)

// Config says where Redis is and how its streams are used.
type Config struct {
	Addresses  []string `env:"SEAHUB_REDIS_ADDRESSES" envDefault:"127.0.0.1:6379" key:"seahub.redis.addresses" help:"host:port of the server; of every Sentinel or of some Cluster nodes in those modes, separated by commas."`
	Mode       string   `env:"SEAHUB_REDIS_MODE" envDefault:"single" key:"seahub.redis.mode" help:"What the addresses are." oneof:"single,sentinel,cluster"`
	MasterName string   `env:"SEAHUB_REDIS_MASTER_NAME" key:"seahub.redis.master-name" help:"Name of the master; required in sentinel mode."`
	Username   string   `env:"SEAHUB_REDIS_USERNAME" key:"seahub.redis.username" help:"ACL user; empty for the default user."`
	Password   string   `env:"SEAHUB_REDIS_PASSWORD" key:"seahub.redis.password" help:"Password of the user." secret:"true"`
	DB         int      `env:"SEAHUB_REDIS_DB" envDefault:"0" key:"seahub.redis.db" help:"Database number; 0 in cluster mode." min:"0" max:"1024"`
	TLS        bool     `env:"SEAHUB_REDIS_TLS" envDefault:"false" key:"seahub.redis.tls" help:"Connect with TLS and verify the server's certificate."`
	TLSCAFile  string   `env:"SEAHUB_REDIS_TLS_CA_FILE" key:"seahub.redis.tls-ca-file" help:"PEM file with the certificate authorities to trust; empty trusts the system's."`

	AllowEviction bool `env:"SEAHUB_REDIS_ALLOW_EVICTION" envDefault:"false" key:"seahub.redis.allow-eviction" help:"Publish even to a Redis whose maxmemory-policy may evict streams; what it evicts has to be requeued from the outbox."`

	DialTimeout time.Duration `env:"SEAHUB_REDIS_DIAL_TIMEOUT" envDefault:"2s" key:"seahub.redis.dial-timeout" help:"Longest wait for a connection." min:"10ms" max:"30s"`
	Timeout     time.Duration `env:"SEAHUB_REDIS_TIMEOUT" envDefault:"3s" key:"seahub.redis.timeout" help:"Longest wait for an answer; a caller's earlier deadline wins." min:"10ms" max:"30s"`

	Block      time.Duration `env:"SEAHUB_REDIS_BLOCK" envDefault:"2s" key:"seahub.redis.block" help:"How long one blocking read waits for messages." min:"1s" max:"5s"`
	Lease      time.Duration `env:"SEAHUB_REDIS_LEASE" envDefault:"15s" key:"seahub.redis.lease" help:"A message whose member has been silent for this long goes to another member; a live member renews every third of it." min:"1s" max:"10m"`
	CrashSlack int           `env:"SEAHUB_REDIS_CRASH_SLACK" envDefault:"5" key:"seahub.redis.crash-slack" help:"Deliveries of a message that ended with its member's death before each further one counts as a failed attempt." min:"0" max:"500"`

	Retention time.Duration `env:"SEAHUB_REDIS_RETENTION" envDefault:"24h" key:"seahub.redis.retention" help:"Messages younger than this are never trimmed, so that a group deployed later still finds them." min:"0s" max:"720h"`
	MaxLen    int64         `env:"SEAHUB_REDIS_MAX_LEN" envDefault:"2000000" key:"seahub.redis.max-len" help:"Memory fuse: a stream longer than this is cut, unread messages included, with an alert." min:"1000"`
	TrimEvery time.Duration `env:"SEAHUB_REDIS_TRIM_EVERY" envDefault:"10s" key:"seahub.redis.trim-every" help:"How often one member trims the stream behind the slowest group." min:"1s" max:"24h"`
}

// Validate checks what single values cannot show.
func (c Config) Validate() error {
	var errs []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, a := range c.addresses() {
		if strings.Contains(a, "@") { // not quoted: it may be a password
			add(true, "SEAHUB_REDIS_ADDRESSES (seahub.redis.addresses) has a user or password in it: write host:port, and give those by keys of their own")
			continue
		}
		add(!strings.Contains(a, ":") || strings.Contains(a, "/"), "SEAHUB_REDIS_ADDRESSES (seahub.redis.addresses) holds %q: write host:port, without a scheme", a)
	}
	add(c.Mode == modeSingle && len(c.addresses()) > 1, "SEAHUB_REDIS_ADDRESSES (seahub.redis.addresses) names %d servers, SEAHUB_REDIS_MODE (seahub.redis.mode) single takes one", len(c.addresses()))
	add(c.Mode == modeSentinel && c.MasterName == "", "SEAHUB_REDIS_MASTER_NAME (seahub.redis.master-name) is required when SEAHUB_REDIS_MODE (seahub.redis.mode) is sentinel")
	add(c.Mode == modeCluster && c.DB != 0, "SEAHUB_REDIS_DB (seahub.redis.db) must be 0 when SEAHUB_REDIS_MODE (seahub.redis.mode) is cluster")
	add(c.TLSCAFile != "" && !c.TLS, "SEAHUB_REDIS_TLS_CA_FILE (seahub.redis.tls-ca-file) is set but SEAHUB_REDIS_TLS (seahub.redis.tls) is false")
	if c.TLS && c.TLSCAFile != "" {
		_, err := tlsConfig(c.TLSCAFile)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// addresses leaves out the empty strings that splitting leaves behind.
func (c Config) addresses() []string {
	var out []string
	for _, a := range c.Addresses {
		if a = strings.TrimSpace(a); a != "" {
			out = append(out, a)
		}
	}
	return out
}

// withDefaults fills what a caller that builds a Config by hand left out.
func (c Config) withDefaults() Config {
	setDuration := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	if c.Mode == "" {
		c.Mode = modeSingle
	}
	setDuration(&c.DialTimeout, 2*time.Second)
	setDuration(&c.Timeout, 3*time.Second)
	setDuration(&c.Block, 2*time.Second)
	// Redis reads BLOCK in whole milliseconds, and 0 as "for ever".
	c.Block = max(c.Block.Truncate(time.Millisecond), time.Millisecond)
	setDuration(&c.Lease, 15*time.Second)
	if c.MaxLen <= 0 {
		c.MaxLen = 2_000_000
	}
	setDuration(&c.TrimEvery, 10*time.Second)
	return c
}
