package redisstreams

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// options are what all our clients share. Everything that go-redis would do behind
// our back is off: a repeated XADD is a duplicate, a repeated XREADGROUP hides the
// first answer, and five quiet dials turn a dead server into a slow one.
func options(cfg Config) (*redis.UniversalOptions, error) {
	o := &redis.UniversalOptions{
		Addrs:         cfg.addresses(),
		MasterName:    cfg.MasterName,
		IsClusterMode: cfg.Mode == modeCluster,
		Username:      cfg.Username,
		Password:      cfg.Password,
		DB:            cfg.DB,
		Protocol:      2,
		MaxRetries:    -1,
		DialerRetries: 1,
		// In a Cluster these are the retries, after broken connections too, and not only
		// redirections. A command that went to the wrong node fails; see reroute.
		MaxRedirects:     -1,
		DialTimeout:      cfg.DialTimeout,
		ReadTimeout:      cfg.Timeout,
		WriteTimeout:     cfg.Timeout,
		PoolTimeout:      cfg.Timeout,
		DisableIdentity:  true,
		PipelinePoolSize: -1, // our pools are sized for what runs on them
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
	if cfg.Mode != modeSentinel {
		o.MasterName = ""
	}
	if cfg.TLS {
		t, err := tlsConfig(cfg.TLSCAFile)
		if err != nil {
			return nil, err
		}
		o.TLSConfig = t
	}
	return o, nil
}

func tlsConfig(caFile string) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("SEAHUB_REDIS_TLS_CA_FILE (seahub.redis.tls-ca-file): %w", err)
	}
	t.RootCAs = x509.NewCertPool()
	if !t.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("SEAHUB_REDIS_TLS_CA_FILE (seahub.redis.tls-ca-file): %s holds no PEM certificate", caFile)
	}
	return t, nil
}

// reroute makes a Cluster's client ask who serves what, after a failure: it follows no
// redirection, and would find out by itself only some seconds later.
func reroute(ctx context.Context, clients ...redis.UniversalClient) {
	for _, client := range clients {
		if c, ok := client.(*redis.ClusterClient); ok {
			c.ReloadState(ctx)
		}
	}
}

// commandClient is for everything but blocking reads. It ends with its caller's deadline.
func commandClient(cfg Config) (redis.UniversalClient, error) {
	o, err := options(cfg)
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true
	o.PoolSize = 16
	// Publishing writes hundreds of messages at a time; small buffers would cost a
	// system call for every few of them.
	o.WriteBufferSize = 128 << 10
	o.ReadBufferSize = 64 << 10
	return redis.NewUniversalClient(o), nil
}

// readClient is for one subscription's blocking reads: a read holds its connection
// for the whole BLOCK, which must not starve acknowledgements. connected is told the
// server's id of each new connection, by which a read can be ended early.
func readClient(cfg Config, connected func(id int64)) (redis.UniversalClient, error) {
	o, err := options(cfg)
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true
	o.PoolSize = 1
	o.ReadTimeout = cfg.Block + cfg.Timeout
	o.ReadBufferSize = 256 << 10
	o.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
		// A server or a proxy that does not tell is no reason not to read from it.
		if id, err := cn.ClientID(ctx).Result(); err == nil {
			connected(id)
		}
		return nil
	}
	return redis.NewUniversalClient(o), nil
}
