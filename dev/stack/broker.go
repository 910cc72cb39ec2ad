package stack

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/seahub/seahub-mq/pkg/testenv"
)

// The brokers that a stack can have: Options.Provider.
const (
	RedisStreams = "redis-streams"
	RocketMQ     = "rocketmq"
)

// brokerName is what people call the broker of a provider.
func brokerName(provider string) string {
	if provider == RocketMQ {
		return "RocketMQ"
	}
	return "Redis"
}

// startBroker starts the broker that the services are to use.
func (s *Stack) startBroker(ctx context.Context, o Options) error {
	if o.Provider != RocketMQ {
		redis, err := s.serverOptions("redis", o.Ports.Redis, o.Durable)
		if err != nil {
			return err
		}
		if s.Redis, err = testenv.StartRedis(ctx, redis); err != nil {
			return err
		}
		s.Broker = s.Redis
		s.closers = append(s.closers, s.Redis.Close)
		return nil
	}
	options, err := s.serverOptions("rocketmq", 0, o.Durable)
	if err != nil {
		return err
	}
	// The servers take the name of their folder into addresses of files: absolute.
	if options.Dir, err = filepath.Abs(options.Dir); err != nil {
		return fmt.Errorf("find the folder of RocketMQ: %w", err)
	}
	if s.RocketMQ, err = testenv.StartRocketMQ(ctx, options); err != nil {
		return err
	}
	s.Broker = s.RocketMQ.Broker
	s.closers = append(s.closers, s.RocketMQ.Close)
	return nil
}

// prepareBroker makes the topic and groups, as an operator does, where that is needed.
func (s *Stack) prepareBroker(ctx context.Context) error {
	if s.RocketMQ == nil {
		return nil
	}
	admin := s.RocketMQ.Admin
	out, code, err := s.Command(ctx, "relay", map[string]string{
		"SEAHUB_ROCKETMQ_ACCESS_KEY": admin.AccessKey, "SEAHUB_ROCKETMQ_SECRET_KEY": admin.SecretKey,
	}, "topics", "--apply")
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if err != nil {
		return fmt.Errorf("make topic and groups: %w: %s", err, out)
	}
	return nil
}

// brokerEnv is the part of the services' configuration that names the broker.
func (s *Stack) brokerEnv() map[string]string {
	if s.RocketMQ == nil {
		return map[string]string{
			"SEAHUB_MQ_PROVIDER":     RedisStreams,
			"SEAHUB_REDIS_ADDRESSES": s.Redis.Addr(),
		}
	}
	return map[string]string{
		"SEAHUB_MQ_PROVIDER":           RocketMQ,
		"SEAHUB_ROCKETMQ_NAME_SERVERS": s.RocketMQ.Addr(),
		// Its client has a data race on the flag that ends it; a service that was
		// built with the race detector would end with this code for that.
		"GORACE": "exitcode=0",
	}
}

// accountOf gives a service the broker's account of least rights that it can do with.
func (s *Stack) accountOf(service string) map[string]string {
	if s.RocketMQ == nil {
		return nil
	}
	account := s.RocketMQ.Consumer
	if service == "relay" {
		account = s.RocketMQ.Publisher
	}
	return map[string]string{"SEAHUB_ROCKETMQ_ACCESS_KEY": account.AccessKey, "SEAHUB_ROCKETMQ_SECRET_KEY": account.SecretKey}
}
